// Keeping the engine, with a driver whose kernels run when the test says so.
#include "backend/device/cuda/keep_alive.h"

#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <cstring>

namespace bandsaw::cuda {
namespace {

using std::chrono::milliseconds;

struct Gpu {
  std::atomic<uint32_t> launched{0}, streams{0}, libraries{0}, events{0};
  std::atomic<uint64_t> recorded{0}, waited{0};  // the stream, the event
  std::atomic<bool> refuses{false};
  std::atomic<uint64_t> words{0};
  uint32_t last() const { return std::atomic_ref(*reinterpret_cast<uint32_t*>(words.load())).load(); }
  void begin(uint32_t number) const { std::atomic_ref(*reinterpret_cast<uint32_t*>(words + 64)).store(number); }
};
Gpu* gpu;

DriverRef fake_driver() {
  auto driver = std::make_shared<Driver>();
  driver->cuMemHostRegister = [](void*, size_t, unsigned) { return CUDA_SUCCESS; };
  driver->cuMemHostUnregister = [](void*) { return CUDA_SUCCESS; };
  driver->cuCtxSetCurrent = [](CUcontext) { return CUDA_SUCCESS; };
  driver->cuThreadExchangeStreamCaptureMode = [](CUstreamCaptureMode*) { return CUDA_SUCCESS; };
  driver->cuLibraryLoadData = [](CUlibrary* library, const void*, CUjit_option*, void**, unsigned, CUlibraryOption*,
                                 void**, unsigned) {
    *library = reinterpret_cast<CUlibrary>(uint64_t{++gpu->libraries});
    return CUDA_SUCCESS;
  };
  driver->cuLibraryGetKernel = [](CUkernel* kernel, CUlibrary, const char*) {
    *kernel = reinterpret_cast<CUkernel>(1);
    return CUDA_SUCCESS;
  };
  driver->cuLibraryUnload = [](CUlibrary) { return --gpu->libraries, CUDA_SUCCESS; };
  driver->cuCtxGetStreamPriorityRange = [](int* least, int* greatest) {
    *least = 0;
    *greatest = -5;
    return CUDA_SUCCESS;
  };
  driver->cuStreamCreateWithPriority = [](CUstream* stream, unsigned flags, int priority) {
    EXPECT_EQ(flags, unsigned{CU_STREAM_NON_BLOCKING});
    EXPECT_EQ(priority, -5);
    *stream = reinterpret_cast<CUstream>(uint64_t{++gpu->streams});
    return CUDA_SUCCESS;
  };
  driver->cuEventCreate = [](CUevent* event, unsigned) {
    *event = reinterpret_cast<CUevent>(uint64_t{++gpu->events});
    return CUDA_SUCCESS;
  };
  driver->cuEventDestroy = [](CUevent) { return --gpu->events, CUDA_SUCCESS; };
  driver->cuEventRecordWithFlags = [](CUevent, CUstream stream, unsigned) {
    gpu->recorded = reinterpret_cast<uint64_t>(stream);
    return CUDA_SUCCESS;
  };
  driver->cuStreamWaitEvent = [](CUstream, CUevent event, unsigned) {
    gpu->waited = reinterpret_cast<uint64_t>(event);
    return CUDA_SUCCESS;
  };
  driver->cuStreamSynchronize = [](CUstream) { return CUDA_SUCCESS; };
  driver->cuStreamDestroy = [](CUstream) { return --gpu->streams, CUDA_SUCCESS; };
  driver->cuLaunchKernelEx = [](const CUlaunchConfig*, CUfunction, void** parameters, void**) {
    if (gpu->refuses) return CUDA_ERROR_ILLEGAL_ADDRESS;
    gpu->words = *static_cast<uint64_t*>(parameters[0]);
    gpu->launched = *static_cast<uint32_t*>(parameters[1]);
    return CUDA_SUCCESS;
  };
  return driver;
}

class KeepAliveTest : public testing::Test {
 protected:
  KeepAliveTest() { gpu = &gpu_; }
  bool begin() {
    return keep_.begin(context_, [this] { return how_.load(); }, [this] { ++ended_; });
  }
  template <typename What>
  static bool soon(What what) {
    const auto until = std::chrono::steady_clock::now() + std::chrono::seconds(5);
    while (!what() && std::chrono::steady_clock::now() < until) std::this_thread::sleep_for(milliseconds(1));
    return what();
  }

