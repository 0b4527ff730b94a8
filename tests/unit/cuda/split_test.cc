// Split transactions with a driver whose GPU does what it is told when somebody waits for it, and not before.
#include <fmt/format.h>
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cstring>
#include <deque>
#include <functional>
#include <map>

#include "backend/device/cuda/split_copy.h"
#include "memory/base/unique_fd.h"

namespace bandsaw::cuda {
namespace {

constexpr uint64_t kChunk = 4096;
constexpr unsigned kChunks = 3;

// One stream: copies and events in order. "Device memory" is memory of this process.
struct Gpu {
  std::deque<std::function<void()>> queue;
  std::map<CUevent, bool> reached;
  size_t queued_most = 0, copies = 0, registered = 0;
  uint64_t events = 0;
  size_t fail_at = ~size_t{0};
  CUresult registering = CUDA_SUCCESS;

  CUresult put(std::function<void()> work) {
    if (copies++ == fail_at) return CUDA_ERROR_ILLEGAL_ADDRESS;
    queue.push_back(std::move(work));
    queued_most = std::max(queued_most, queue.size());
    return CUDA_SUCCESS;
  }
};
Gpu* gpu;

DriverRef fake_driver() {
  auto driver = std::make_shared<Driver>();
  driver->cuMemHostRegister = [](void*, size_t bytes, unsigned) {
    if (gpu->registering == CUDA_SUCCESS) gpu->registered += bytes;
    return gpu->registering;
  };
  driver->cuMemHostUnregister = [](void*) {
    gpu->registered = 0;
    return CUDA_SUCCESS;
  };
  driver->cuEventCreate = [](CUevent* event, unsigned) {
    *event = reinterpret_cast<CUevent>(++gpu->events);
    return CUDA_SUCCESS;
  };
  driver->cuEventRecordWithFlags = [](CUevent event, CUstream, unsigned) {
    gpu->reached[event] = false;
    gpu->queue.push_back([event] { gpu->reached[event] = true; });
    return CUDA_SUCCESS;
  };
  driver->cuEventSynchronize = [](CUevent event) {
    while (!gpu->reached[event]) {
      if (gpu->queue.empty()) return CUDA_ERROR_NOT_READY;  // would wait for ever
      gpu->queue.front()();
      gpu->queue.pop_front();
    }
    return CUDA_SUCCESS;
  };
  driver->cuMemcpyHtoDAsync = [](CUdeviceptr to, const void* from, size_t bytes, CUstream) {
    return gpu->put([=] { std::memcpy(reinterpret_cast<void*>(to), from, bytes); });
  };
  return driver;
}

class SplitCopyTest : public testing::Test {
 protected:
  SplitCopyTest() { gpu = &gpu_; }
  std::vector<std::byte> bytes(size_t count) {
    std::vector<std::byte> all(count);
    for (size_t i = 0; i < count; ++i) all[i] = static_cast<std::byte>(i * 131 >> 3);
    return all;
  }

  Gpu gpu_;
  DriverRef driver_ = fake_driver();
  Pinned pinned_{driver_};
  std::shared_ptr<CudaStream> stream_ =
      std::make_shared<CudaStream>(driver_, nullptr, std::make_shared<CudaContext>(nullptr, true), false);
  SplitCopy split_{driver_, &pinned_, {kChunk, kChunks}};
};

// What /sys/hypervisor/guest_type says.
TEST(Pinned, APvDomainIsKnownByTheHypervisorsWord) {
  for (const auto& [text, is] : {std::pair{"PV\n", true}, {"PVH\n", false}, {"HVM\n", false}, {"", false}}) {
    const UniqueFd file(memfd_create("guest_type", MFD_CLOEXEC));
    ASSERT_EQ(::write(file.get(), text, std::strlen(text)), static_cast<ssize_t>(std::strlen(text)));
    EXPECT_EQ(is_pv_domain(fmt::format("/proc/self/fd/{}", file.get()).c_str()), is) << text;
  }
  EXPECT_FALSE(is_pv_domain("/sys/hypervisor/no_such_file"));
}

TEST_F(SplitCopyTest, EveryLengthArrives) {
  for (const size_t count : {size_t{1}, size_t{kChunk - 1}, size_t{kChunk}, size_t{kChunk + 1}, size_t{3 * kChunk},
                             size_t{10 * kChunk + 7}}) {
    const auto from = bytes(count);
    std::vector<std::byte> device(count);
    const auto at = reinterpret_cast<uint64_t>(device.data());
    EXPECT_EQ(split_.to_device(stream_, at, from.data(), count), CUDA_SUCCESS);
    EXPECT_EQ(device, from) << count;
  }
  EXPECT_EQ(gpu_.events, kChunks);  // used again and again
}

TEST_F(SplitCopyTest, ChunksOverlapButNoMoreThanThereAreBuffers) {
  const auto from = bytes(20 * kChunk);
  std::vector<std::byte> device(from.size());
  const auto at = reinterpret_cast<uint64_t>(device.data());
  split_.to_device(stream_, at, from.data(), from.size());
  EXPECT_EQ(gpu_.copies, 20u);
  EXPECT_GE(gpu_.queued_most, 2 * kChunks - 1);  // with an event behind each
  EXPECT_EQ(gpu_.registered, kChunk * kChunks);
}

TEST_F(SplitCopyTest, AFailureEndsItWhenTheBuffersAreFree) {
  const auto from = bytes(20 * kChunk);
  std::vector<std::byte> device(from.size());
  const auto at = reinterpret_cast<uint64_t>(device.data());
  gpu_.fail_at = 7;
  EXPECT_EQ(split_.to_device(stream_, at, from.data(), from.size()), CUDA_ERROR_ILLEGAL_ADDRESS);
  EXPECT_TRUE(gpu_.queue.empty());
  gpu_.fail_at = ~size_t{0};
  EXPECT_EQ(split_.to_device(stream_, at, from.data(), from.size()), CUDA_SUCCESS);
  EXPECT_EQ(device, from);
}

TEST_F(SplitCopyTest, WithoutRegisteredMemoryItSaysSo) {
  gpu_.registering = CUDA_ERROR_OUT_OF_MEMORY;
  std::byte one{};
  EXPECT_EQ(split_.to_device(stream_, 0, &one, 1), CUDA_ERROR_OUT_OF_MEMORY);
  EXPECT_EQ(gpu_.copies, 0u);
}

}  // namespace
}  // namespace bandsaw::cuda
