// Which channel groups a runner knows of, and what it tells its session.
#include <gtest/gtest.h>
#include <sys/eventfd.h>
#include <sys/socket.h>

#include <array>
#include <cstring>
#include <thread>

#include "backend/control/nvidia_calls.h"
#include "backend/control/packet.h"
#include "backend/control/runner_link.h"
#include "backend/runner/channels/channel_group_reporter.h"
#include "backend/runner/channels/watch_call.h"

namespace bandsaw::runner {
namespace {

constexpr uint32_t kClient = 0xc1d0001, kDevice = 0x5c000001;

TEST(ChannelGroupTable, WhatWasMadeIsKnownUntilItIsFreed) {
  ChannelGroupTable table;
  EXPECT_EQ(table.known().list.count, 0u);
  EXPECT_EQ(table.known().descriptor, -1);
  table.made({7, kClient, kDevice, 0x11});
  table.made({7, kClient, kDevice, 0x22});
  ASSERT_EQ(table.known().list.count, 2u);
  EXPECT_EQ(table.known().list.client, kClient);
  EXPECT_EQ(table.known().descriptor, 7);
  EXPECT_FALSE(table.freed(kClient, 0x33));
  EXPECT_FALSE(table.freed(kClient + 1, 0x11));
  EXPECT_TRUE(table.freed(kClient, 0x11));
  ASSERT_EQ(table.known().list.count, 1u);
  EXPECT_EQ(table.known().list.handles[0], 0x22u);
}

TEST(ChannelGroupTable, AParentTakesItsGroupsAlong) {
  ChannelGroupTable table;
  table.made({7, kClient, kDevice, 0x11});
  table.made({7, kClient, kDevice + 1, 0x22});
  EXPECT_TRUE(table.freed(kClient, kDevice));
  ASSERT_EQ(table.known().list.count, 1u);
  EXPECT_EQ(table.known().list.handles[0], 0x22u);
  EXPECT_TRUE(table.freed(kClient, kClient));
  EXPECT_EQ(table.known().list.count, 0u);
}

TEST(ChannelGroupTable, NothingIsSaidWhereNotAllCanBe) {
  ChannelGroupTable table;
  for (uint32_t i = 0; i < kChannelGroupsMax; ++i) table.made({7, kClient, kDevice, i + 1});
  EXPECT_EQ(table.known().list.count, kChannelGroupsMax);
  table.made({7, kClient, kDevice, 1000});
  EXPECT_EQ(table.known().list.count, 0u);
  EXPECT_TRUE(table.freed(kClient, 1));  // one of them is unknown still
  EXPECT_EQ(table.known().list.count, 0u);

  ChannelGroupTable two_clients;
  two_clients.made({7, kClient, kDevice, 0x11});
  two_clients.made({7, kClient + 1, kDevice, 0x22});
  EXPECT_EQ(two_clients.known().list.count, 0u);
  EXPECT_TRUE(two_clients.freed(kClient + 1, 0x22));
  EXPECT_EQ(two_clients.known().list.count, 1u);

  ChannelGroupTable two_descriptors;
  two_descriptors.made({7, kClient, kDevice, 0x11});
  two_descriptors.made({8, kClient, kDevice, 0x22});
  EXPECT_EQ(two_descriptors.known().list.count, 0u);

  two_clients.give_up();
  EXPECT_EQ(two_clients.known().list.count, 0u);
}

TEST(ChannelGroupTable, AnyThreadMayMakeSome) {
  ChannelGroupTable table;
  std::array<std::thread, 4> threads;
  for (uint32_t t = 0; t < threads.size(); ++t) {
    threads[t] = std::thread([&table, t] {
      for (uint32_t i = 0; i < 1000; ++i) {
        table.made({7, kClient, kDevice, t + 1});
        if (i == 999) break;
        EXPECT_TRUE(table.freed(kClient, t + 1));
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(table.known().list.count, threads.size());
}

// Calls to a driver that answers as it is told, and how often a change was told.
class WatchCallTest : public testing::Test {
 protected:
  void SetUp() override {
    returns = 0;
    result = 0;
    changes = 0;
    during = nullptr;
    sign_extended = false;
  }
  // As a caller with the number in an int passes it.
  static unsigned long extended(uint32_t request) {
    return sign_extended ? static_cast<unsigned long>(static_cast<int>(request)) : request;
  }
  template <typename Call>
  int call(unsigned number, Call& call) {
    return watch_call(
        &table_, 7, extended(nvidia::request<Call>(number)), &call,
        [](int descriptor, unsigned long, void* argument) {
          EXPECT_EQ(descriptor, 7);
          static_cast<Call*>(argument)->result = result;
          if (during) during();
          return returns;
        },
        [] { ++changes; });
  }
  template <typename Call>
  int alloc(uint32_t handle, uint32_t engine, uint32_t object_class = nvidia::kChannelGroupClass) {
    const nvidia::ChannelGroupParameters parameters{0, 0, 0, engine};
    Call made{};
    made.client = kClient;
    made.parent = kDevice;
    made.object = handle;
    made.object_class = object_class;
    made.parameters = reinterpret_cast<uint64_t>(&parameters);
    return call(nvidia::kAlloc, made);
  }
  int free_object(uint32_t handle) {
    nvidia::FreeCall freed{kClient, kDevice, handle, 0};
    return call(nvidia::kFree, freed);
  }
  uint32_t known() const { return table_.known().list.count; }

  inline static int returns = 0, changes = 0;
  inline static uint32_t result = 0;
  inline static bool sign_extended = false;
  inline static void (*during)() = nullptr;
  ChannelGroupTable table_;
};

TEST_F(WatchCallTest, BothFormsOfTheCallAreUnderstood) {
  EXPECT_EQ(alloc<nvidia::AllocCall>(0x11, 1), 0);
  EXPECT_EQ(alloc<nvidia::AllocCallWithRights>(0x22, 1), 0);
  ASSERT_EQ(known(), 2u);
  EXPECT_EQ(table_.known().list.client, kClient);
  EXPECT_EQ(table_.known().list.handles[1], 0x22u);
  EXPECT_EQ(table_.known().descriptor, 7);
  EXPECT_EQ(changes, 2);
  sign_extended = true;
  EXPECT_EQ(alloc<nvidia::AllocCallWithRights>(0x33, 1), 0);
  EXPECT_EQ(known(), 3u);
  free_object(0x33);
  EXPECT_EQ(known(), 2u);
}

TEST_F(WatchCallTest, WhatIsNoComputeGroupIsLeftAlone) {
  alloc<nvidia::AllocCall>(0x11, 0);
  alloc<nvidia::AllocCall>(0x11, 9);  // a copy engine
  alloc<nvidia::AllocCall>(0x11, 1, 0xa06f);
  result = 0x1f;
  alloc<nvidia::AllocCall>(0x11, 1);
  returns = -1;
  result = 0;
  EXPECT_EQ(alloc<nvidia::AllocCallWithRights>(0x11, 1), -1);
  EXPECT_EQ(known(), 0u);
  EXPECT_EQ(changes, 0);
  // A control, and calls of other sizes.
  nvidia::ControlCall control{.client = kClient, .object = nvidia::kChannelGroupClass};
  returns = 0;
  call(nvidia::kControl, control);
  struct Larger : nvidia::AllocCallWithRights {
    uint64_t more;
  } larger{};
  larger.object_class = nvidia::kChannelGroupClass;
  call(nvidia::kAlloc, larger);
  EXPECT_EQ(changes, 0);
}

TEST_F(WatchCallTest, AGroupIsForgottenBeforeItGoes) {
  alloc<nvidia::AllocCall>(0x11, 1);
  free_object(0x99);
  EXPECT_EQ(changes, 1);
  during = [] { EXPECT_EQ(changes, 2); };
  free_object(0x11);
  EXPECT_EQ(known(), 0u);
  EXPECT_EQ(changes, 2);
}

TEST_F(WatchCallTest, AGroupThatDoesNotGoMakesAllUnknown) {
  alloc<nvidia::AllocCall>(0x11, 1);
  alloc<nvidia::AllocCall>(0x22, 1);
  result = 0x3;
  free_object(0x11);
  EXPECT_EQ(known(), 0u);
  EXPECT_EQ(changes, 4);
}

TEST_F(WatchCallTest, CallsWithoutAnArgumentPass) {
  const auto pass_on = [](int, unsigned long, void* argument) { return argument ? 1 : 42; };
  EXPECT_EQ(watch_call(&table_, 7, nvidia::request<nvidia::FreeCall>(nvidia::kFree), nullptr, pass_on, [] {}), 42);
}

class ChannelGroupReporterTest : public testing::Test {
 protected:
  void SetUp() override {
    int pair[2];
    ASSERT_EQ(::socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, pair), 0);
    runner_.reset(pair[0]);
    session_.reset(pair[1]);
  }
  // The next list, with as many descriptors as it came with. -1: nothing came.
  int next(ChannelGroupList* list) {
    std::array<std::byte, 1024> buffer;
    const auto length = receive_packet(session_.get(), buffer, &fds_);
    if (!length.ok()) return -1;
    RunnerMessage message;
    EXPECT_EQ(length.value(), sizeof message + sizeof *list);
    std::memcpy(&message, buffer.data(), sizeof message);
    std::memcpy(list, buffer.data() + sizeof message, sizeof *list);
    EXPECT_EQ(message.type, RunnerMessageType::kChannelGroups);
    return static_cast<int>(fds_.size());
  }
  UniqueFd runner_, session_;
  std::vector<UniqueFd> fds_;
};

TEST_F(ChannelGroupReporterTest, WhoKnowsNoneSaysSoOnce) {
  ChannelGroupReporter reporter(runner_.get(), nullptr);
  reporter.report();
  reporter.report();
  ChannelGroupList list;
  EXPECT_EQ(next(&list), 0);
  EXPECT_EQ(list.count, 0u);
  EXPECT_EQ(next(&list), -1);
}

TEST_F(ChannelGroupReporterTest, ChangesAreSaidWithTheDescriptor) {
  const UniqueFd device(::eventfd(5, EFD_CLOEXEC));
  ChannelGroupTable table;
  ChannelGroupReporter reporter(runner_.get(), &table);
  ChannelGroupList list;
  table.made({device.get(), kClient, kDevice, 0x11});
  reporter.report();
  ASSERT_EQ(next(&list), 1);
  EXPECT_EQ(list.count, 1u);
  EXPECT_EQ(list.handles[0], 0x11u);
  uint64_t value = 0;
  ASSERT_EQ(::read(fds_[0].get(), &value, sizeof value), static_cast<ssize_t>(sizeof value));  // the same file
  EXPECT_EQ(value, 5u);
  reporter.report();
  EXPECT_EQ(next(&list), -1);
  table.freed(kClient, 0x11);
  reporter.report();
  EXPECT_EQ(next(&list), 0);
  EXPECT_EQ(list.count, 0u);
}

TEST_F(ChannelGroupReporterTest, ASessionThatIsGoneDoesNoHarm) {
  ChannelGroupTable table;
  ChannelGroupReporter reporter(runner_.get(), &table);
  session_.reset();
  table.made({runner_.get(), kClient, kDevice, 0x11});
  reporter.report();
}

}  // namespace
}  // namespace bandsaw::runner
