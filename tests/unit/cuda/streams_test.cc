// Waits for streams that come, go and capture, with a driver of our own: events that are done when the test says so.
#include <gtest/gtest.h>

#include <future>
#include <mutex>
#include <set>

#include "backend/device/cuda/streams.h"

namespace bandsaw::cuda {
namespace {

using std::chrono::milliseconds;

struct Gpu {
  std::mutex mutex;
  std::set<CUstream> destroyed, capturing;  // a real driver crashes of the first
  std::set<CUstream> busy;                  // what is recorded on them is not done
  std::map<CUevent, CUstream> events;
  std::multiset<CUstream> records;
  bool misused = false;
};
Gpu* gpu = nullptr;

CUresult use(CUstream stream) {
  gpu->misused |= gpu->destroyed.contains(stream);
  return CUDA_SUCCESS;
}

DriverRef fake_driver() {
  auto driver = std::make_shared<Driver>();
  driver->cuCtxSetCurrent = [](CUcontext) { return CUDA_SUCCESS; };
  driver->cuEventCreate = [](CUevent* event, unsigned) {
    std::lock_guard lock(gpu->mutex);
    return *event = reinterpret_cast<CUevent>(gpu->events.size() + 1), gpu->events[*event] = nullptr, CUDA_SUCCESS;
  };
  driver->cuEventRecordWithFlags = [](CUevent event, CUstream stream, unsigned) {
    std::lock_guard lock(gpu->mutex);
    gpu->records.insert(stream);
    return gpu->events[event] = stream, use(stream);
  };
  driver->cuEventQuery = [](CUevent event) {
    std::lock_guard lock(gpu->mutex);
    return gpu->busy.contains(gpu->events[event]) ? CUDA_ERROR_NOT_READY : CUDA_SUCCESS;
  };
  driver->cuStreamQuery = [](CUstream stream) {
    std::lock_guard lock(gpu->mutex);
    use(stream);
    return gpu->busy.contains(stream) ? CUDA_ERROR_NOT_READY : CUDA_SUCCESS;
  };
  driver->cuStreamIsCapturing = [](CUstream stream, CUstreamCaptureStatus* status) {
    std::lock_guard lock(gpu->mutex);
    const bool captures = gpu->capturing.contains(stream);
    return *status = captures ? CU_STREAM_CAPTURE_STATUS_ACTIVE : CU_STREAM_CAPTURE_STATUS_NONE, use(stream);
  };
  driver->cuStreamDestroy = [](CUstream stream) {
    std::lock_guard lock(gpu->mutex);
    return gpu->destroyed.insert(stream), CUDA_SUCCESS;
  };
  return driver;
}

class StreamsTest : public testing::Test {
 protected:
  StreamsTest() { gpu = &gpu_; }
  ~StreamsTest() override { EXPECT_FALSE(gpu_.misused) << "a stream was used that is destroyed"; }
  std::shared_ptr<CudaStream> make(uint64_t number, bool apart = false) {
    auto made = std::make_shared<CudaStream>(driver_, handle(number), context_, true, apart);
    streams_.add(made);
    return made;
  }
  static CUstream handle(uint64_t number) { return reinterpret_cast<CUstream>(number << 20); }
  void set_busy(CUstream stream, bool busy) {
    std::lock_guard lock(gpu_.mutex);
    busy ? void(gpu_.busy.insert(stream)) : void(gpu_.busy.erase(stream));
  }
  size_t records(CUstream stream) {
    std::lock_guard lock(gpu_.mutex);
    return gpu_.records.count(stream);
  }
  std::future<CUresult> settle() {
    return std::async(std::launch::async, [this] { return streams_.settle(context_); });
  }
  static bool waits(std::future<CUresult>& settling) {
    return settling.wait_for(milliseconds(20)) == std::future_status::timeout;
  }

  void capture(const std::shared_ptr<CudaStream>& stream) {
    const auto begin = [&] {
      std::lock_guard lock(gpu_.mutex);
      return gpu_.capturing.insert(stream->handle), CUDA_SUCCESS;
    };
    EXPECT_EQ(streams_.begin_capture(stream, begin), CUDA_SUCCESS);
  }

