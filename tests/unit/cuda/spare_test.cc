// Where kernels are guarded, all of the area has memory behind it at any time but while that changes.
#include "backend/device/cuda/spare.h"

#include <gtest/gtest.h>

#include <map>

#include "backend/device/cuda/heap.h"
#include "backend/device/cuda/reservations.h"
#include "tests/unit/cuda/counting_host.h"

namespace bandsaw::cuda {
namespace {

constexpr uint64_t kGranule = 2u << 20, kPart = uint64_t{1} << 39;
constexpr ptx::GuardArea kArea{
    .base = (uint64_t{1} << 45) + (uint64_t{1} << 38), .bits = 32, .slack = uint64_t{1} << 30};
constexpr uint64_t kBegin = kArea.base - kArea.slack, kEnd = kArea.base + (uint64_t{1} << kArea.bits) + kArea.slack;

struct Mapped {
  uint64_t bytes = 0;
  CUmemGenericAllocationHandle handle = 0;
};
std::map<uint64_t, Mapped> mapped;
std::map<CUmemGenericAllocationHandle, uint64_t> memory;

// As the driver has it: mappings do not overlap, each goes as a whole, and memory is mapped as a whole.
CUresult map(CUdeviceptr at, size_t bytes, size_t, CUmemGenericAllocationHandle handle, unsigned long long) {
  const auto next = mapped.lower_bound(at);
  if (next != mapped.end() && next->first < at + bytes) return CUDA_ERROR_INVALID_VALUE;
  if (next != mapped.begin() && std::prev(next)->first + std::prev(next)->second.bytes > at)
    return CUDA_ERROR_INVALID_VALUE;
  if (bytes == 0 || bytes % kGranule != 0) return CUDA_ERROR_INVALID_VALUE;
  if (bytes != memory.at(handle)) return CUDA_ERROR_NOT_SUPPORTED;
  mapped[at] = {bytes, handle};
  return CUDA_SUCCESS;
}

CUresult unmap(CUdeviceptr at, size_t bytes) {
  const auto found = mapped.find(at);
  if (found == mapped.end() || found->second.bytes != bytes) return CUDA_ERROR_INVALID_VALUE;
  return mapped.erase(found), CUDA_SUCCESS;
}

DriverRef driver_with_books() {
  mapped.clear();
  memory.clear();
  auto driver = std::make_shared<Driver>();
  driver->cuMemGetAllocationGranularity = [](size_t* size, const CUmemAllocationProp*,
                                             CUmemAllocationGranularity_flags) {
    return *size = kGranule, CUDA_SUCCESS;
  };
  driver->cuMemAddressReserve = [](CUdeviceptr* at, size_t, size_t, CUdeviceptr wanted, unsigned long long) {
    return *at = wanted, CUDA_SUCCESS;
  };
  driver->cuMemAddressFree = [](CUdeviceptr, size_t) { return CUDA_SUCCESS; };
  driver->cuMemCreate = [](CUmemGenericAllocationHandle* handle, size_t bytes, const CUmemAllocationProp*,
                           unsigned long long) {
    static CUmemGenericAllocationHandle next = 1;
    memory[*handle = next++] = bytes;
    return CUDA_SUCCESS;
  };
  driver->cuMemRelease = [](CUmemGenericAllocationHandle) { return CUDA_SUCCESS; };
  driver->cuMemMap = map;
  driver->cuMemUnmap = unmap;
  driver->cuMemSetAccess = [](CUdeviceptr, size_t, const CUmemAccessDesc*, size_t) { return CUDA_SUCCESS; };
  driver->cuGetErrorName = [](CUresult, const char** name) { return *name = "NAME", CUDA_SUCCESS; };
  driver->cuGetErrorString = [](CUresult, const char** text) { return *text = "text", CUDA_SUCCESS; };
  return driver;
}

// Bytes from kBegin to kEnd that have no memory behind them.
uint64_t holes() {
  uint64_t at = kBegin, missing = 0;
  for (const auto& [address, piece] : mapped) {
    missing += address - at;
    at = address + piece.bytes;
  }
  return missing + (kEnd - at);
}

class SpareTest : public ::testing::Test {
 protected:
  CountingHost host_;
  int changes_ = 0;
  DriverRef driver_ = driver_with_books();
  std::unique_ptr<Heap> heap_ = std::move(Heap::make(driver_, &host_, 0, uint64_t{1} << 45, kPart, &kArea).value());
};

TEST_F(SpareTest, AllocationsLeaveNoHole) {
  EXPECT_EQ(holes(), 0u);
  EXPECT_EQ(host_.charged, static_cast<int64_t>(Spare::held(kGranule)));
  heap_->set_before_changes([this] { ++changes_; });
  std::vector<uint64_t> addresses;
  for (const uint64_t bytes :
       {uint64_t{1} << 21, uint64_t{3} << 21, uint64_t{100} << 20, uint64_t{100}, uint64_t{64} << 20}) {
    uint64_t address = 0;
    ASSERT_EQ(heap_->allocate(nullptr, bytes, &address), CUDA_SUCCESS);
    EXPECT_GE(address, kArea.base);
    EXPECT_LT(address + bytes, kArea.base + (uint64_t{1} << kArea.bits));
    EXPECT_EQ(holes(), 0u) << bytes;
    addresses.push_back(address);
  }
  EXPECT_EQ(changes_, 5);
  for (const size_t which : {1, 3, 0, 4, 2}) {
    EXPECT_EQ(heap_->release(addresses[which]), CUDA_SUCCESS);
    EXPECT_EQ(holes(), 0u);
  }
  uint64_t again = 0;
  EXPECT_EQ(heap_->allocate(nullptr, uint64_t{1} << 30, &again), CUDA_SUCCESS);
  EXPECT_EQ(again, kArea.base) << "addresses are used again";
  EXPECT_EQ(holes(), 0u);
}

TEST_F(SpareTest, NothingIsLeftAtTheEnd) {
  uint64_t address = 0;
  ASSERT_EQ(heap_->allocate(nullptr, uint64_t{5} << 21, &address), CUDA_SUCCESS);
  heap_ = nullptr;
  EXPECT_TRUE(mapped.empty());
  EXPECT_EQ(host_.charged, 0);
}

TEST_F(SpareTest, TheProgramsOwnMappingsLeaveNoHole) {
  Reservations reservations(driver_, heap_.get(), 0, 0);
  uint64_t address = 0;
  ASSERT_EQ(reservations.reserve(8 * kGranule, 0, &address), CUDA_SUCCESS);
  EXPECT_EQ(holes(), 0u);
  CUmemGenericAllocationHandle handle = 0;
  driver_->cuMemCreate(&handle, 4 * kGranule, nullptr, 0);
  const auto object = std::make_shared<CudaMemory>(driver_, handle, 4 * kGranule, Charge(&host_));
  ASSERT_EQ(reservations.map(address + 2 * kGranule, 4 * kGranule, 0, object), CUDA_SUCCESS);
  EXPECT_EQ(mapped.at(address + 2 * kGranule).handle, handle);
  EXPECT_EQ(holes(), 0u);
  EXPECT_EQ(reservations.unmap(address + 2 * kGranule, 4 * kGranule), CUDA_SUCCESS);
  EXPECT_EQ(holes(), 0u);
  // A write would fault there.
  object->read_only = true;
  EXPECT_EQ(reservations.map(address, 4 * kGranule, 0, object), CUDA_ERROR_NOT_SUPPORTED);
  EXPECT_EQ(holes(), 0u);
}

}  // namespace
}  // namespace bandsaw::cuda
