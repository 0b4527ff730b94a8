#include "backend/session/processes.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <nlohmann/json.hpp>

#include "backend/control/event_ptr.h"
#include "guest-driver/uapi/vgpu_ring.h"
#include "tests/unit/session/fake_runner.h"

namespace bandsaw {
namespace {

constexpr uint64_t kRam = 64u << 20;
constexpr uint64_t kBase = VGPU_WINDOW_BASE_0;
constexpr uint32_t kVisible = VGPU_REGION_DEVICE_VISIBLE;

class ProcessesTest : public ::testing::Test {
 protected:
  void SetUp() override { make({}); }
  void make(ProcessesConfig config) {
    processes.reset();
    config.vgpu = "test";
    processes = std::make_unique<Processes>(base.get(), config, &source, &usage_page, &watcher);
    if (!config.direct) {
      ASSERT_TRUE(processes->add_ram(make_ram(1, 0, kRam)).ok());
    }
  }
  // The status of the answer; -1 while there is none.
  int ask(const std::vector<std::byte>& bytes, UniqueFd arena = {}) {
    const auto status = std::make_shared<int>(-1);
    processes->request(
        bytes,
        [this, status](const vgpu_ctl_reply& reply, std::span<const int> fds) {
          EXPECT_EQ(*status, -1) << "answered twice";
          *status = static_cast<int>(reply.status);
          last = reply;
          last_fds.assign(fds.begin(), fds.end());
        },
        std::move(arena));
    pending = status;
    return *status;
  }
  int answered(int error = 0) {
    source.last().answer_all(error);
    return *pending;
  }
  void start(uint32_t process = 1) {
    ask(create_process(process));
    ASSERT_EQ(answered(), 0) << last.message;
  }

