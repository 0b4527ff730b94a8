// Who waits for the GPU, with a driver of our own: events that are done when the test says so.
#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <latch>
#include <thread>

#include "backend/device/cuda/adaptive_wait.h"
#include "backend/device/cuda/completions.h"
#include "backend/device/cuda/waiter.h"
#include "tests/unit/cuda/counting_host.h"

namespace bandsaw::cuda {
namespace {

using std::chrono::milliseconds;

// True once `what` came true; false after two seconds.
template <typename What>
bool soon(What what) {
  const auto until = std::chrono::steady_clock::now() + milliseconds(2000);
  while (!what()) {
    if (std::chrono::steady_clock::now() > until) return false;
    std::this_thread::yield();
  }
  return true;
}

TEST(Waiter, RunsEveryCallOfEveryThread) {
  std::atomic<int> ran{0};
  {
    Waiter waiter;
    std::vector<std::thread> threads;
    for (int i = 0; i < 4; ++i) {
      threads.emplace_back([&] {
        for (int call = 0; call < 500; ++call) waiter.run([&] { ++ran; });
      });
    }
    for (std::thread& thread : threads) thread.join();
  }
  EXPECT_EQ(ran, 2000);
}

TEST(Waiter, BlockedCallsDoNotHoldOthersUp) {
  Waiter waiter;
  std::latch go{1};
  std::atomic<int> blocked{0}, free{0};
  for (int i = 0; i < 8; ++i) {
    waiter.run([&] {
      ++blocked;
      go.wait();
    });
  }
  EXPECT_TRUE(soon([&] { return blocked == 8; }));
  waiter.run([&] { ++free; });
  EXPECT_TRUE(soon([&] { return free == 1; }));
  go.count_down();
}

TEST(Waiter, WakesAThreadThatSleeps) {
  Waiter waiter;
  std::atomic<int> ran{0};
  for (int i = 1; i <= 3; ++i) {
    waiter.run([&] { ++ran; });
    EXPECT_TRUE(soon([&] { return ran == i; }));
    std::this_thread::sleep_for(milliseconds(2));  // longer than it polls
  }
}

TEST(WaitLengths, ThoseThatAreAlikeSayWhenTheNextOneEnds) {
  WaitLengths lengths;
  EXPECT_FALSE(lengths.next().holds(milliseconds(32)));
  lengths.ended(milliseconds(32));
  EXPECT_FALSE(lengths.next().holds(milliseconds(32)));
  lengths.ended(std::chrono::microseconds(32500));
  EXPECT_FALSE(lengths.next().holds(milliseconds(31)));
  EXPECT_TRUE(lengths.next().holds(milliseconds(32)));
  EXPECT_TRUE(lengths.next().holds(milliseconds(33)));
  EXPECT_FALSE(lengths.next().holds(milliseconds(34)));
  lengths.ended(milliseconds(10));
  EXPECT_FALSE(lengths.next().holds(milliseconds(10)));
}

TEST(AdaptiveWait, NearTheEndOfAWaitCallsAreExpected) {
  using Clock = std::chrono::steady_clock;
  struct Host final : CountingHost {
    void expect_calls(Clock::time_point latest) override {
      told = Clock::now();
      until = latest;
    }
    Clock::time_point told, until;
  } host;
  for (int i = 0; i < 20 && host.told == Clock::time_point{}; ++i) {  // who does not get the core misses that
    WaitLengths lengths;
    for (int waits = 0; waits < 2; ++waits) lengths.ended(milliseconds(20));
    const auto begun = Clock::now();
    AdaptiveWait waiting(&lengths, &host);
    while (Clock::now() - begun < milliseconds(22)) waiting.pass();
    if (host.told == Clock::time_point{}) continue;
    EXPECT_GE(host.told - begun, milliseconds(19));
    EXPECT_GE(host.until - begun, milliseconds(20));
  }
  EXPECT_NE(host.told, Clock::time_point{});
}

// Events are numbers: an event is done when `done_up_to` has reached it.
std::atomic<uint64_t> last_event{0}, done_up_to{0};
std::atomic<CUresult> failure{CUDA_SUCCESS};

std::shared_ptr<const Driver> fake_driver() {
  auto driver = std::make_shared<Driver>();
  last_event = done_up_to = 0;
  failure = CUDA_SUCCESS;
  driver->cuEventCreate = [](CUevent* event, unsigned) {
    *event = reinterpret_cast<CUevent>(++last_event);
    return CUDA_SUCCESS;
  };
  driver->cuEventRecordWithFlags = [](CUevent, CUstream, unsigned) { return CUDA_SUCCESS; };
  driver->cuEventQuery = [](CUevent event) {
    if (failure != CUDA_SUCCESS) return failure.load();
    return reinterpret_cast<uint64_t>(event) <= done_up_to ? CUDA_SUCCESS : CUDA_ERROR_NOT_READY;
  };
  return driver;
}

class CompletionsTest : public testing::Test {
 protected:
  std::shared_ptr<CudaStream> stream() { return std::make_shared<CudaStream>(driver_, nullptr, context_, false); }

