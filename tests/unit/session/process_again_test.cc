// Processes whose runners end while all that these had is in a file.
#include <gtest/gtest.h>

#include "backend/control/event_ptr.h"
#include "backend/session/process.h"
#include "guest-driver/uapi/vgpu_ring.h"
#include "tests/unit/session/fake_runner.h"

namespace bandsaw {
namespace {

constexpr uint64_t kMemory = 64u << 20;

class AwayTest : public ::testing::Test {
 protected:
  // A process with a ring and a region, whose runner has ended while what it had is in a file.
  void SetUp() override {
    ProcessesConfig config;
    config.replaceable = [this](const ReturnKey& key) { return in_file && key != ReturnKey{}; };
    config.has = [this](const ReturnKey& key) { return processes->has(key); };
    config.ended = [this](const ReturnKey& key) { ended.push_back(key); };
    config.vgpu = "test";
    processes = std::make_unique<Processes>(base.get(), config, &source, &usage_page, &watcher);
    ASSERT_TRUE(processes->add_ram(make_ram(1, 0, kMemory)).ok());
    ask(create_process(1));
    ASSERT_EQ(answered(), 0);
    key_of_one = told;
    for (const uint32_t type : {VGPU_CTL_ADD_RING, VGPU_CTL_ADD_REGION}) {
      ask(add(type, 1, 5, 0x10000, {{0, VGPU_RING_BYTES}}));
      ASSERT_EQ(answered(), 0);
    }
  }
  static std::vector<std::byte> return_process(uint32_t process, const ReturnKey& key,
                                               uint64_t base = VGPU_WINDOW_BASE_0) {
    vgpu_ctl_return_process request{};
    request.create.header = {VGPU_CTL_RETURN_PROCESS, process};
    std::copy(key.begin(), key.end(), request.key);
    request.window_base = base;
    return bytes_of(request);
  }
  void TearDown() override { processes.reset(); }  // it tells of its processes' ends
  // The status of the answer; -1 while there is none.
  int ask(const std::vector<std::byte>& bytes) {
    const auto answer = std::make_shared<int>(-1);
    processes->request(bytes, [this, answer](const vgpu_ctl_reply& reply, std::span<const int>) {
      *answer = static_cast<int>(reply.status);
      std::copy_n(reply.message, told.size(), told.begin());
    });
    pending = answer;
    return *answer;
  }
  int answered() {
    source.last().answer_all();
    return *pending;
  }
  void die() {
    source.last().die();
    ASSERT_EQ(processes->away().size(), 1u);
  }
  // Null: it has none yet, or there is none.
  Runner* revive() {
    const auto got = std::make_shared<Runner*>(nullptr);
    processes->away().at(0)->revive([this, got](const Result<Runner*>& runner) {
      status = runner.status();
      *got = runner.ok() ? runner.value() : nullptr;
    });
    source.last().answer_all();  // it stands still
    source.last().answer_all();  // and has all mappings
    return *got;
  }
  BasePtr base{event_base_new()};
  FakeSource source;
  UsagePageOwner usage_page = std::move(UsagePageOwner::open(kMemory).value());
  FakeWatcher watcher;
  std::unique_ptr<Processes> processes;
  std::shared_ptr<int> pending;
  ReturnKey told{}, key_of_one{};  // the answer's key
  std::vector<ReturnKey> ended;
  bool in_file = true;
  Status status;
};

TEST_F(AwayTest, AProcessWhoseRunnerIsInAFileGetsAnother) {
  die();
  EXPECT_TRUE(watcher.gone.empty());
  EXPECT_EQ(usage_page.taken(), 0u);
  EXPECT_EQ(ask(simple(VGPU_CTL_PING, 1)), 0);
  EXPECT_EQ(ask(simple(VGPU_CTL_KICK, 1)), 0);
  EXPECT_EQ(ask(add(VGPU_CTL_ADD_REGION, 1, 6, 0x90000, {{4096, 4096}})), -1) << "it waits";
  const auto waits = pending;
  FakeRunner* const before = &source.last();
  ASSERT_NE(revive(), nullptr) << status.message();
  FakeRunner& runner = source.last();
  ASSERT_NE(&runner, before);
  ASSERT_EQ(runner.messages.size(), 5u);
  const RunnerMessageType types[] = {RunnerMessageType::kAssign, RunnerMessageType::kRamAdd,
                                     RunnerMessageType::kStandstill, RunnerMessageType::kAddRing,
                                     RunnerMessageType::kAddRegion};
  for (size_t i = 0; i < 5; ++i) EXPECT_EQ(runner.messages[i].message.type, types[i]) << i;
  EXPECT_EQ(runner.messages[3].message.offset, kRingGoesOn);
  EXPECT_EQ(runner.messages[4].message.value, 0x10000u);
  EXPECT_EQ(runner.messages[4].segments.at(0).bytes, VGPU_RING_BYTES);
  processes->away().at(0)->revived(true);
  EXPECT_TRUE(processes->away().empty());
  EXPECT_EQ(runner.last().message.id, 6u) << "what has waited";
  runner.answer_all();
  EXPECT_EQ(*waits, 0);
}

TEST_F(AwayTest, WhatItsRunnerHasNotAnsweredIsForTheNext) {
  EXPECT_EQ(ask(add(VGPU_CTL_ADD_REGION, 1, 6, 0x90000, {{4096, 4096}})), -1);
  const auto adds = pending;
  EXPECT_EQ(ask(drop(VGPU_CTL_DROP_REGION, 1, 5)), -1);
  const auto drops = pending;
  die();
  EXPECT_EQ(*adds, -1);
  EXPECT_EQ(*drops, -1);
  ASSERT_NE(revive(), nullptr) << status.message();
  FakeRunner& runner = source.last();
  ASSERT_EQ(runner.messages.size(), 5u) << "the region that is to go too, and not the one that is still to come";
  processes->away().at(0)->revived(true);
  ASSERT_EQ(runner.messages.size(), 7u);
  EXPECT_EQ(runner.messages[5].message.type, RunnerMessageType::kAddRegion);
  EXPECT_EQ(runner.messages[5].message.id, 6u);
  EXPECT_EQ(runner.messages[6].message.type, RunnerMessageType::kDropRegion);
  runner.answer_all();
  EXPECT_EQ(*adds, 0);
  EXPECT_EQ(*drops, 0);
}

TEST_F(AwayTest, ItWaitsOnWhereANewRunnerFails) {
  die();
  ASSERT_NE(revive(), nullptr);
  processes->away().at(0)->revived(false);
  EXPECT_TRUE(source.last().killed);
  die();
  processes->away().at(0)->revive([this](const Result<Runner*>& runner) { status = runner.status(); });
  die();  // in the middle
  EXPECT_EQ(status.code(), EPIPE);
  EXPECT_TRUE(watcher.gone.empty());
  EXPECT_NE(revive(), nullptr);
}

TEST_F(AwayTest, ItsEndIsItsEnd) {
  die();
  EXPECT_EQ(ask(add(VGPU_CTL_ADD_REGION, 1, 6, 0x90000, {{4096, 4096}})), -1);
  const auto waits = pending;
  EXPECT_EQ(ask(simple(VGPU_CTL_DESTROY_PROCESS, 1)), 0);
  EXPECT_EQ(*waits, EPIPE);
  EXPECT_EQ(processes->count(), 0u);
}

TEST_F(AwayTest, WhoeverEndsNeedsNoFileAnyMore) {
  die();
  EXPECT_TRUE(ended.empty());
  processes->end_all(false, nullptr);
  EXPECT_EQ(ended, (std::vector<ReturnKey>{key_of_one}));
  ask(return_process(2, {1}));
  EXPECT_EQ(ask(simple(VGPU_CTL_DESTROY_PROCESS, 2)), 0);
  EXPECT_EQ(ended.back(), ReturnKey{1});
}

TEST_F(AwayTest, OneThatLeavesNeedsItsFileStill) {
  die();
  EXPECT_EQ(ask(add(VGPU_CTL_ADD_REGION, 1, 6, 0x90000, {{4096, 4096}})), -1);
  const auto waits = pending;
  EXPECT_EQ(ask(simple(VGPU_CTL_LEAVE_PROCESS, 1)), 0);
  EXPECT_EQ(*waits, EPIPE) << "what it asks for is asked again";
  EXPECT_EQ(processes->count(), 0u);
  EXPECT_TRUE(ended.empty());
  EXPECT_EQ(ask(return_process(7, key_of_one)), 0) << "under another number, as from another VM's kernel";
  EXPECT_EQ(told, key_of_one);
  EXPECT_EQ(ask(simple(VGPU_CTL_LEAVE_PROCESS, 7)), 0) << "it has not said what it has, and tries again";
  EXPECT_TRUE(ended.empty());
}

TEST_F(AwayTest, WhoLeavesWaitsForTheEndOfItsRunner) {
  source.last().stop(Runner::Stop::kKill);
  EXPECT_EQ(ask(simple(VGPU_CTL_LEAVE_PROCESS, 1)), -1);
  const auto waits = pending;
  EXPECT_EQ(ask(simple(VGPU_CTL_LEAVE_PROCESS, 1)), EBUSY);
  source.last().die();
  EXPECT_EQ(*waits, 0);
  EXPECT_EQ(processes->count(), 0u);
  EXPECT_TRUE(ended.empty());
}

TEST_F(AwayTest, NobodyLeavesWithWhatIsInNoFile) {
  EXPECT_EQ(ask(simple(VGPU_CTL_LEAVE_PROCESS, 1)), EBUSY) << "its runner lives";
  die();
  ASSERT_NE(revive(), nullptr);
  EXPECT_EQ(ask(simple(VGPU_CTL_LEAVE_PROCESS, 1)), EBUSY) << "it is on its way back";
  processes->away().at(0)->revived(true);
  in_file = false;
  source.last().stop(Runner::Stop::kKill);
  EXPECT_EQ(ask(simple(VGPU_CTL_LEAVE_PROCESS, 1)), EBUSY);
  EXPECT_EQ(ask(simple(VGPU_CTL_LEAVE_PROCESS, 9)), ENOENT);
}

TEST_F(AwayTest, OneThatIsInNoFileIsLost) {
  in_file = false;
  EXPECT_EQ(ask(add(VGPU_CTL_ADD_REGION, 1, 6, 0x90000, {{4096, 4096}})), -1);
  source.last().die();
  EXPECT_TRUE(processes->away().empty());
  EXPECT_EQ(watcher.gone, (std::vector<uint32_t>{1}));
  EXPECT_EQ(*pending, EPIPE);
}

TEST_F(AwayTest, OneOfAnotherSessionIsAwayOnceItHasSaidWhatItHas) {
  const ReturnKey key{1, 2, 3};
  ASSERT_EQ(ask(return_process(2, key)), 0);
  EXPECT_EQ(told, key);
  EXPECT_TRUE(processes->away().empty());
  EXPECT_EQ(ask(add(VGPU_CTL_ADD_RING, 2, 1, 0x10000, {{0, VGPU_RING_BYTES}})), 0);
  EXPECT_EQ(ask(add(VGPU_CTL_ADD_REGION, 2, 1, 0x90000, {{4096, 4096}})), 0);
  EXPECT_EQ(ask(drop(VGPU_CTL_DROP_REGION, 2, 1)), EAGAIN);
  EXPECT_EQ(ask(simple(VGPU_CTL_PING, 2)), 0);
  EXPECT_EQ(ask(simple(VGPU_CTL_KICK, 2)), 0);
  EXPECT_EQ(ask(simple(VGPU_CTL_ALL_ANNOUNCED, 2)), 0);
  EXPECT_EQ(processes->away().size(), 1u);
  EXPECT_EQ(ask(simple(VGPU_CTL_ALL_ANNOUNCED, 2)), EALREADY);
  EXPECT_EQ(ask(add(VGPU_CTL_ADD_REGION, 2, 2, 0x90000, {{8192, 4096}})), -1) << "it waits";
  EXPECT_EQ(source.runners.size(), 1u) << "it needs no runner";
  ASSERT_NE(revive(), nullptr) << status.message();
  const FakeRunner& runner = source.last();
  ASSERT_EQ(runner.messages.size(), 5u);
  EXPECT_EQ(runner.messages[3].message.type, RunnerMessageType::kAddRing);
  EXPECT_EQ(runner.messages[3].message.offset, kRingGoesOn);
  EXPECT_EQ(runner.messages[4].segments.at(0).offset, 4096u);
  EXPECT_EQ(runner.served().key, key);
  processes->away().at(0)->revived(true);
  EXPECT_TRUE(processes->away().empty());
}

TEST_F(AwayTest, NobodyComesBackAsAnother) {
  EXPECT_EQ(ask(return_process(2, key_of_one)), EEXIST) << "who lives";
  EXPECT_EQ(ask(return_process(2, ReturnKey{})), EINVAL) << "no key";
  EXPECT_EQ(ask(return_process(2, {1}, 0x1000)), EINVAL) << "an address that no window has";
  EXPECT_EQ(ask(return_process(2, {1})), 0);
  EXPECT_EQ(ask(return_process(3, {1})), EEXIST) << "who has come before";
  EXPECT_EQ(processes->count(), 2u);
}

TEST_F(AwayTest, WhatARunnerWouldRefuseIsRefusedAtOnce) {
  ASSERT_EQ(ask(return_process(2, {1})), 0);
  EXPECT_EQ(ask(add(VGPU_CTL_ADD_REGION, 2, 1, 0x90000, {{kMemory, 4096}})), EFAULT) << "no RAM of its";
  EXPECT_EQ(ask(add(VGPU_CTL_ADD_REGION, 2, 1, VGPU_WINDOW_BASE_0 + VGPU_WINDOW_DEVICE_OFFSET - 4096, {{0, 8192}},
                    VGPU_REGION_DEVICE_VISIBLE)),
            EINVAL)
      << "device memory's addresses";
  EXPECT_EQ(ask(add(VGPU_CTL_ADD_RING, 2, 1, 0x10000, {{0, 4096}})), EINVAL);
}

}  // namespace
}  // namespace bandsaw
