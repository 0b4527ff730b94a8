// What a time slice is said to have taken, with a driver whose streams have clocks of their own.
#include <gtest/gtest.h>

#include <atomic>
#include <future>
#include <map>
#include <mutex>
#include <semaphore>
#include <set>

#include "backend/device/cuda/time_slice_meter.h"

namespace bandsaw::cuda {
namespace {

// What is taken off for the two events of each stream, and rounding.
constexpr double kEventsNs = 4e3;

// Streams are numbers; the time that each has reached, and the one at which each event was recorded, in microseconds.
struct Clocks {
  std::mutex mutex;
  std::map<CUstream, float> streams;
  std::map<CUevent, float> events;
  std::set<CUstream> destroyed;  // a real driver crashes of them
  uint64_t made = 0;
  CUresult outcome = CUDA_SUCCESS;
};
Clocks& clocks() {
  static Clocks the;
  return the;
}

DriverRef fake_driver() {
  auto driver = std::make_shared<Driver>();
  driver->cuEventCreate = [](CUevent* event, unsigned) {
    std::lock_guard lock(clocks().mutex);
    *event = reinterpret_cast<CUevent>(++clocks().made);
    return CUDA_SUCCESS;
  };
  driver->cuEventRecordWithFlags = [](CUevent event, CUstream stream, unsigned) {
    std::lock_guard lock(clocks().mutex);
    if (clocks().destroyed.contains(stream)) return CUDA_ERROR_INVALID_HANDLE;
    clocks().events[event] = clocks().streams[stream];
    return CUDA_SUCCESS;
  };
  driver->cuCtxSetCurrent = [](CUcontext) { return CUDA_SUCCESS; };
  driver->cuEventQuery = [](CUevent) { return clocks().outcome; };
  driver->cuEventElapsedTime = [](float* milliseconds, CUevent start, CUevent end) {
    std::lock_guard lock(clocks().mutex);
    if (!clocks().events.contains(start) || !clocks().events.contains(end)) return CUDA_ERROR_INVALID_HANDLE;
    *milliseconds = (clocks().events[end] - clocks().events[start]) / 1000;
    return CUDA_SUCCESS;
  };
  return driver;
}

struct Host final : DeviceHost {
  void run_callback(const HostCallback&, CUresult, Done) override {}
  void poisoned(CUresult) override {}
  void print(std::string_view) override {}
  bool charge_memory(int64_t) override { return true; }
  void charge_time(int engine, uint64_t nanoseconds, uint64_t bytes) override {
    time[engine] += nanoseconds;
    moved[engine] += bytes;
    charged.release();
  }
  void* visible_host(uint64_t, uint64_t) override { return nullptr; }
  std::atomic<uint64_t> time[kEngines]{}, moved[kEngines]{};
  std::counting_semaphore<> charged{0};
};

class TimeSliceMeterTest : public testing::Test {
 protected:
  TimeSliceMeterTest() {
    std::lock_guard lock(clocks().mutex);
    clocks().streams.clear();
    clocks().events.clear();
    clocks().destroyed.clear();
    clocks().outcome = CUDA_SUCCESS;
  }
  std::shared_ptr<CudaStream> stream(uint64_t number) {
    return std::make_shared<CudaStream>(driver_, reinterpret_cast<CUstream>(number << 20), context_, false);
  }
  void work(unsigned engine, const std::shared_ptr<CudaStream>& on, float microseconds, uint64_t bytes = 0) {
    meter_.touch(engine, on, bytes, is_plain_);
    std::lock_guard lock(clocks().mutex);
    clocks().streams[on->handle] += microseconds;
  }
  uint64_t end(unsigned engine) {
    std::promise<uint64_t> busy;
    meter_.end(engine, [&](uint64_t ns) { return busy.set_value(ns), ns; });
    return busy.get_future().get();
  }
  // Time slices are charged after their ends are told.
  bool is_charged() { return host_.charged.try_acquire_for(std::chrono::seconds(5)); }