  const std::shared_ptr<const Driver> driver_ = fake_driver();
  const CudaContextRef context_ = std::make_shared<CudaContext>(nullptr, false);
  Completions completions_{driver_};
};

TEST_F(CompletionsTest, ComeInTheOrderOfTheStream) {
  const auto on = stream();
  std::vector<int> order;
  std::atomic<int> count{0};
  for (int i = 0; i < 3; ++i) {
    ASSERT_EQ(completions_.after(on,
                                 [&, i](CUresult result) {
                                   EXPECT_EQ(result, CUDA_SUCCESS);
                                   order.push_back(i);
                                   ++count;
                                 }),
              CUDA_SUCCESS);
  }
  std::this_thread::sleep_for(milliseconds(5));
  EXPECT_EQ(count, 0);
  done_up_to = 2;
  EXPECT_TRUE(soon([&] { return count == 2; }));
  done_up_to = 3;
  EXPECT_TRUE(soon([&] { return count == 3; }));
  EXPECT_EQ(order, (std::vector<int>{0, 1, 2}));
}

TEST_F(CompletionsTest, AnEventOfTheCallersIsNotUsedAgain) {
  const auto on = stream();
  const auto mine = reinterpret_cast<CUevent>(++last_event);
  std::atomic<int> reached{0};
  completions_.when_reached(mine, on, [&](CUresult result) { reached += result == CUDA_SUCCESS; });
  std::this_thread::sleep_for(milliseconds(5));
  EXPECT_EQ(reached, 0);
  done_up_to = 1;
  EXPECT_TRUE(soon([&] { return reached == 1; }));
  ASSERT_EQ(completions_.after(on, [&](CUresult) { ++reached; }), CUDA_SUCCESS);
  EXPECT_EQ(last_event, 2u) << "it has made one of its own";
  done_up_to = 2;
  EXPECT_TRUE(soon([&] { return reached == 2; }));
}

TEST_F(CompletionsTest, AStreamDoesNotHoldAnotherUp) {
  std::atomic<int> second{0};
  ASSERT_EQ(completions_.after(stream(), [](CUresult) {}), CUDA_SUCCESS);
  ASSERT_EQ(completions_.after(stream(), [](CUresult) {}), CUDA_SUCCESS);
  const auto on = stream();
  ASSERT_EQ(completions_.after(on, [&](CUresult) { ++second; }), CUDA_SUCCESS);
  done_up_to = 3;
  EXPECT_TRUE(soon([&] { return second == 1; }));
}

TEST_F(CompletionsTest, TellOfErrorsAndOfContextsThatAreGone) {
  std::atomic<int> failed{0}, gone{0};
  ASSERT_EQ(completions_.after(stream(), [&](CUresult result) { failed += result == CUDA_ERROR_ILLEGAL_ADDRESS; }),
            CUDA_SUCCESS);
  failure = CUDA_ERROR_ILLEGAL_ADDRESS;
  EXPECT_TRUE(soon([&] { return failed == 1; }));
  failure = CUDA_SUCCESS;
  ASSERT_EQ(completions_.after(stream(), [&](CUresult result) { gone += result == CUDA_ERROR_CONTEXT_IS_DESTROYED; }),
            CUDA_SUCCESS);
  context_->alive = false;
  EXPECT_TRUE(soon([&] { return gone == 1; }));
}

}  // namespace
}  // namespace bandsaw::cuda