  BasePtr base{event_base_new()};
  FakeSource source;
  UsagePageOwner usage_page = std::move(UsagePageOwner::open(kRam).value());
  FakeWatcher watcher;
  std::unique_ptr<Processes> processes;
  std::shared_ptr<int> pending;
  vgpu_ctl_reply last{};
  std::vector<int> last_fds;
};

TEST_F(ProcessesTest, CreateAssignsARunnerAndGivesItTheRam) {
  EXPECT_EQ(ask(create_process(7)), -1);
  ASSERT_EQ(source.runners.size(), 1u);
  const FakeRunner& runner = source.last();
  ASSERT_EQ(runner.messages.size(), 2u);
  EXPECT_EQ(runner.messages[0].message.type, RunnerMessageType::kAssign);
  EXPECT_EQ(runner.messages[0].fds, 5u);
  EXPECT_EQ(runner.messages[1].message.type, RunnerMessageType::kRamAdd);
  EXPECT_EQ(answered(), 0);
  EXPECT_EQ(last.value, kBase);
  EXPECT_TRUE(last_fds.empty());
  EXPECT_EQ(usage_page.taken(), 1u);
}

TEST_F(ProcessesTest, CreateIsRefused) {
  EXPECT_EQ(ask(create_process(0)), EINVAL);
  EXPECT_EQ(ask(create_process(1, 2)), EPROTO);
  EXPECT_NE(std::string(last.message).find("release 0.2.0, the host of 0.0.0"), std::string::npos);
  start(1);
  EXPECT_EQ(ask(create_process(1)), EEXIST);
  source.fail = true;
  EXPECT_EQ(ask(create_process(2)), EIO);
  source.fail = false;
  ask(create_process(3));
  EXPECT_EQ(answered(ENOMEM), ENOMEM);
  EXPECT_TRUE(source.last().killed);
}

TEST_F(ProcessesTest, ProcessesAreLimited) {
  ProcessesConfig config;
  config.processes_max = 2;
  make(config);
  start(1);
  start(2);
  EXPECT_EQ(ask(create_process(3)), EAGAIN);
}

TEST_F(ProcessesTest, ALimitOfProcessesIsTheAdministrators) {
  ProcessesConfig config;
  config.limit = [] { return 1; };
  make(config);
  start(1);
  EXPECT_EQ(ask(create_process(2)), EAGAIN);
  EXPECT_NE(std::string(last.message).find("1 processes at once"), std::string::npos) << last.message;
}

TEST_F(ProcessesTest, RunnersAreLimitedByWhatTheyHold) {
  uint32_t most = 2;
  ProcessesConfig config;
  config.runners_max = [&] { return most; };
  make(config);
  start(1);
  start(2);
  EXPECT_EQ(ask(create_process(3)), EAGAIN);
  EXPECT_NE(std::string(last.message).find("good for 2 processes"), std::string::npos) << last.message;
  most = 3;
  start(3);
  source.last().die();
  EXPECT_EQ(usage_page.taken(), 2u);
}

TEST_F(ProcessesTest, DestroyAnswersWhenTheRunnerIsGone) {
  start();
  EXPECT_EQ(ask(simple(VGPU_CTL_DESTROY_PROCESS, 1)), -1);
  EXPECT_TRUE(source.last().asked);
  const auto first = pending;
  EXPECT_EQ(ask(simple(VGPU_CTL_DESTROY_PROCESS, 1)), -1);
  source.last().die();
  EXPECT_EQ(*first, 0);
  EXPECT_EQ(*pending, 0);
  EXPECT_EQ(processes->count(), 0u);
  EXPECT_EQ(usage_page.taken(), 0u);
  EXPECT_EQ(ask(simple(VGPU_CTL_DESTROY_PROCESS, 1)), ENOENT);
  EXPECT_TRUE(watcher.gone.empty());
}

TEST_F(ProcessesTest, DestroyBeforeARunnerCame) {
  source.hold = true;
  EXPECT_EQ(ask(create_process(1)), -1);
  const auto creating = pending;
  EXPECT_EQ(ask(simple(VGPU_CTL_KICK, 1)), EAGAIN);
  EXPECT_EQ(ask(simple(VGPU_CTL_DESTROY_PROCESS, 1)), 0);
  source.release();
  EXPECT_EQ(*creating, EPIPE);
  EXPECT_TRUE(source.last().asked);
  EXPECT_EQ(usage_page.taken(), 0u);
}

TEST_F(ProcessesTest, UnknownProcess) {
  for (const uint32_t type : {VGPU_CTL_DESTROY_PROCESS, VGPU_CTL_KICK, VGPU_CTL_PING}) {
    EXPECT_EQ(ask(simple(type, 5)), ENOENT);
  }
  EXPECT_EQ(ask(add(VGPU_CTL_ADD_RING, 5, 0, 0, {{0, VGPU_RING_BYTES}})), ENOENT);
  EXPECT_EQ(ask(drop(VGPU_CTL_DROP_REGION, 5, 0)), ENOENT);
  EXPECT_EQ(ask(simple(VGPU_CTL_PING, 0)), 0);
}

TEST_F(ProcessesTest, RingsAreForwardedAndCounted) {
  start();
  for (uint32_t id = 0; id < VGPU_RINGS_MAX; ++id) {
    ask(add(VGPU_CTL_ADD_RING, 1, id, 0, {{0, VGPU_RING_BYTES}}));
    ASSERT_EQ(answered(), 0);
  }
  EXPECT_EQ(source.last().last().message.type, RunnerMessageType::kAddRing);
  EXPECT_EQ(source.last().last().message.id, VGPU_RINGS_MAX - 1);
  EXPECT_EQ(ask(add(VGPU_CTL_ADD_RING, 1, 5000, 0, {{0, VGPU_RING_BYTES}})), ENOSPC);
  EXPECT_EQ(ask(add(VGPU_CTL_ADD_RING, 1, 7, 0, {{0, VGPU_RING_BYTES}})), EEXIST);
  ask(drop(VGPU_CTL_DROP_RING, 1, 7));
  EXPECT_EQ(answered(), 0);
  ask(add(VGPU_CTL_ADD_RING, 1, 7, 0, {{0, VGPU_RING_BYTES}}));
  EXPECT_EQ(answered(), 0);
}

TEST_F(ProcessesTest, SegmentsMustLieInRam) {
  start();
  EXPECT_EQ(ask(add(VGPU_CTL_ADD_REGION, 1, 1, 4096, {{kRam, 4096}})), EFAULT);
  EXPECT_EQ(ask(add(VGPU_CTL_ADD_REGION, 1, 1, 4096, {{kRam - 4096, 8192}})), EFAULT);
  EXPECT_EQ(ask(add(VGPU_CTL_ADD_REGION, 1, 1, 4096, {{kRam - 4096, 4096}})), -1);
  EXPECT_EQ(answered(), 0);
  EXPECT_EQ(source.last().last().segments.at(0).offset, kRam - 4096);
}

TEST_F(ProcessesTest, VisibleRegionsInTheWindow) {
  start();
  const auto region = [&](uint32_t id, uint64_t va, uint64_t bytes, uint32_t flags = kVisible) {
    const int status = ask(add(VGPU_CTL_ADD_REGION, 1, id, va, {{0, bytes}}, flags));
    return status == -1 ? answered() : status;
  };
  EXPECT_EQ(region(1, kBase + 0x10000, 0x4000), 0);
  EXPECT_EQ(region(2, kBase + 0x10000, 0x1000), EEXIST);
  EXPECT_EQ(region(2, kBase + 0xf000, 0x2000), EEXIST);
  EXPECT_EQ(region(2, kBase + 0x13000, 0x2000), EEXIST);
  EXPECT_EQ(region(2, kBase + 0x14000, 0x1000), 0);
  EXPECT_EQ(region(3, kBase - 0x1000, 0x2000), EINVAL);
  EXPECT_EQ(region(3, kBase + VGPU_WINDOW_DEVICE_OFFSET - 0x1000, 0x2000), EINVAL);
  EXPECT_EQ(region(3, kBase + VGPU_WINDOW_DEVICE_OFFSET, 0x1000), EINVAL);
  EXPECT_EQ(region(3, kBase + VGPU_WINDOW_BYTES - 0x1000, 0x2000), EINVAL);
  EXPECT_EQ(region(3, kBase + VGPU_WINDOW_BYTES, 0x2000), 0);
  EXPECT_EQ(region(4, kBase + 0x10000, 0x1000, 0), 0);  // not visible: may lie anywhere
  ask(drop(VGPU_CTL_DROP_REGION, 1, 1));
  EXPECT_EQ(answered(), 0);
  EXPECT_EQ(region(5, kBase + 0x10000, 0x1000), 0);
}

TEST_F(ProcessesTest, RegionsAndSegmentsAreLimited) {
  ProcessesConfig config;
  config.regions_max = 2;
  config.segments_max = 5;
  make(config);
  start();
  ask(add(VGPU_CTL_ADD_REGION, 1, 1, 4096, {{0, 4096}, {8192, 4096}, {0, 4096}}));
  EXPECT_EQ(answered(), 0);
  EXPECT_EQ(ask(add(VGPU_CTL_ADD_REGION, 1, 2, 4096, {{0, 4096}, {0, 4096}, {0, 4096}})), ENOSPC);
  ask(add(VGPU_CTL_ADD_REGION, 1, 2, 4096, {{0, 4096}, {0, 4096}}));
  EXPECT_EQ(answered(), 0);
  EXPECT_EQ(ask(add(VGPU_CTL_ADD_REGION, 1, 3, 4096, {{0, 4096}})), ENOSPC);
  ask(drop(VGPU_CTL_DROP_REGION, 1, 1));
  EXPECT_EQ(answered(), 0);
  ask(add(VGPU_CTL_ADD_REGION, 1, 3, 4096, {{0, 4096}, {0, 4096}, {0, 4096}}));
  EXPECT_EQ(answered(), 0);
}

TEST_F(ProcessesTest, DropsAreCheckedAndAnIdIsFreeOnlyAfterwards) {
  start();
  EXPECT_EQ(ask(drop(VGPU_CTL_DROP_REGION, 1, 1)), ENOENT);
  ask(add(VGPU_CTL_ADD_REGION, 1, 1, 4096, {{0, 4096}}));
  answered();
  EXPECT_EQ(ask(drop(VGPU_CTL_DROP_RING, 1, 1)), ENOENT);
  EXPECT_EQ(ask(drop(VGPU_CTL_DROP_REGION, 1, 1)), -1);
  const auto dropping = pending;
  EXPECT_EQ(ask(drop(VGPU_CTL_DROP_REGION, 1, 1)), ENOENT);
  EXPECT_EQ(ask(add(VGPU_CTL_ADD_REGION, 1, 1, 4096, {{0, 4096}})), EEXIST);
  source.last().answer_all();
  EXPECT_EQ(*dropping, 0);
}

TEST_F(ProcessesTest, AFailedAddIsForgotten) {
  start();
  ask(add(VGPU_CTL_ADD_REGION, 1, 1, kBase + 4096, {{0, 4096}}, kVisible));
  EXPECT_EQ(answered(ENOMEM), ENOMEM);
  ask(add(VGPU_CTL_ADD_REGION, 1, 1, kBase + 4096, {{0, 4096}}, kVisible));
  EXPECT_EQ(answered(), 0);
}

TEST_F(ProcessesTest, UnansweredRequestsAreLimited) {
  ProcessesConfig config;
  config.outstanding_max = 3;
  make(config);
  start();
  for (uint32_t id = 0; id < 3; ++id) EXPECT_EQ(ask(add(VGPU_CTL_ADD_REGION, 1, id, 4096, {{0, 4096}})), -1);
  EXPECT_EQ(ask(add(VGPU_CTL_ADD_REGION, 1, 9, 4096, {{0, 4096}})), EBUSY);
  source.last().answer_all();
  EXPECT_EQ(ask(add(VGPU_CTL_ADD_REGION, 1, 9, 4096, {{0, 4096}})), -1);
}

TEST_F(ProcessesTest, ADyingRunnerTakesOnlyItsProcess) {
  start(1);
  FakeRunner& first = source.last();
  start(2);
  first.answer_all();
  EXPECT_EQ(ask(add(VGPU_CTL_ADD_REGION, 1, 1, 4096, {{0, 4096}})), -1);
  first.die();
  EXPECT_EQ(*pending, EPIPE);
  EXPECT_EQ(watcher.gone, (std::vector<uint32_t>{1}));
  EXPECT_EQ(ask(simple(VGPU_CTL_PING, 1)), EPIPE);
  EXPECT_EQ(ask(simple(VGPU_CTL_KICK, 1)), EPIPE);
  EXPECT_EQ(ask(add(VGPU_CTL_ADD_REGION, 1, 2, 4096, {{0, 4096}})), EPIPE);
  EXPECT_EQ(ask(create_process(1)), EEXIST);
  EXPECT_EQ(ask(simple(VGPU_CTL_PING, 2)), 0);
  EXPECT_EQ(usage_page.taken(), 1u);
  EXPECT_EQ(ask(simple(VGPU_CTL_DESTROY_PROCESS, 1)), 0);
  start(1);
}

TEST_F(ProcessesTest, RamThatGoesIsTakenFromRunners) {
  start(1);
  ASSERT_TRUE(processes->add_ram(make_ram(2, kRam, kRam)).ok());
  FakeRunner& user = source.last();
  EXPECT_EQ(user.last().message.type, RunnerMessageType::kRamAdd);
  ask(add(VGPU_CTL_ADD_REGION, 1, 1, 4096, {{kRam, 4096}}));
  answered();
  start(2);
  FakeRunner& other = source.last();
  bool done = false;
  processes->remove_ram(2, [&] { done = true; });
  EXPECT_TRUE(user.killed);  // a region of it was in use
  EXPECT_FALSE(other.killed);
  EXPECT_EQ(other.last().message.type, RunnerMessageType::kRamDrop);
  user.die();
  EXPECT_FALSE(done);
  other.answer_all();
  EXPECT_TRUE(done);
  EXPECT_EQ(watcher.gone, (std::vector<uint32_t>{1}));
  EXPECT_EQ(ask(add(VGPU_CTL_ADD_REGION, 2, 1, 4096, {{kRam, 4096}})), EFAULT);
}

TEST_F(ProcessesTest, RamOfNobodyGoesAtOnce) {
  bool done = false;
  processes->remove_ram(1, [&] { done = true; });
  EXPECT_TRUE(done);
}

TEST_F(ProcessesTest, AResetEndsAllAndKeepsTheRam) {
  start(1);
  start(2);
  bool done = false;
  processes->end_all(false, [&] { done = true; });
  EXPECT_FALSE(done);
  for (const auto& runner : source.runners) {
    EXPECT_TRUE(runner->killed);
    runner->die();
  }
  EXPECT_TRUE(done);
  EXPECT_TRUE(watcher.gone.empty());
  EXPECT_EQ(processes->count(), 0u);
  start(1);
  ask(add(VGPU_CTL_ADD_REGION, 1, 1, 4096, {{0, 4096}}));
  EXPECT_EQ(answered(), 0);
}

TEST_F(ProcessesTest, ADisconnectForgetsTheRam) {
  start(1);
  processes->end_all(true, nullptr);
  source.last().die();
  start(1);
  EXPECT_EQ(ask(add(VGPU_CTL_ADD_REGION, 1, 1, 4096, {{0, 4096}})), EFAULT);
}

TEST_F(ProcessesTest, AnswersOutliveTheProcesses) {
  start(1);
  EXPECT_EQ(ask(add(VGPU_CTL_ADD_REGION, 1, 1, 4096, {{0, 4096}})), -1);
  processes.reset();
  EXPECT_TRUE(source.last().asked);
  source.last().die();
  EXPECT_EQ(*pending, EPIPE);
  EXPECT_EQ(usage_page.taken(), 0u);
}

TEST_F(ProcessesTest, DirectModeHandsOutArenaAndKick) {
  ProcessesConfig config;
  config.direct = true;
  config.arena_bytes = 16u << 20;
  make(config);
  ask(create_process(1));
  EXPECT_EQ(source.last().last().fds, 6u);
  EXPECT_EQ(answered(), 0);
  ASSERT_EQ(last_fds.size(), 2u);
  ask(add(VGPU_CTL_ADD_RING, 1, 0, 0, {{0, VGPU_RING_BYTES}}));
  EXPECT_EQ(answered(), 0);
  EXPECT_EQ(ask(add(VGPU_CTL_ADD_RING, 1, 1, 0, {{(16u << 20) - 4096, VGPU_RING_BYTES}})), EFAULT);
  EXPECT_EQ(ask(add(VGPU_CTL_ADD_REGION, 1, 1, kBase + 4096, {{8192, 4096}}, kVisible)), EINVAL);
  ask(add(VGPU_CTL_ADD_REGION, 1, 1, kBase + 4096, {{4096, 4096}, {8192, 4096}}, kVisible));
  EXPECT_EQ(answered(), 0);
  ask(simple(VGPU_CTL_DESTROY_PROCESS, 1));
  source.last().die();
  start(1);  // the arena of the first is no obstacle
}

UniqueFd memory_file(uint64_t bytes, int seals) {
  UniqueFd fd(memfd_create("test", MFD_CLOEXEC | MFD_ALLOW_SEALING));
  EXPECT_EQ(ftruncate(fd.get(), static_cast<off_t>(bytes)), 0);
  EXPECT_EQ(fcntl(fd.get(), F_ADD_SEALS, seals), 0);
  return fd;
}

TEST_F(ProcessesTest, DirectModeTakesTheArenaOfAnotherVirtualGpuAndNothingElse) {
  constexpr int kSeals = F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL;
  ProcessesConfig config;
  config.direct = true;
  config.arena_bytes = 16u << 20;
  make(config);
  EXPECT_EQ(ask(create_process(1), memory_file(config.arena_bytes, F_SEAL_GROW)), EINVAL) << "it may shrink";
  EXPECT_EQ(ask(create_process(1), memory_file(config.arena_bytes, kSeals | F_SEAL_FUTURE_WRITE)), EINVAL);
  EXPECT_EQ(ask(create_process(1), memory_file(config.arena_bytes / 2, kSeals)), EINVAL);
  EXPECT_EQ(ask(create_process(1), UniqueFd(open("/dev/null", O_RDWR | O_CLOEXEC))), EINVAL);
  EXPECT_TRUE(source.runners.empty());
  UniqueFd arena = memory_file(config.arena_bytes, kSeals);
  struct stat ours{}, given{};
  ASSERT_EQ(fstat(arena.get(), &ours), 0);
  ask(create_process(1), std::move(arena));
  ASSERT_EQ(answered(), 0);
  ASSERT_EQ(last_fds.size(), 2u);
  ASSERT_EQ(fstat(last_fds[0], &given), 0);
  EXPECT_EQ(given.st_ino, ours.st_ino);
}

TEST_F(ProcessesTest, DirectModeTakesPagesOfAFileInMemory) {
  ProcessesConfig config;
  config.direct = true;
  config.arena_bytes = 16u << 20;
  make(config);
  start(1);
  constexpr uint64_t kOutside = kBase - (1u << 20);
  const auto region = [&](uint32_t id, uint64_t va, uint64_t offset, uint64_t bytes,
                          uint32_t flags = kVisible | VGPU_REGION_OF_FILE) {
    return add(VGPU_CTL_ADD_REGION, 1, id, va, {{offset, bytes}}, flags);
  };
  ask(region(1, kOutside, 4096, 8192), memory_file(3 * 4096 - 100, 0));  // the last page is whole
  EXPECT_EQ(answered(), 0) << last.message;
  ask(region(2, kBase + 4096, 0, 4096), memory_file(4096, 0));
  EXPECT_EQ(answered(), 0) << last.message;
  EXPECT_EQ(ask(region(3, kBase + 4096, 0, 4096), memory_file(4096, 0)), EEXIST) << "another region is there";
  EXPECT_EQ(ask(region(3, kOutside, 8192, 8192), memory_file(3 * 4096, 0)), EINVAL) << "beyond the file";
  EXPECT_EQ(ask(region(3, kOutside, 0, 4096), UniqueFd(open("/dev/null", O_RDWR | O_CLOEXEC))), EINVAL);
  EXPECT_EQ(ask(region(3, kOutside, 0, 4096), UniqueFd(open("/proc/self/maps", O_RDONLY | O_CLOEXEC))), EINVAL);
  EXPECT_EQ(ask(region(3, kOutside, 0, 4096)), EINVAL) << "no file came";
  EXPECT_EQ(ask(region(3, kOutside, 0, 4096, kVisible), memory_file(4096, 0)), EINVAL) << "a file came unasked";
}

TEST_F(ProcessesTest, AVmsProcessBringsNoFiles) {
  start(1);
  EXPECT_EQ(ask(add(VGPU_CTL_ADD_REGION, 1, 1, 4096, {{0, 4096}}, VGPU_REGION_OF_FILE), memory_file(4096, 0)), EINVAL);
  EXPECT_EQ(ask(add(VGPU_CTL_ADD_REGION, 1, 1, 4096, {{0, 4096}}, VGPU_REGION_OF_FILE)), EINVAL);
}

TEST_F(ProcessesTest, AVmsProcessBringsNoArena) {
  EXPECT_EQ(ask(create_process(1), memory_file(4096, F_SEAL_SHRINK)), EINVAL);
}

TEST_F(ProcessesTest, ThePartOfTheWindowIsCheckedPassedOnAndRepeated) {
  EXPECT_EQ(ask(create_process(1, 0, VGPU_WINDOW_PARTS)), EINVAL);
  EXPECT_EQ(ask(create_process(1, 0, VGPU_WINDOW_TAKEN_MASK << VGPU_WINDOW_TAKEN_SHIFT)), EINVAL);
  ask(create_process(1, 0, VGPU_WINDOW_PARTS - 1));
  EXPECT_EQ(answered(), 0);
  EXPECT_EQ(last.schema.part, VGPU_WINDOW_PARTS - 1);
}

// The scheduler reads priorities at the gates; of a program that is reniced they change, back to 0 too.
TEST_F(ProcessesTest, ARenicedProcessHasAnotherPriorityAtItsGates) {
  start(3);
  auto* const page = static_cast<UsagePage*>(
      ::mmap(nullptr, sizeof(UsagePage), PROT_READ | PROT_WRITE, MAP_SHARED, usage_page.fd(), 0));
  ASSERT_NE(page, MAP_FAILED);
  const int slot = processes->status()[0]["slot"];
  for (const int32_t nice : {7, -20, 0}) {
    vgpu_ctl_priority priority{};
    priority.header = {VGPU_CTL_PRIORITY, 3};
    priority.nice = static_cast<__le32>(nice);
    EXPECT_EQ(ask(bytes_of(priority)), 0);
    for (const Gate& gate : page->grant_page.gates[static_cast<size_t>(slot)]) EXPECT_EQ(gate.priority, -nice);
    EXPECT_EQ(processes->status()[0].value("nice", 0), nice);
  }
  ::munmap(page, sizeof(UsagePage));
}

TEST_F(ProcessesTest, StatusNamesEachProcess) {
  start(3);
  const auto status = processes->status();
  ASSERT_EQ(status.size(), 1u);
  EXPECT_EQ(status[0]["process"], 3);
  EXPECT_EQ(status[0]["state"], "running");
  EXPECT_EQ(status[0]["runner"], 4711);
}

}  // namespace
}  // namespace bandsaw
