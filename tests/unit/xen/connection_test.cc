#include "hypervisor/xen/connection.h"

#include <gtest/gtest.h>

#include <numeric>

#include "hypervisor/xen/store_path.h"
#include "tests/unit/xen/fake_frontend.h"

namespace bandsaw::xen {
namespace {

vgpu_ctl_add_region add_region(uint32_t pages, uint32_t process = 1, uint32_t id = 7) {
  return {.header = {VGPU_CTL_ADD_REGION, process},
          .id = id,
          .flags = 0,
          .va = 0x10000,
          .bytes = uint64_t{pages} * VGPU_XEN_PAGE_BYTES,
          .segments = 0,
          .reserved = 0};
}

vgpu_ctl_drop drop_region(uint32_t id = 7) { return {.header = {VGPU_CTL_DROP_REGION, 1}, .id = id, .reserved = 0}; }

TEST(XenConnection, ARequestIsHandedOnAndItsAnswerComesBackWithItsTag) {
  FakeFrontend frontend;
  frontend.sink.status = ENOENT;
  frontend.put(23, vgpu_ctl_header{VGPU_CTL_PING, 9});
  ASSERT_TRUE(frontend.connection->serve().ok());
  ASSERT_EQ(frontend.sink.requests.size(), 1u);
  EXPECT_EQ(frontend.sink.requests[0].size(), sizeof(vgpu_ctl_header));
  EXPECT_EQ(frontend.ring->indices.replies, 1u);
  EXPECT_EQ(frontend.last_reply().tag, 23u);
  EXPECT_EQ(frontend.last_reply().reply.status, uint32_t{ENOENT});
  EXPECT_EQ(frontend.notified, 1);
}

TEST(XenConnection, GrantedPagesBecomeOnePieceOfRamUntilTheyAreDropped) {
  FakeFrontend frontend;
  frontend.grants.lists[5] = {11, 12, 13};
  frontend.put(0, add_region(3), 5, 3);
  ASSERT_TRUE(frontend.connection->serve().ok());
  EXPECT_EQ(frontend.grants.asked, (std::vector<uint32_t>{11, 12, 13}));
  EXPECT_EQ(frontend.connection->pages(), 3u);
  EXPECT_EQ(frontend.sink.last.bytes, 3 * VGPU_XEN_PAGE_BYTES);
  ASSERT_EQ(frontend.sink.requests[0].size(), sizeof(vgpu_ctl_add_region) + sizeof(vgpu_segment));
  vgpu_segment segment;
  std::memcpy(&segment, frontend.sink.requests[0].data() + sizeof(vgpu_ctl_add_region), sizeof segment);
  EXPECT_EQ(segment.address, frontend.sink.last.gpa);
  EXPECT_EQ(segment.bytes, 3 * VGPU_XEN_PAGE_BYTES);
  frontend.put(1, drop_region());
  ASSERT_TRUE(frontend.connection->serve().ok());
  EXPECT_TRUE(frontend.grants.offered.empty());
  EXPECT_TRUE(frontend.sink.rams.empty());
  EXPECT_EQ(frontend.connection->pages(), 0u);
}

TEST(XenConnection, LongListsLieInPagesOfTheirOwn) {
  FakeFrontend frontend;
  constexpr uint32_t kPages = VGPU_XEN_REFS_PER_PAGE + 2;
  frontend.grants.lists[5] = {6, 8};
  frontend.grants.lists[6].resize(VGPU_XEN_REFS_PER_PAGE);
  std::iota(frontend.grants.lists[6].begin(), frontend.grants.lists[6].end(), 100);
  frontend.grants.lists[8] = {3, 4};
  frontend.put(0, add_region(kPages), 5, kPages);
  ASSERT_TRUE(frontend.connection->serve().ok());
  ASSERT_EQ(frontend.grants.asked.size(), kPages);
  EXPECT_EQ(frontend.grants.asked[1023], 1123u);
  EXPECT_EQ(frontend.grants.asked.back(), 4u);
}

TEST(XenConnection, PagesOfARefusedRequestAreGivenBack) {
  FakeFrontend frontend;
  frontend.sink.status = EINVAL;
  frontend.grants.lists[5] = {11};
  frontend.put(0, add_region(1), 5, 1);
  ASSERT_TRUE(frontend.connection->serve().ok());
  EXPECT_TRUE(frontend.grants.offered.empty());
  EXPECT_TRUE(frontend.sink.rams.empty());
}

TEST(XenConnection, TheEndOfAProcessGivesItsPagesBackAndNoOthers) {
  FakeFrontend frontend;
  frontend.grants.lists[5] = {11, 12};
  frontend.put(0, add_region(2, 1, 7), 5, 2);
  frontend.put(1, add_region(2, 1, 8), 5, 2);
  frontend.put(2, add_region(2, 2, 7), 5, 2);
  frontend.put(3, vgpu_ctl_header{VGPU_CTL_DESTROY_PROCESS, 1});
  ASSERT_TRUE(frontend.connection->serve().ok());
  EXPECT_EQ(frontend.grants.offered.size(), 1u);
  frontend.connection->withdraw_all();
  EXPECT_TRUE(frontend.grants.offered.empty());
}

TEST(XenConnection, MemoryWithoutGrantsAndGrantsWithoutMemoryAreRefused) {
  FakeFrontend frontend;
  frontend.put(0, add_region(1));                            // no grants
  frontend.put(1, vgpu_ctl_header{VGPU_CTL_PING, 0}, 5, 1);  // grants
  frontend.put(2, add_region(1), 99, 1);                     // a list that is not granted
  ASSERT_TRUE(frontend.connection->serve().ok());
  EXPECT_TRUE(frontend.sink.requests.empty());
  EXPECT_EQ(frontend.ring->replies[0].reply.status, uint32_t{EINVAL});
  EXPECT_EQ(frontend.ring->replies[1].reply.status, uint32_t{EINVAL});
  EXPECT_EQ(frontend.ring->replies[2].reply.status, uint32_t{EFAULT});
}

TEST(XenConnection, NonsenseInTheRingEndsTheConnection) {
  FakeFrontend index;
  index.ring->indices.requests = VGPU_XEN_SLOTS + 1;
  EXPECT_EQ(index.connection->serve().code(), EPROTO);
  FakeFrontend body;
  body.put(0, vgpu_ctl_header{VGPU_CTL_PING, 0});
  body.ring->requests[0].bytes = VGPU_XEN_BODY_BYTES + 1;
  EXPECT_EQ(body.connection->serve().code(), EPROTO);
  FakeFrontend pages;
  pages.put(0, add_region(1), 5, VGPU_XEN_PAGES_MAX + 1);
  EXPECT_EQ(pages.connection->serve().code(), EPROTO);
  FakeFrontend events;
  events.ring->indices.events_taken = 1;
  EXPECT_EQ(events.connection->post_event(VGPU_EVENT_WAKE, 1).code(), EPROTO);
}

TEST(XenConnection, NoMoreRequestsAreTakenThanMayWait) {
  FakeFrontend frontend;
  frontend.sink.at_once = false;
  for (uint32_t tag = 0; tag < VGPU_XEN_SLOTS; ++tag) frontend.put(tag, vgpu_ctl_header{VGPU_CTL_PING, 0});
  ASSERT_TRUE(frontend.connection->serve().ok());
  frontend.put(40, vgpu_ctl_header{VGPU_CTL_PING, 0});
  ASSERT_TRUE(frontend.connection->serve().ok());
  EXPECT_EQ(frontend.sink.requests.size(), VGPU_XEN_SLOTS);
  frontend.sink.replies[3]({});
  frontend.sink.replies[3]({});  // one answer each
  EXPECT_EQ(frontend.ring->indices.replies, 1u);
  EXPECT_EQ(frontend.last_reply().tag, 3u);
  ASSERT_TRUE(frontend.connection->serve().ok());
  EXPECT_EQ(frontend.sink.requests.size(), VGPU_XEN_SLOTS + 1);
}

TEST(XenConnection, EventsWaitForRoomAndEqualOnesAreOne) {
  FakeFrontend frontend;
  for (uint32_t process = 0; process < VGPU_XEN_EVENTS + 2; ++process) {
    ASSERT_TRUE(frontend.connection->post_event(VGPU_EVENT_WAKE, process).ok());
  }
  ASSERT_TRUE(frontend.connection->post_event(VGPU_EVENT_WAKE, VGPU_XEN_EVENTS).ok());
  EXPECT_EQ(frontend.ring->indices.events, VGPU_XEN_EVENTS);
  frontend.ring->indices.events_taken = VGPU_XEN_EVENTS;
  ASSERT_TRUE(frontend.connection->serve().ok());
  EXPECT_EQ(frontend.ring->indices.events, VGPU_XEN_EVENTS + 2);
  EXPECT_EQ(frontend.ring->events[0].process, VGPU_XEN_EVENTS);
}

TEST(XenConnection, WhatIsOnItsWayAtTheEndHoldsNoGrant) {
  FakeFrontend frontend;
  frontend.grants.lists[5] = {11};
  frontend.put(0, add_region(1), 5, 1);
  frontend.sink.holds_ram = true;
  ASSERT_TRUE(frontend.connection->serve().ok());
  frontend.put(1, drop_region());  // the session does not let go yet
  frontend.sink.at_once = false;
  frontend.put(2, add_region(1, 2), 5, 1);  // and does not answer
  ASSERT_TRUE(frontend.connection->serve().ok());
  frontend.sink.replies[1](reply_of(0));
  EXPECT_EQ(frontend.grants.offered.size(), 2u);
  frontend.connection->withdraw_all();
  EXPECT_TRUE(frontend.grants.offered.empty());
  EXPECT_EQ(frontend.connection->pages(), 0u);
  for (const auto& done : frontend.sink.waiting) done();
}

TEST(XenConnection, AFrontendThatNeverStopsAskingIsLeftForATurn) {
  FakeFrontend frontend;
  frontend.sink.meanwhile = [&] { frontend.put(1, vgpu_ctl_header{VGPU_CTL_PING, 0}); };
  frontend.sink.meanwhile();
  ASSERT_TRUE(frontend.connection->serve().ok());
  EXPECT_TRUE(frontend.connection->more());
  frontend.sink.meanwhile = nullptr;
  ASSERT_TRUE(frontend.connection->serve().ok());
  EXPECT_FALSE(frontend.connection->more());
}

TEST(XenConnection, AnAnswerAfterItsEndGoesNowhere) {
  FakeFrontend frontend;
  frontend.sink.at_once = false;
  frontend.put(0, vgpu_ctl_header{VGPU_CTL_PING, 0});
  ASSERT_TRUE(frontend.connection->serve().ok());
  frontend.connection.reset();
  frontend.sink.replies[0]({});
  EXPECT_EQ(frontend.ring->indices.replies, 0u);
}

TEST(XenStore, OnlyDecimalDigitsAreANumber) {
  EXPECT_EQ(parse_number("4294967295"), UINT32_MAX);
  EXPECT_EQ(parse_number("0"), 0u);
  for (const char* text : {"", " 1", "1 ", "-1", "+1", "0x1", "4294967296", "1\n", "99999999999999999999"}) {
    EXPECT_FALSE(parse_number(text)) << text;
  }
  EXPECT_FALSE(parse_number(std::string_view("1\0", 2)));
  EXPECT_FALSE(parse_number("8", 7));
}

TEST(XenStore, AStateThatIsNoneIsUnknown) {
  EXPECT_EQ(parse_state("4"), State::kConnected);
  for (const char* text : {"", "7", "-1", "4x", "connected"}) EXPECT_EQ(parse_state(text), State::kUnknown) << text;
}

TEST(XenStore, ADeviceIsNamedByTwoNumbers) {
  const auto device = parse_device("3", "0");
  ASSERT_TRUE(device);
  EXPECT_EQ(device->backend(), "backend/vgpu/3/0");
  EXPECT_EQ(device->frontend(), "/local/domain/3/device/vgpu/0");
  EXPECT_FALSE(parse_device("32752", "0"));  // no domain has such a number
  EXPECT_FALSE(parse_device("../1", "0"));
  EXPECT_FALSE(parse_device("3", "state"));
}

}  // namespace
}  // namespace bandsaw::xen
