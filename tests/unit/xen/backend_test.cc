#include "hypervisor/xen/backend.h"

#include <event2/event.h>
#include <gtest/gtest.h>

#include "hypervisor/xen/toolstack.h"
#include "memory/base/log.h"
#include "tests/unit/xen/fake_xen.h"

namespace bandsaw::xen {
namespace {

constexpr uint32_t kDomain = 3;
constexpr const char* kBack = "backend/vgpu/3/0";
constexpr const char* kFront = "/local/domain/3/device/vgpu/0";

class XenBackend : public testing::Test {
 protected:
  XenBackend() {
    log::silence();
    begin();
    xen.create_domain(kDomain, "guest");
    turn();
  }
  ~XenBackend() override {
    backend.reset();
    event_base_free(base);
  }
  void begin() {
    backend = std::move(Backend::open("web0").value());
    EXPECT_TRUE(backend->start(base, sink).ok());
    watches = xen.store.watches();
  }
  void turn() {
    for (int i = 0; i < 20; ++i) event_base_loop(base, EVLOOP_NONBLOCK);
  }
  void is_attached() {
    ASSERT_TRUE(attach("guest", "web0").ok());
    turn();
    ASSERT_EQ(state(), "2");
  }
  void connects() {
    xen.offer_ring(kDomain);
    turn();
    ASSERT_EQ(state(), "4");
    front("state", "4");
  }
  void front(const std::string& key, const std::string& value) {
    xen.store.write(std::string(kFront) + "/" + key, value);
    turn();
  }
  std::string state() { return xen.store.read(std::string(kBack) + "/state").value_or("none"); }
  void has_let_go() {
    EXPECT_FALSE(backend->connected());
    EXPECT_FALSE(xen.holds_anything());
    EXPECT_EQ(sink.connects, 0);
  }
  void has_forgotten() {
    has_let_go();
    EXPECT_TRUE(xen.store.list("backend/vgpu").empty());
    EXPECT_EQ(xen.store.watches(), watches);
    EXPECT_EQ(backend->domain(), 0u);
  }

  FakeXen xen;
  FakeSink sink;
  event_base* base = event_base_new();
  std::unique_ptr<Backend> backend;
  size_t watches = 0;  // of a backend that serves nobody
};

TEST_F(XenBackend, ADomainIsServedUntilItIsDestroyed) {
  is_attached();
  connects();
  EXPECT_TRUE(backend->connected());
  EXPECT_EQ(sink.connects, 1);
  xen.destroy_domain(kDomain);
  turn();
  has_forgotten();
}

// No session ran at that time.
TEST_F(XenBackend, WhatADomainHasLeftThatEndedBeforeGoesToo) {
  backend.reset();
  ASSERT_TRUE(attach("guest", "web0").ok());
  xen.destroy_domain(kDomain);
  begin();
  turn();
  has_forgotten();
}

TEST_F(XenBackend, ADomainThatIsExpectedHasItWhenItStarts) {
  backend->expect("later");
  xen.create_domain(4, "later");
  turn();
  EXPECT_EQ(xen.store.read("backend/vgpu/4/0/name"), "web0");
  EXPECT_EQ(backend->domain(), 4u);
}

TEST_F(XenBackend, WhatIsTakenAwayMayBeGivenAgain) {
  is_attached();
  connects();
  ASSERT_TRUE(detach("guest", "web0").ok());
  turn();
  has_forgotten();
  is_attached();
  connects();
}

TEST_F(XenBackend, StatesThatAreSkippedConnectNothing) {
  is_attached();
  for (const char* text : {"5", "6", "0", "7", "-1", "x", "", "4"}) {
    front("state", text);
    has_let_go();
  }
  EXPECT_EQ(state(), "5") << "a frontend that is connected to nobody has to begin anew";
  front("state", "6");
  EXPECT_EQ(state(), "2");
  connects();
  front("state", "3");  // back, while it is connected
  EXPECT_TRUE(backend->connected());
  front("state", "1");
  has_let_go();
  EXPECT_EQ(state(), "2");
}

TEST_F(XenBackend, KeysThatAreNonsenseAreRefusedAndLeaveNothing) {
  is_attached();
  for (const auto& [key, value] :
       std::initializer_list<std::pair<const char*, const char*>>{{"ring-ref0", "x"},
                                                                  {"ring-ref4", ""},
                                                                  {"ring-ref1", "4294967295"},
                                                                  {"event-channel", "port"},
                                                                  {"event-channel", "77"},
                                                                  {"abi-version", "999"}}) {
    xen.offer_ring(kDomain);
    front(key, value);
    EXPECT_EQ(state(), "6") << key << "=" << value;
    has_let_go();
    front("state", "6");
    EXPECT_EQ(state(), "6") << "it would try the same for ever";
    front("state", "1");
    EXPECT_EQ(state(), "2");
  }
  connects();
}

TEST_F(XenBackend, AnIndexThatIsNonsenseEndsTheConnection) {
  is_attached();
  connects();
  xen.ring()->indices.requests = VGPU_XEN_SLOTS + 1;
  xen.ring_doorbell();
  turn();
  has_let_go();
  EXPECT_EQ(state(), "5");
}

TEST_F(XenBackend, AnIndexThatIsNonsenseInADomainThatIsGoneLeavesNothing) {
  is_attached();
  connects();
  sink.holds_reset = true;
  xen.ring()->indices.requests = VGPU_XEN_SLOTS + 1;
  xen.ring_doorbell();
  turn();
  xen.destroy_domain(kDomain);
  turn();
  for (const auto& done : std::exchange(sink.waiting, {})) done();
  turn();
  has_forgotten();
}

// The toolstack takes the device away between what the backend has read and what it writes.
TEST_F(XenBackend, NothingIsWrittenForADeviceThatIsGone) {
  for (int requests = 0; requests < 40; ++requests) {
    is_attached();
    int left = requests;
    xen.meanwhile = [&] {
      if (left-- == 0) (void)detach("guest", "web0");
    };
    xen.offer_ring(kDomain);
    turn();
    xen.meanwhile = nullptr;
    if (left >= 0) (void)detach("guest", "web0");
    turn();
    has_forgotten();
  }
}

TEST_F(XenBackend, ASessionThatComesBackHasAConnectedFrontendBeginAnew) {
  is_attached();
  connects();
  backend.reset();
  sink.connects = 0;
  begin();
  turn();
  EXPECT_EQ(state(), "5");
  front("state", "6");
  EXPECT_EQ(state(), "2");
  connects();
}

}  // namespace
}  // namespace bandsaw::xen