  Gpu gpu_;
  const DriverRef driver_ = fake_driver();
  const CudaContextRef context_ = std::make_shared<CudaContext>(nullptr, false);
  Completions completions_{driver_};
  Streams streams_{driver_, &completions_};
};

TEST_F(StreamsTest, WhatIsOnAStreamThatHasGoneIsWaitedFor) {
  auto stream = make(1, true);
  set_busy(handle(1), true);
  EXPECT_EQ(streams_.leave(stream), CUDA_SUCCESS);
  stream = nullptr;
  auto settling = settle();
  EXPECT_TRUE(waits(settling));
  EXPECT_TRUE(gpu_.destroyed.empty());
  set_busy(handle(1), false);
  EXPECT_EQ(settling.get(), CUDA_SUCCESS);
  while (!streams_.all().empty()) std::this_thread::yield();
  EXPECT_EQ(settle().get(), CUDA_SUCCESS);
}

TEST_F(StreamsTest, OneWithoutWorkEndsAtOnce) {
  auto stream = make(1);
  EXPECT_EQ(streams_.leave(stream), CUDA_SUCCESS);
  stream = nullptr;
  EXPECT_EQ(gpu_.destroyed, std::set{handle(1)});
}

// What it was given never runs, and a wait for the rest leaves it alone.
TEST_F(StreamsTest, OneThatCapturesEndsAtOnce) {
  const auto stream = make(1, true);
  capture(stream);
  EXPECT_TRUE(streams_.some_capture());
  EXPECT_EQ(streams_.leave(stream), CUDA_SUCCESS);
  EXPECT_EQ(gpu_.destroyed, std::set{handle(1)});
  EXPECT_FALSE(streams_.some_capture());
  EXPECT_EQ(settle().get(), CUDA_SUCCESS);
}

// Its object stays as long as somebody waits for it, and so does the driver's.
TEST_F(StreamsTest, OneThatSomebodyWaitsForStays) {
  auto stream = make(1);
  const auto waits = stream;
  EXPECT_EQ(streams_.leave(stream), CUDA_SUCCESS);
  stream = nullptr;
  EXPECT_TRUE(gpu_.destroyed.empty());
}

TEST_F(StreamsTest, TheLegacyStreamIsWaitedForBesideCapturesThatItDoesNotTouch) {
  make(1, true);
  const auto captures = make(2, true);
  capture(captures);
  context_->legacy.add();
  set_busy(CU_STREAM_LEGACY, true);
  auto settling = settle();
  EXPECT_TRUE(waits(settling));
  set_busy(CU_STREAM_LEGACY, false);
  EXPECT_EQ(settling.get(), CUDA_SUCCESS);
  EXPECT_EQ(records(handle(2)), 0u) << "which captures";
}

TEST_F(StreamsTest, WhatTheLegacyStreamHadBeforeACaptureIsWaitedFor) {
  const auto first = make(1), second = make(2);
  context_->legacy.add();
  set_busy(CU_STREAM_LEGACY, true);
  for (const auto& stream : {first, second}) capture(stream);
  EXPECT_EQ(records(CU_STREAM_LEGACY), 1u) << "beside the first capture that would be an error";
  auto settling = settle();
  EXPECT_TRUE(waits(settling));
  EXPECT_EQ(records(CU_STREAM_LEGACY), 1u);
  set_busy(CU_STREAM_LEGACY, false);
  EXPECT_EQ(settling.get(), CUDA_SUCCESS);
}

// An event there would make all streams that it waits for wait for one another.
TEST_F(StreamsTest, AnUnusedLegacyStreamIsLeftAlone) {
  make(1);
  EXPECT_EQ(settle().get(), CUDA_SUCCESS);
  EXPECT_EQ(records(CU_STREAM_LEGACY), 0u);
}

TEST_F(StreamsTest, ACaptureEndsWhereItBegan) {
  const auto first = make(1), joined = make(2);
  capture(first);
  streams_.capture_ended(*joined);
  EXPECT_TRUE(streams_.some_capture());
  streams_.capture_ended(*first);
  EXPECT_FALSE(streams_.some_capture());
}

TEST_F(StreamsTest, CapturesGoWithTheirContext) {
  const auto stream = make(1, true);
  capture(stream);
  streams_.context_goes(CudaContext(nullptr, false));
  EXPECT_TRUE(streams_.some_capture());
  streams_.context_goes(*context_);
  EXPECT_FALSE(streams_.some_capture());
}

TEST_F(StreamsTest, WhatIsKnownToBeDoneIsNotAskedAgain) {
  const auto stream = make(1, true);
  stream->work.finish(stream->work.count());
  EXPECT_EQ(settle().get(), CUDA_SUCCESS);
  EXPECT_EQ(records(handle(1)), 0u);
  stream->work.add();
  EXPECT_EQ(settle().get(), CUDA_SUCCESS);
  EXPECT_EQ(records(handle(1)), 0u) << "an event would wait for a time slice";
  set_busy(handle(1), true);
  auto settling = settle();
  EXPECT_TRUE(waits(settling));
  EXPECT_EQ(records(handle(1)), 1u);
  set_busy(handle(1), false);
  EXPECT_EQ(settling.get(), CUDA_SUCCESS);
}

}  // namespace
}  // namespace bandsaw::cuda