  bool is_plain_ = false;
  DriverRef driver_ = fake_driver();
  CudaContextRef context_ = std::make_shared<CudaContext>(nullptr, true);
  Host host_;
  // Both outlive what completions_ still waits for.
  TimeSliceMeter meter_{driver_, &completions_, &host_};
  std::unique_ptr<TimeSliceMeter> other_;
  Completions completions_{driver_};
};

TEST_F(TimeSliceMeterTest, OneStreamFromItsFirstToItsLastWork) {
  const auto one = stream(1);
  clocks().streams[one->handle] = 1000;
  meter_.begin(kCompute, false);
  for (int i = 0; i < 10; ++i) work(kCompute, one, 50, 4);
  EXPECT_NEAR(static_cast<double>(end(kCompute)), 500e3, kEventsNs);
  EXPECT_TRUE(is_charged());
  EXPECT_NEAR(static_cast<double>(host_.time[kCompute]), 500e3, kEventsNs);
  EXPECT_EQ(host_.moved[kCompute], 40u);
}

// A driver that serves others for a millisecond before a kernel, but not before an event.
TEST_F(TimeSliceMeterTest, AStepBesideOthersIsMeasuredFromItsTurn) {
  auto driver = std::make_shared<Driver>(*driver_);
  driver->cuThreadExchangeStreamCaptureMode = [](CUstreamCaptureMode*) { return CUDA_SUCCESS; };
  driver->cuLibraryLoadData = [](CUlibrary*, const void*, CUjit_option*, void**, unsigned, CUlibraryOption*, void**,
                                 unsigned) { return CUDA_SUCCESS; };
  driver->cuLibraryGetKernel = [](CUkernel*, CUlibrary, const char*) { return CUDA_SUCCESS; };
  static std::atomic<int> turns;
  turns = 0;
  driver->cuLaunchKernelEx = [](const CUlaunchConfig* config, CUfunction, void**, void**) {
    std::lock_guard lock(clocks().mutex);
    clocks().streams[config->hStream] += 1000;
    ++turns;
    return CUDA_SUCCESS;
  };
  other_ = std::make_unique<TimeSliceMeter>(driver, &completions_, &host_);
  TimeSliceMeter& meter = *other_;
  const auto one = stream(1);
  for (const bool on_turn : {false, true}) {
    for (const auto until = std::chrono::steady_clock::now() + std::chrono::seconds(5);
         turns == 0 && std::chrono::steady_clock::now() < until;) {
      meter.begin(kCompute, on_turn);
      meter.touch(kCompute, one, 0, false);
      meter.touch(kCompute, one, 0, false);
      {
        std::lock_guard lock(clocks().mutex);
        clocks().streams[one->handle] += 50;
      }
      std::promise<uint64_t> busy;
      meter.end(kCompute, [&](uint64_t ns) { return busy.set_value(ns), ns; });
      EXPECT_NEAR(static_cast<double>(busy.get_future().get()), 50e3, kEventsNs);
      if (!on_turn) break;
    }
    EXPECT_EQ(turns, on_turn ? 1 : 0) << "once for each stream";
  }
}

TEST_F(TimeSliceMeterTest, WhatCopiesInAGraphTakeIsEstimatedByTheLastOnesMeasured) {
  const auto one = stream(1);
  meter_.begin(kCopyIn, false);
  work(kCopyIn, one, 100, 5'000'000);  // 50 GB/s
  end(kCopyIn);
  meter_.begin(kCopyIn, false);
  meter_.estimate(kCopyIn, 1'000'000);
  EXPECT_NEAR(static_cast<double>(end(kCopyIn)), 20e3, kEventsNs);
  EXPECT_TRUE(is_charged() && is_charged());
  EXPECT_EQ(host_.moved[kCopyIn], 6'000'000u);
  meter_.begin(kCopyIn, false);
  meter_.estimate(kCopyIn, 2'000'000);
  work(kCopyIn, one, 5, 4);  // beside what is measured
  EXPECT_NEAR(static_cast<double>(end(kCopyIn)), 45e3, kEventsNs);
  meter_.begin(kCopyIn, false);
  meter_.estimate(kCopyIn, 1'000'000);  // nothing was learned from that
  EXPECT_NEAR(static_cast<double>(end(kCopyIn)), 20e3, kEventsNs);
}

// An event before it would be one behind a kernel.
TEST_F(TimeSliceMeterTest, NothingComesBeforeACopyBesideOthersOnceItIsKnownHowLongCopiesTake) {
  const auto one = stream(1);
  const auto copy = [&](bool on_turn) {
    meter_.begin(kCopyIn, on_turn);
    work(kCopyIn, one, 100, 2'000'000);
    const uint64_t before = clocks().made;
    const uint64_t ns = end(kCopyIn);
    EXPECT_TRUE(is_charged());
    return std::pair(clocks().made - before, static_cast<double>(ns));
  };
  EXPECT_NEAR(copy(true).second, 100e3, kEventsNs) << "strided, perhaps";
  is_plain_ = true;
  const uint64_t made = clocks().made;
  EXPECT_NEAR(copy(true).second, 101.5e3, 2 * kEventsNs) << "20 GB/s, and what each takes";
  EXPECT_EQ(clocks().made, made) << "one event, which was there";
  clocks().streams[one->handle] += 5000;
  EXPECT_NEAR(copy(true).second, 101.5e3, 2 * kEventsNs);
  EXPECT_NEAR(copy(false).second, 100e3, kEventsNs);
}

TEST_F(TimeSliceMeterTest, ASmallCopyBesideOthersIsNeverMeasured) {
  is_plain_ = true;
  const auto one = stream(1);
  meter_.begin(kCopyIn, true);
  work(kCopyIn, one, 700, 160'000);
  EXPECT_NEAR(static_cast<double>(end(kCopyIn)), 11.5e3, 100) << "16 GB/s, while nothing is known";
}

TEST_F(TimeSliceMeterTest, StreamsThatOverlapAreCountedOnce) {
  const auto one = stream(1), other = stream(2), later = stream(3);
  clocks().streams[other->handle] = 60;  // 40 of its 80 beside the first one's 100
  clocks().streams[later->handle] = 500;
  meter_.begin(kCompute, false);
  work(kCompute, one, 100);
  work(kCompute, other, 80);
  work(kCompute, later, 10);
  EXPECT_NEAR(static_cast<double>(end(kCompute)), 150e3, kEventsNs);
}

TEST_F(TimeSliceMeterTest, TimeSlicesThatOverlapAreCountedOnce) {
  const auto one = stream(1), other = stream(2);
  clocks().streams[other->handle] = 90;
  meter_.begin(kCompute, false);
  work(kCompute, one, 100);
  EXPECT_NEAR(static_cast<double>(end(kCompute)), 100e3, kEventsNs);
  meter_.begin(kCompute, false);
  work(kCompute, other, 90);  // from 90 to 180
  EXPECT_NEAR(static_cast<double>(end(kCompute)), 80e3, kEventsNs);
  meter_.begin(kCompute, false);
  work(kCompute, one, 80);  // to 180, with the other
  EXPECT_EQ(end(kCompute), 1u);
  meter_.begin(kCompute, false);
  work(kCompute, one, 50);
  EXPECT_NEAR(static_cast<double>(end(kCompute)), 50e3, kEventsNs);
}

TEST_F(TimeSliceMeterTest, WhatEndedInTheMiddleTakesNothingFromTheRest) {
  const auto one = stream(1), other = stream(2);
  clocks().streams[other->handle] = 400;
  for (int i = 0; i < 5; ++i) {
    meter_.begin(kCompute, false);
    work(kCompute, other, 10);
    EXPECT_NEAR(static_cast<double>(end(kCompute)), 10e3, kEventsNs);
    clocks().streams[other->handle] += 90;
  }
  meter_.begin(kCompute, false);
  work(kCompute, one, 1000);
  EXPECT_NEAR(static_cast<double>(end(kCompute)), 950e3, kEventsNs);
}

TEST_F(TimeSliceMeterTest, EnginesAreApartAndEventsAreUsedAgain) {
  const auto one = stream(1);
  const uint64_t before = clocks().made;
  for (int i = 0; i < 100; ++i) {
    meter_.begin(kCompute, false);
    meter_.begin(kCopyIn, false);
    work(kCompute, one, 30);
    work(kCopyIn, one, 20, 1000);
    EXPECT_NEAR(static_cast<double>(end(kCopyIn)), 20e3, kEventsNs);
    EXPECT_NEAR(static_cast<double>(end(kCompute)), 50e3, kEventsNs);  // the copy was in its way
  }
  for (int i = 0; i < 200; ++i) EXPECT_TRUE(is_charged());
  EXPECT_EQ(host_.moved[kCopyIn], 100'000u);
  EXPECT_LE(clocks().made - before, 16u);
}

TEST_F(TimeSliceMeterTest, NothingIsNothing) {
  EXPECT_EQ(end(kCopyOut), 0u);
  meter_.begin(kCopyOut, false);
  EXPECT_EQ(end(kCopyOut), 0u);
}

TEST_F(TimeSliceMeterTest, AFailureEndsTheTimeSliceToo) {
  const auto one = stream(1);
  meter_.begin(kCompute, false);
  work(kCompute, one, 100);
  clocks().outcome = CUDA_ERROR_ILLEGAL_ADDRESS;
  EXPECT_EQ(end(kCompute), 0u);
}

TEST_F(TimeSliceMeterTest, AStreamDestroyedOnTheWayCountsToItsEnd) {
  const auto one = stream(1), other = stream(2);
  meter_.begin(kCompute, false);
  work(kCompute, one, 100);
  work(kCompute, other, 30);
  meter_.leave(one);
  clocks().destroyed.insert(one->handle);
  EXPECT_NEAR(static_cast<double>(end(kCompute)), 100e3, kEventsNs);
}

TEST_F(TimeSliceMeterTest, AStreamThatWasLeftAndComesBackCountsTwice) {
  const auto one = stream(1);
  meter_.begin(kCompute, false);
  work(kCompute, one, 100);
  meter_.leave(context_);
  clocks().streams[one->handle] += 1000;  // into a graph
  work(kCompute, one, 30);
  EXPECT_NEAR(static_cast<double>(end(kCompute)), 130e3, kEventsNs);
}

// Later it would wait for what has come to other streams meanwhile.
TEST_F(TimeSliceMeterTest, TheEndOfLegacyWorkIsMarkedBeforeAnotherStreamHasWork) {
  const auto legacy = std::make_shared<CudaStream>(driver_, CU_STREAM_LEGACY, context_, false);
  const auto other_context = std::make_shared<CudaContext>(nullptr, true);
  meter_.begin(kCompute, false);
  work(kCompute, legacy, 100);
  meter_.leave_legacy(other_context);
  meter_.leave_legacy(context_);
  {
    std::lock_guard lock(clocks().mutex);
    EXPECT_EQ(clocks().events.size(), 2u);
    clocks().streams[CU_STREAM_LEGACY] += 5000;  // what an event would wait for
  }
  work(kCompute, stream(1), 300);
  EXPECT_NEAR(static_cast<double>(end(kCompute)), 300e3, kEventsNs);
  EXPECT_EQ(clocks().events.size(), 4u);
}

TEST_F(TimeSliceMeterTest, OfADestroyedContextNothingIsAsked) {
  const auto one = stream(1);
  meter_.begin(kCompute, false);
  work(kCompute, one, 100);
  meter_.leave(context_);
  context_->alive = false;
  clocks().destroyed.insert(one->handle);
  EXPECT_EQ(end(kCompute), 0u);
}

TEST_F(TimeSliceMeterTest, AllIsOverWhenTheProgramHasSeenTheEndOfEachStream) {
  const auto one = stream(1), two = stream(2);
  EXPECT_TRUE(meter_.over(0));
  meter_.begin(0, false);
  for (const auto& each : {one, two}) {
    each->work.add();
    work(0, each, 5);
  }
  end(0);
  EXPECT_FALSE(meter_.over(0)) << "the completions' thread has seen it, the program has not";
  one->work.finish(one->work.count());
  EXPECT_FALSE(meter_.over(0));
  two->work.finish(two->work.count());
  EXPECT_TRUE(meter_.over(0));
}

TEST_F(TimeSliceMeterTest, OfTheLegacyStreamItsContextTells) {
  const auto legacy = std::make_shared<CudaStream>(driver_, CU_STREAM_LEGACY, context_, false);
  context_->legacy.add();
  meter_.begin(0, false);
  work(0, legacy, 5);
  end(0);
  EXPECT_FALSE(meter_.over(0));
  context_->legacy.finish(context_->legacy.count());
  context_->work.add();  // a copy, before the next kernel
  EXPECT_TRUE(meter_.over(0));
}

TEST_F(TimeSliceMeterTest, OfManyStreamsOnlyTheirContextTells) {
  std::vector<std::shared_ptr<CudaStream>> many;
  meter_.begin(0, false);
  for (uint64_t number = 1; number <= 20; ++number) {
    many.push_back(stream(number));
    many.back()->work.add();
    work(0, many.back(), 5);
    many.back()->work.finish(many.back()->work.count());
  }
  end(0);
  EXPECT_FALSE(meter_.over(0));
  context_->work.finish(context_->work.count());
  EXPECT_TRUE(meter_.over(0));
}

TEST_F(TimeSliceMeterTest, WhoIsToldOfTheEndSaysWhatIsCharged) {
  const auto one = stream(1);
  meter_.begin(kCompute, false);
  work(kCompute, one, 500);
  meter_.end(kCompute, [](uint64_t) { return uint64_t{70}; });
  EXPECT_TRUE(is_charged());
  EXPECT_EQ(host_.time[kCompute], 70u);
}

TEST_F(TimeSliceMeterTest, WhatAnotherThreadWaitsForLastsUntilItIsLetGo) {
  meter_.begin(kCopyOut, false);
  auto held = meter_.hold(kCopyOut, 7);
  std::atomic<uint64_t> busy{0};
  meter_.end(kCopyOut, [&](uint64_t ns) { return busy = ns; });
  EXPECT_FALSE(host_.charged.try_acquire_for(std::chrono::milliseconds(2)));
  held.reset();
  EXPECT_TRUE(is_charged());
  EXPECT_GE(busy, 2'000'000u);
  EXPECT_EQ(host_.moved[kCopyOut], 7u);
}

}  // namespace
}  // namespace bandsaw::cuda
