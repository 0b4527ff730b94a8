// What a session tells the arbiter of its runners' channel groups, over a socket of its own.
#include "backend/session/gate_frontend.h"

#include <sys/eventfd.h>
#include <sys/socket.h>

#include <array>
#include <nlohmann/json.hpp>

#include "backend/control/gate_link.h"
#include "backend/control/json_link.h"
#include "backend/control/packet.h"
#include "memory/base/clock.h"
#include "memory/base/eventfd.h"
#include "tests/unit/session/fake_runner.h"

namespace bandsaw {
namespace {

class GateFrontendTest : public ::testing::Test {
 protected:
  void SetUp() override {
    char folder[] = "/tmp/bandsaw-test-XXXXXX";
    folder_ = ::mkdtemp(folder);
    path_ = folder_ + "/gate.sock";
    frontend = std::make_unique<GateFrontend>(base.get(), std::move(listen_unix(path_, SOCK_SEQPACKET, 0600).value()),
                                              &usage_page);
    runner.process = ::getpid();
  }
  void TearDown() override {
    frontend.reset();
    ::unlink(path_.c_str());
    ::rmdir(folder_.c_str());
  }
  void turn() {
    for (int i = 0; i < 20; ++i) event_base_loop(base.get(), EVLOOP_NONBLOCK);
  }
  // A new arbiter, greeted.
  UniqueFd arbiter() {
    UniqueFd socket = std::move(connect_unix(path_, SOCK_SEQPACKET).value());
    evutil_make_socket_nonblocking(socket.get());
    turn();
    GateHello hello;
    EXPECT_EQ(receive_packet(socket.get(), std::as_writable_bytes(std::span(&hello, 1)), &fds).value(), sizeof hello);
    EXPECT_EQ(fds.size(), 2u);
    return socket;
  }
  // The next packet; its slot is kGateSlots if there is none.
  GateMessage next(const UniqueFd& socket) {
    turn();
    GateMessage message;
    const auto length = receive_packet(socket.get(), std::as_writable_bytes(std::span(&message, 1)), &fds);
    if (!length.ok()) return {.type = {}, .slot = kGateSlots, .channel_groups = {}};
    EXPECT_EQ(length.value(), sizeof message);
    return message;
  }
  bool silent(const UniqueFd& socket) { return next(socket).slot == kGateSlots; }
  static UniqueFd device() { return UniqueFd(::eventfd(0, EFD_CLOEXEC)); }