  std::shared_ptr<CudaStream> stream(uint64_t handle) const {
    return std::make_shared<CudaStream>(driver_, reinterpret_cast<CUstream>(handle), context_, false);
  }
  bool works(const std::shared_ptr<CudaStream>& on) {
    keep_.work_goes_on(on);
    return keep_.wants_to_follow();
  }
  // From when it is ready on.
  bool works_soon(const std::shared_ptr<CudaStream>& on) {
    return soon([&] { return works(on); });
  }

  Gpu gpu_;
  DriverRef driver_ = fake_driver();
  CudaContextRef context_ = std::make_shared<CudaContext>(reinterpret_cast<CUcontext>(1), true);
  std::atomic<Keep> how_{Keep::kBehindWork};
  std::atomic<int> ended_{0};
  Pinned pinned_{driver_};
  KeepAlive keep_{driver_, &pinned_};
};

TEST_F(KeepAliveTest, BesideWorkOneKernelRunsAndOneWaits) {
  how_ = Keep::kBesideWork;
  ASSERT_TRUE(begin());
  EXPECT_TRUE(soon([&] { return gpu_.launched == 2; }));
  std::this_thread::sleep_for(milliseconds(5));
  EXPECT_EQ(gpu_.launched, 2u);
  gpu_.begin(2);
  EXPECT_TRUE(soon([&] { return gpu_.launched == 4; })) << "one for each that has begun";
  EXPECT_EQ(gpu_.last(), 0u);
  how_ = Keep::kBehindWork;
  ASSERT_TRUE(works_soon(stream(40)));
  keep_.follow();
  EXPECT_EQ(gpu_.last(), gpu_.launched - 3) << "those beside the work end";
}

TEST_F(KeepAliveTest, ComesBehindTheWorkAndThenBehindWhatWasIssuedSince) {
  const auto one = stream(40), other = stream(41);
  EXPECT_FALSE(works(one)) << "it is not to be kept";
  ASSERT_TRUE(begin());
  EXPECT_FALSE(begin()) << "it is under way";
  ASSERT_TRUE(works_soon(one));
  EXPECT_EQ(gpu_.launched, 0u) << "nothing beside the work";
  works(other);
  keep_.follow();
  EXPECT_EQ(gpu_.recorded, 41u);
  EXPECT_EQ(gpu_.waited, 2u);
  EXPECT_EQ(gpu_.launched, 3u);
  keep_.follow();
  EXPECT_EQ(gpu_.launched, 3u) << "no work has come between";
  EXPECT_FALSE(works(one)) << "none of them runs yet";
  gpu_.begin(1);
  EXPECT_TRUE(keep_.wants_to_follow());
  EXPECT_EQ(gpu_.last(), 0u);
  keep_.follow();
  EXPECT_EQ(gpu_.recorded, 40u);
  EXPECT_EQ(gpu_.launched, 6u);
  EXPECT_EQ(gpu_.last(), 3u);
  how_ = Keep::kNot;
  EXPECT_TRUE(soon([&] { return ended_ == 1; }));
  EXPECT_EQ(gpu_.last(), 6u);
  EXPECT_FALSE(works(one));
}

// Else it would begin only when a copy has ended, and the engine would be lost meanwhile.
TEST_F(KeepAliveTest, ComesBehindTheWorkAndNotBehindCopiesThatFollow) {
  const auto one = stream(40);
  ASSERT_TRUE(begin());
  keep_.work_ends(*one);
  EXPECT_EQ(gpu_.recorded, 0u) << "there was none";
  ASSERT_TRUE(works_soon(one));
  keep_.work_ends(*one);
  EXPECT_EQ(gpu_.recorded, 40u);
  gpu_.recorded = 0;
  keep_.work_ends(*one);
  keep_.follow();
  EXPECT_EQ(gpu_.recorded, 0u);
  EXPECT_EQ(gpu_.waited, 1u);
  EXPECT_EQ(gpu_.launched, 3u);
  gpu_.begin(1);
  works(one);
  keep_.work_ends(*one);
  works(one);
  gpu_.recorded = 0;
  keep_.follow();
  EXPECT_EQ(gpu_.recorded, 40u) << "more work has come behind the copy";
  EXPECT_EQ(gpu_.events, 1u);
}

TEST_F(KeepAliveTest, IsLateBesideManyLaunches) {
  const auto one = stream(40);
  ASSERT_TRUE(begin());
  ASSERT_TRUE(works_soon(one));
  keep_.follow();
  for (int i = 0; i < 16; ++i) works(one);
  EXPECT_FALSE(keep_.is_late());
  gpu_.begin(1);
  EXPECT_TRUE(keep_.is_late());
  keep_.follow();
  EXPECT_FALSE(keep_.is_late());
  gpu_.begin(4);
  works(one);
  EXPECT_FALSE(keep_.is_late()) << "it comes behind it in a moment";
  keep_.waited();
  EXPECT_TRUE(keep_.is_late()) << "the first of a step";
}

TEST_F(KeepAliveTest, EndsWhatItHasLaunchedAndBeginsAgain) {
  const auto one = stream(40);
  ASSERT_TRUE(begin());
  ASSERT_TRUE(works_soon(one));
  keep_.follow();
  how_ = Keep::kNot;
  EXPECT_TRUE(soon([&] { return ended_ == 1; }));
  EXPECT_FALSE(keep_.active());
  EXPECT_EQ(gpu_.last(), 3u);
  how_ = Keep::kBehindWork;
  ASSERT_TRUE(begin());
  EXPECT_TRUE(works_soon(one)) << "whether or not the last ones have run";
  keep_.follow();
  EXPECT_EQ(gpu_.launched, 6u);
  EXPECT_EQ(gpu_.libraries, 1u) << "made once";
}

TEST_F(KeepAliveTest, StreamsThatAreGoneAndOtherContextsAreNotWaitedFor) {
  ASSERT_TRUE(begin());
  ASSERT_TRUE(works_soon(stream(40)));
  const auto another = std::make_shared<CudaContext>(reinterpret_cast<CUcontext>(2), true);
  works(std::make_shared<CudaStream>(driver_, reinterpret_cast<CUstream>(50), another, false));
  const auto destroyed = stream(60);
  works(destroyed);
  keep_.forget(*destroyed);
  keep_.follow();
  EXPECT_EQ(gpu_.recorded, 0u);
  EXPECT_EQ(gpu_.launched, 3u);
}

TEST_F(KeepAliveTest, LeavesAContextBeforeThatGoes) {
  ASSERT_TRUE(begin());
  ASSERT_TRUE(works_soon(stream(40)));
  keep_.end();
  EXPECT_EQ(ended_, 1);
  EXPECT_EQ(gpu_.streams, 0u);
  EXPECT_EQ(gpu_.libraries, 0u);
  EXPECT_EQ(gpu_.events, 0u);
  context_ = std::make_shared<CudaContext>(reinterpret_cast<CUcontext>(2), true);
  ASSERT_TRUE(begin());
  EXPECT_TRUE(soon([&] { return gpu_.streams == 1; }));
}

TEST_F(KeepAliveTest, AFailedProgramIsLetGo) {
  const auto one = stream(40);
  gpu_.refuses = true;
  ASSERT_TRUE(begin());
  ASSERT_TRUE(works_soon(one));
  keep_.follow();
  EXPECT_TRUE(soon([&] { return ended_ == 1; }));
  EXPECT_FALSE(keep_.active());
}

// A kernel of the program may write what it likes where these kernels tell how far they are.
TEST_F(KeepAliveTest, WordsThatMakeNoSenseCostNoMoreThanALaunchDoes) {
  const auto one = stream(40);
  ASSERT_TRUE(begin());
  ASSERT_TRUE(works_soon(one));
  keep_.follow();
  for (const uint32_t word : {0x80000000u, 77u}) {
    gpu_.begin(word);
    keep_.follow();
    EXPECT_EQ(gpu_.launched, 3u);
  }
}

}  // namespace
}  // namespace bandsaw::cuda
