// Two sessions in one event loop: what the runners of one publish, those of the other fetch.
#include "backend/session/peer_links.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/socket.h>
#include <sys/stat.h>

#include <cstring>
#include <filesystem>
#include <memory>
#include <optional>
#include <vector>

#include "backend/control/event_ptr.h"
#include "backend/control/json_link.h"
#include "backend/control/packet.h"
#include "backend/control/paths.h"

namespace bandsaw {
namespace {

constexpr GuestOwner kOwner{GuestOwner::Kind::kVm, 77}, kOther{GuestOwner::Kind::kVm, 78};

struct Side {
  Side(event_base* base, const std::string& run, uint32_t index, int64_t first_uid = -1)
      : exchange(index),
        links(base, std::move(listen_for_peers(run, index).value()), {run, index, first_uid}, &exchange,
              [this](const ExchangeKey& key) { revoked.push_back(key); }) {
    exchange.set_on_gone([this](const ExchangeKey& key) { links.revoke(key); });
  }
  ExchangeKey publish(const GuestOwner& owner, bool event = false) {
    Exchange::Thing thing;
    thing.owner = this;
    if (!event) thing.fd.reset(::open("/dev/null", O_RDONLY | O_CLOEXEC));
    thing.bytes = event ? 0 : 4096;
    thing.guest = owner;
    return exchange.publish(std::move(thing)).value();
  }

  std::vector<ExchangeKey> revoked;
  Exchange exchange;
  PeerLinks links;
};

class PeerLinksTest : public ::testing::Test {
 protected:
  void SetUp() override {
    char folder[] = "/tmp/bandsaw-test-XXXXXX";
    run = ::mkdtemp(folder);
    here = std::make_unique<Side>(base.get(), run, 1);
    there = std::make_unique<Side>(base.get(), run, 2);
  }
  void TearDown() override {
    here.reset();
    there.reset();
    std::filesystem::remove_all(run);
  }
  void turn() {
    for (int i = 0; i < 20; ++i) event_base_loop(base.get(), EVLOOP_NONBLOCK);
  }
  // From `there`; -1: no answer.
  int fetch(const ExchangeKey& key, bool lent = true, const GuestOwner& owner = kOwner) {
    int error = -1;
    here->links.fetch(key, lent, owner, [&](int why, Exchange::Thing thing) {
      error = why;
      if (why == 0) {
        EXPECT_EQ(thing.bytes, 4096u);
        EXPECT_TRUE(thing.fd);
      }
    });
    EXPECT_EQ(error, -1) << "told from inside the call";
    turn();
    return error;
  }

  BasePtr base{event_base_new()};
  std::string run;
  std::unique_ptr<Side> here, there;
};

TEST_F(PeerLinksTest, AThingGoesToItsOwnersProcesses) {
  const ExchangeKey key = there->publish(kOwner);
  EXPECT_EQ(publisher_of(key), 2u);
  EXPECT_EQ(fetch(key), 0);
  EXPECT_EQ(fetch(key), 0) << "again, over the same connection";
}

TEST_F(PeerLinksTest, NobodyElseGetsIt) {
  EXPECT_EQ(fetch(there->publish(kOwner), true, kOther), ENOENT);
  EXPECT_EQ(fetch(there->publish(kOwner), true, {}), ENOENT);
  EXPECT_EQ(fetch(there->publish({}), true, {}), ENOENT) << "nobody is no owner";
  ExchangeKey guessed = there->publish(kOwner);
  guessed[15] ^= 1;
  EXPECT_EQ(fetch(guessed), ENOENT);
}

TEST_F(PeerLinksTest, WhatHasNoDescriptorStaysInItsVirtualGpu) {
  EXPECT_EQ(fetch(there->publish(kOwner, true), false), ENOTSUP);
}

TEST_F(PeerLinksTest, WhereNoSessionIsThereIsNothing) {
  ExchangeKey key = there->publish(kOwner);
  key[0] = 9;
  EXPECT_EQ(fetch(key), ENOENT);
  there.reset();
  key[0] = 2;
  EXPECT_NE(fetch(key), 0);
}

TEST_F(PeerLinksTest, WhatIsLentIsTakenBack) {
  const ExchangeKey lent = there->publish(kOwner), given = there->publish(kOwner);
  EXPECT_EQ(fetch(lent), 0);
  EXPECT_EQ(fetch(given, false), 0);
  there->exchange.withdraw(there.get(), lent);
  there->exchange.withdraw(there.get(), given);
  turn();
  EXPECT_EQ(here->revoked, std::vector{lent}) << "who has the other one keeps it";
}

TEST_F(PeerLinksTest, ASessionsEndTakesAllBack) {
  const ExchangeKey one = there->publish(kOwner), two = there->publish(kOwner);
  EXPECT_EQ(fetch(one), 0);
  EXPECT_EQ(fetch(two), 0);
  there.reset();
  turn();
  EXPECT_EQ(here->revoked.size(), 2u);
  there = std::make_unique<Side>(base.get(), run, 2);
  EXPECT_EQ(fetch(there->publish(kOwner)), 0) << "the next session is another one";
}

TEST_F(PeerLinksTest, StrangersAreSentAway) {
  const ExchangeKey key = there->publish(kOwner);
  UniqueFd socket = std::move(connect_unix(peer_socket(run, 2), SOCK_SEQPACKET).value());
  evutil_make_socket_nonblocking(socket.get());
  const std::vector<std::byte> nonsense(160, std::byte{7});
  ASSERT_TRUE(send_packet(socket.get(), nonsense, {}, {}).ok());
  turn();
  std::vector<std::byte> buffer(256);
  std::vector<UniqueFd> fds;
  const auto answer = receive_packet(socket.get(), buffer, &fds);
  EXPECT_TRUE(answer.ok() && answer.value() == 0) << "the connection is closed";
  EXPECT_EQ(fetch(key), 0) << "others go on";
}

// Where each session has a user of its own, a session is believed to be the one whose user it has.
TEST_F(PeerLinksTest, AnotherUserIsNoSession) {
  there = nullptr;
  there = std::make_unique<Side>(base.get(), run, 2, int64_t{::geteuid()} + 1000);
  EXPECT_NE(fetch(there->publish(kOwner)), 0);
}

}  // namespace
}  // namespace bandsaw
