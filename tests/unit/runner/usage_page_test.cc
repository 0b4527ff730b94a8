// The usage page of a virtual GPU under several runners at once, some of which die; charges against it.
#include "backend/runner/memory/usage_page_view.h"

#include <gtest/gtest.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <thread>
#include <vector>

#include "memory/share.h"

namespace bandsaw::runner {
namespace {

constexpr int64_t kShare = 1000;

class UsagePageRace : public ::testing::Test {
 protected:
  UsagePageRace() : fd_(memfd_create("usage page", MFD_CLOEXEC)) {
    EXPECT_EQ(ftruncate(fd_.get(), sizeof(UsagePage)), 0);
    page_ = static_cast<UsagePage*>(mmap(nullptr, sizeof(UsagePage), PROT_READ | PROT_WRITE, MAP_SHARED, fd_.get(), 0));
    EXPECT_EQ(ftruncate(limits_fd_.get(), sizeof(LimitsPage)), 0);
    limits_ = static_cast<LimitsPage*>(
        mmap(nullptr, sizeof(LimitsPage), PROT_READ | PROT_WRITE, MAP_SHARED, limits_fd_.get(), 0));
    limits_->memory_share = kShare;
  }
  ~UsagePageRace() override {
    munmap(page_, sizeof(UsagePage));
    munmap(limits_, sizeof(LimitsPage));
  }

  UniqueFd fd_, limits_fd_{memfd_create("limits page", MFD_CLOEXEC)};
  LimitsPage* limits_ = nullptr;
  UsagePage* page_ = nullptr;
};

TEST_F(UsagePageRace, TheSumNeverPassesTheShare) {
  std::vector<std::thread> threads;
  std::atomic<int> running{4};
  for (uint32_t slot = 0; slot < 4; ++slot) {
    threads.emplace_back([&, slot] {
      UsagePageView view;
      ASSERT_TRUE(view.map(fd_, slot, limits_fd_).ok());
      for (int i = 0; i < 100'000; ++i) {
        const int64_t bytes = 100 + 200 * slot + i % 97;
        if (view.charge(bytes)) view.charge(-bytes);
      }
      --running;
    });
  }
  int64_t most = 0;
  while (running > 0) most = std::max(most, page_->memory_used.load());
  for (std::thread& thread : threads) thread.join();
  EXPECT_LE(most, kShare);
  EXPECT_EQ(page_->memory_used, 0);
  for (int slot = 0; slot < 4; ++slot) EXPECT_EQ(page_->slots[slot].memory_bytes, 0);
}

TEST_F(UsagePageRace, HostMemoryIsKeptWithinWhatIsLeftOfIt) {
  constexpr int64_t kMiB = 1 << 20;
  limits_->memory_share = 4096 * kMiB;
  limits_->memory_swap = 264 * kMiB;
  UsagePageView view, other;
  ASSERT_TRUE(view.map(fd_, 0, limits_fd_).ok() && other.map(fd_, 1, limits_fd_).ok());
  ASSERT_TRUE(view.charge_swapped(100 * kMiB));
  for (int i = 0; i < 5; ++i) EXPECT_TRUE(view.keep(32 * kMiB));
  EXPECT_FALSE(view.keep(32 * kMiB));
  EXPECT_TRUE(other.keep(128 * kMiB)) << "for its moves";
  EXPECT_FALSE(other.keep(1));
  EXPECT_TRUE(view.keep(-32 * kMiB));
  EXPECT_EQ(page_->kept, 256 * kMiB);
  view.release_all();
  other.release_all();
  EXPECT_EQ(page_->kept, 0);
}

TEST_F(UsagePageRace, ObjectsOfAllRunnersStayWithinTheLimit) {
  limits_->most[static_cast<size_t>(Limited::kStreams)] = 50;
  std::vector<std::thread> threads;
  std::atomic<int> most{0};
  for (uint32_t slot = 0; slot < 4; ++slot) {
    threads.emplace_back([&, slot] {
      UsagePageView view;
      ASSERT_TRUE(view.map(fd_, slot, limits_fd_).ok());
      for (int round = 0; round < 1000; ++round) {
        int held = 0;
        while (held < 20 && view.hold(Limited::kStreams)) ++held;
        most = std::max<int>(most, static_cast<int>(page_->held[static_cast<size_t>(Limited::kStreams)]));
        for (; held > 0; --held) view.let_go(Limited::kStreams);
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_LE(most, 50);
  EXPECT_EQ(page_->held[static_cast<size_t>(Limited::kStreams)], 0);
}

// Whenever a runner dies, what its slot says can be given back without lending the same bytes twice.
TEST_F(UsagePageRace, DeathsNeverMakeMemoryOutOfNothing) {
  for (int round = 0; round < 60; ++round) {
    const pid_t child = fork();
    if (child == 0) {
      UsagePageView view;
      if (!view.map(fd_, 0, limits_fd_).ok()) _exit(1);
      for (;;) {
        if (view.charge(300) && view.charge(200)) view.charge(-200);
        view.charge(-300);
      }
    }
    usleep(200 + 37 * static_cast<useconds_t>(round));
    kill(child, SIGKILL);
    waitpid(child, nullptr, 0);
    page_->memory_used -= page_->slots[0].memory_bytes.exchange(0);
    EXPECT_GE(page_->memory_used, 0);
    page_->memory_used = 0;  // as the last one's death does
  }
}

struct Host {
  bool charge_memory(int64_t bytes) {
    if (bytes > 0 && bytes > kShare - charged) return false;
    return charged += bytes, true;
  }
  int64_t charged = 0;
};

TEST(ChargeTest, HoldsWhatItWasGrantedAndGivesItBackOnce) {
  Host host;
  {
    Charge<Host> none, first(&host), second(&host);
    EXPECT_TRUE(none.resize(0));
    EXPECT_FALSE(none.resize(1));
    EXPECT_TRUE(first.resize(600));
    EXPECT_FALSE(second.resize(401));
    EXPECT_EQ(second.bytes(), 0u);
    EXPECT_TRUE(second.resize(400));
    EXPECT_FALSE(first.resize(601));
    EXPECT_FALSE(first.resize(~uint64_t{0}));
    EXPECT_FALSE(first.resize(uint64_t{1} << 63));
    EXPECT_EQ(first.bytes(), 600u);
    EXPECT_TRUE(first.resize(100));
    EXPECT_EQ(host.charged, 500);
    Charge<Host> moved(std::move(first));
    EXPECT_EQ(moved.bytes(), 100u);
    EXPECT_EQ(first.bytes(), 0u);
    second = std::move(moved);
    EXPECT_EQ(host.charged, 100);
  }
  EXPECT_EQ(host.charged, 0);
}

}  // namespace
}  // namespace bandsaw::runner