  BasePtr base{event_base_new()};
  UsagePageOwner usage_page = std::move(UsagePageOwner::open(1u << 30).value());
  FakeRunner runner;
  std::unique_ptr<GateFrontend> frontend;
  std::vector<UniqueFd> fds;
  std::string folder_, path_;
};

TEST_F(GateFrontendTest, AnOrderOfTheArbiterSaysWhatMayLieOnTheDevice) {
  usage_page.set_memory_share(1000, 400);
  UniqueFd socket = arbiter();
  const UniqueFd kick(::eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC));
  const int slot = usage_page.take_slot();
  usage_page.set_kick(slot, kick.get());
  const auto order = [&](int64_t beyond, int64_t coming) {
    const MemoryOrder bytes{beyond, coming, 100};
    EXPECT_TRUE(send_packet(socket.get(), std::as_bytes(std::span(&bytes, 1)), {}, {}).ok());
    turn();
  };
  order(100, 300);
  EXPECT_TRUE(drain_event(kick.get())) << "there is room in host memory, where something can be made ready";
  order(200, 300);
  EXPECT_EQ(usage_page.resident(), 600u);
  EXPECT_FALSE(drain_event(kick.get())) << "who may have more need not wake";
  order(-150, 0);
  EXPECT_EQ(usage_page.resident(), 250u);
  EXPECT_TRUE(drain_event(kick.get()));
  usage_page.set_memory_share(1000, 500);
  EXPECT_EQ(usage_page.resident(), 350u) << "what an administrator changes is the reservation";
  usage_page.give_back(slot);
  order(-200, 0);
  EXPECT_FALSE(drain_event(kick.get())) << "its runner is gone";
  order(200, 0);
  socket.reset();
  turn();
  EXPECT_EQ(usage_page.resident(), 500u) << "without an arbiter nothing stays borrowed";
  socket = arbiter();
  order(-200, 0);
  socket.reset();
  turn();
  EXPECT_EQ(usage_page.resident(), 300u) << "what was lent may still be another's";
}

TEST_F(GateFrontendTest, TheArbiterHearsOfARunnersGroupsAndOfItsEnd) {
  const UniqueFd socket = arbiter();
  runner.say(2, device());
  frontend->taken(5, &runner);
  const GateMessage message = next(socket);
  EXPECT_EQ(message.type, GateMessageType::kChannelGroups);
  EXPECT_EQ(message.slot, 5u);
  EXPECT_EQ(message.channel_groups, runner.said->list);
  ASSERT_EQ(fds.size(), 2u);
  EXPECT_TRUE(silent(socket));
  runner.say(3, device());
  EXPECT_EQ(next(socket).channel_groups.count, 3u);
  runner.stop(Runner::Stop::kAsk);
  EXPECT_EQ(next(socket).type, GateMessageType::kRunnerEnds);
  EXPECT_TRUE(fds.empty());
  frontend->left(5);
  EXPECT_TRUE(silent(socket));  // it knows
}

TEST_F(GateFrontendTest, ARunnerWithoutGroupsSaysSo) {
  const UniqueFd socket = arbiter();
  frontend->taken(0, &runner);
  EXPECT_TRUE(silent(socket));  // it may still say something
  runner.say(0, UniqueFd());
  EXPECT_EQ(next(socket).channel_groups.count, 0u);
  EXPECT_TRUE(fds.empty());
  frontend->left(0);
  EXPECT_EQ(next(socket).type, GateMessageType::kRunnerEnds);
}

TEST_F(GateFrontendTest, TheArbiterEndsARunnerButNotTheOneAfterIt) {
  const UniqueFd socket = arbiter();
  const auto order = [&](uint32_t slot, int64_t since, RunnerEndReason reason) {
    const RunnerEndOrder bytes{reason, slot, since};
    ASSERT_TRUE(send_packet(socket.get(), std::as_bytes(std::span(&bytes, 1)), {}, {}).ok());
    turn();
  };
  const int64_t before = monotonic_ns();
  frontend->taken(5, &runner);
  order(5, before, RunnerEndReason::kDeadline);
  EXPECT_EQ(runner.failed_with, 0u) << "it has come since";
  order(6, monotonic_ns(), RunnerEndReason::kDeadline);
  order(~0u, monotonic_ns(), RunnerEndReason::kDeadline);
  EXPECT_EQ(runner.failed_with, 0u);
  order(5, monotonic_ns(), RunnerEndReason::kDeadline);
  EXPECT_EQ(runner.failed_with, 702u);
  order(5, monotonic_ns(), RunnerEndReason::kOwnTimeSlices);
  EXPECT_EQ(runner.failed_with, 719u);
  runner.say(1, device());
  EXPECT_EQ(next(socket).slot, 5u) << "the connection is as it was";
}

TEST_F(GateFrontendTest, ANewArbiterHearsOfAll) {
  FakeRunner other;
  other.process = ::getpid();
  runner.say(1, device());
  other.say(2, device());
  frontend->taken(1, &runner);
  frontend->taken(200, &other);
  for (int i = 0; i < 3; ++i) {
    const UniqueFd socket = arbiter();
    EXPECT_EQ(next(socket).slot, 1u);
    EXPECT_EQ(next(socket).slot, 200u);
    EXPECT_EQ(fds.size(), 2u);
    EXPECT_TRUE(silent(socket));
  }
  frontend->left(1);
  frontend->left(200);
}

TEST_F(GateFrontendTest, WhatFindsNoRoomComesLaterAndOnlyTheNewest) {
  const UniqueFd socket = arbiter();
  frontend->taken(7, &runner);
  for (int i = 0; i < 5000; ++i) runner.say(1 + i % 2, device());
  runner.say(5, device());
  GateMessage last;
  int heard = 0;
  for (GateMessage message = next(socket); message.slot != kGateSlots; message = next(socket)) {
    last = message;
    ++heard;
  }
  EXPECT_EQ(last.channel_groups.count, 5u);
  EXPECT_LT(heard, 5000);
  frontend->left(7);
}

}  // namespace
}  // namespace bandsaw
