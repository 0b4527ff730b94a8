// The guest's reservations and mappings, and the heap beside them, with a driver of our own that keeps its books.
#include "backend/device/cuda/reservations.h"

#include <gtest/gtest.h>

#include "guest-driver/uapi/vgpu_control.h"
#include "tests/unit/cuda/counting_host.h"

namespace bandsaw::cuda {
namespace {

constexpr uint64_t kGranule = 2u << 20, kBytes = 512 * kGranule;
constexpr uint64_t kWindow = uint64_t{1} << 44, kBase = kWindow + VGPU_WINDOW_DEVICE_OFFSET + VGPU_WINDOW_PART_BYTES;

struct FakeDriver {
  std::map<uint64_t, uint64_t> mapped;  // address -> bytes
  std::map<CUmemGenericAllocationHandle, uint64_t> memory;
  CUmemGenericAllocationHandle next = 1;
  uint64_t access_from = 0, access_bytes = 0;
  uint64_t elsewhere = 0;       // where a reservation is wanted and not given
  std::vector<uint64_t> freed;  // reservations
};
FakeDriver fake;

DriverRef fake_driver() {
  fake = {};
  auto driver = std::make_shared<Driver>();
  driver->cuMemGetAllocationGranularity = [](size_t* size, const CUmemAllocationProp*,
                                             CUmemAllocationGranularity_flags) {
    return *size = kGranule, CUDA_SUCCESS;
  };
  driver->cuMemAddressReserve = [](CUdeviceptr* at, size_t, size_t, CUdeviceptr wanted, unsigned long long) {
    return *at = wanted == fake.elsewhere ? wanted + kGranule : wanted, CUDA_SUCCESS;
  };
  driver->cuMemAddressFree = [](CUdeviceptr at, size_t) {
    fake.freed.push_back(at);
    return CUDA_SUCCESS;
  };
  driver->cuMemCreate = [](CUmemGenericAllocationHandle* handle, size_t bytes, const CUmemAllocationProp*,
                           unsigned long long) {
    *handle = fake.next++;
    fake.memory[*handle] = bytes;
    return CUDA_SUCCESS;
  };
  driver->cuMemRelease = [](CUmemGenericAllocationHandle handle) {
    return fake.memory.erase(handle) ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
  };
  driver->cuMemMap = [](CUdeviceptr at, size_t bytes, size_t, CUmemGenericAllocationHandle, unsigned long long) {
    return fake.mapped.emplace(at, bytes).second ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
  };
  driver->cuMemUnmap = [](CUdeviceptr at, size_t bytes) {
    const auto found = fake.mapped.find(at);
    if (found == fake.mapped.end() || found->second != bytes) return CUDA_ERROR_INVALID_VALUE;
    fake.mapped.erase(found);
    return CUDA_SUCCESS;
  };
  driver->cuMemSetAccess = [](CUdeviceptr at, size_t bytes, const CUmemAccessDesc*, size_t) {
    fake.access_from = at;
    fake.access_bytes = bytes;
    return CUDA_SUCCESS;
  };
  driver->cuGetErrorName = [](CUresult, const char** name) { return *name = "NAME", CUDA_SUCCESS; };
  driver->cuGetErrorString = [](CUresult, const char** text) { return *text = "text", CUDA_SUCCESS; };
  return driver;
}

class ReservationsTest : public ::testing::Test {
 protected:
  uint64_t reserve(uint64_t bytes, uint64_t alignment = 0) {
    uint64_t address = 0;
    EXPECT_EQ(reservations_->reserve(bytes, alignment, &address), CUDA_SUCCESS);
    return address;
  }
  CudaMemoryRef memory(uint64_t bytes) {
    CUmemGenericAllocationHandle handle = 0;
    driver_->cuMemCreate(&handle, bytes, nullptr, 0);
    Charge charge(&host_);
    EXPECT_TRUE(charge.resize(bytes));
    return std::make_shared<CudaMemory>(driver_, handle, bytes, std::move(charge));
  }

  CountingHost host_;
  DriverRef driver_ = fake_driver();
  std::unique_ptr<Heap> heap_ = std::move(Heap::make(driver_, &host_, 0, kBase, kBytes).value());
  std::unique_ptr<Reservations> reservations_ = std::make_unique<Reservations>(driver_, heap_.get(), 0, kWindow);
};

// What another virtual GPU lets this one read.
TEST_F(ReservationsTest, ReadOnlyMemoryIsNotMappedForWriting) {
  const CudaMemoryRef read = memory(kGranule), own = memory(kGranule);
  read->read_only = true;
  const uint64_t at = reserve(2 * kGranule);
  ASSERT_EQ(reservations_->map(at, kGranule, 0, own), CUDA_SUCCESS);
  ASSERT_EQ(reservations_->map(at + kGranule, kGranule, 0, read), CUDA_SUCCESS);
  EXPECT_EQ(reservations_->set_access(at + kGranule, kGranule, CU_MEM_ACCESS_FLAGS_PROT_READWRITE),
            CUDA_ERROR_NOT_PERMITTED);
  EXPECT_EQ(reservations_->set_access(at, 2 * kGranule, CU_MEM_ACCESS_FLAGS_PROT_READWRITE), CUDA_ERROR_NOT_PERMITTED);
  EXPECT_EQ(fake.access_bytes, 0u) << "the driver was not asked";
  EXPECT_EQ(reservations_->set_access(at, kGranule, CU_MEM_ACCESS_FLAGS_PROT_READWRITE), CUDA_SUCCESS);
  EXPECT_EQ(reservations_->set_access(at + kGranule, kGranule, CU_MEM_ACCESS_FLAGS_PROT_READ), CUDA_SUCCESS);
  EXPECT_EQ(fake.access_from, at + kGranule);
}

// A program that allocates and frees little in turns would map memory and unmap it each time.
TEST_F(ReservationsTest, OneEmptySlabStaysMappedAndIsChargedToNobody) {
  const CudaContextRef context;
  uint64_t first = 0, second = 0, other = 0;
  ASSERT_EQ(heap_->allocate(context, 100, &first), CUDA_SUCCESS);
  EXPECT_EQ(host_.charged, static_cast<int64_t>(kGranule));
  ASSERT_EQ(heap_->release(first), CUDA_SUCCESS);
  EXPECT_EQ(host_.charged, 0);
  EXPECT_EQ(fake.mapped.size(), 1u);
  const auto handle = fake.next;
  ASSERT_EQ(heap_->allocate(context, 100, &second), CUDA_SUCCESS);
  EXPECT_EQ(second, first);
  EXPECT_EQ(fake.next, handle) << "nothing was made";
  EXPECT_EQ(host_.charged, static_cast<int64_t>(kGranule));
  // A second slab that becomes empty goes.
  std::vector<uint64_t> all(3);
  for (uint64_t& address : all) ASSERT_EQ(heap_->allocate(context, 1u << 20, &address), CUDA_SUCCESS);
  EXPECT_EQ(fake.mapped.size(), 2u);
  for (const uint64_t address : all) ASSERT_EQ(heap_->release(address), CUDA_SUCCESS);
  ASSERT_EQ(heap_->release(second), CUDA_SUCCESS);
  EXPECT_EQ(fake.mapped.size(), 1u);
  EXPECT_EQ(host_.charged, 0);
  host_.most = 0;
  EXPECT_EQ(heap_->allocate(context, 100, &other), CUDA_ERROR_OUT_OF_MEMORY);
  heap_->trim();
  EXPECT_TRUE(fake.mapped.empty() && fake.memory.empty());
}

TEST_F(ReservationsTest, AddressesAreApartAligned) {
  const uint64_t a = reserve(5 * kGranule), b = reserve(4096), c = reserve(kGranule, 64 * kGranule);
  EXPECT_EQ(a % kGranule, 0u);
  EXPECT_GE(b, a + 5 * kGranule);
  EXPECT_EQ(c % (64 * kGranule), 0u);
  uint64_t none = 0;
  EXPECT_EQ(reservations_->reserve(kBytes + kGranule, 0, &none), CUDA_ERROR_OUT_OF_MEMORY);
  EXPECT_EQ(reservations_->reserve(~uint64_t{0}, 0, &none), CUDA_ERROR_OUT_OF_MEMORY);
  EXPECT_EQ(reservations_->free(a, 4 * kGranule), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(reservations_->free(a + kGranule, 4 * kGranule), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(reservations_->free(b, 4096), CUDA_SUCCESS);
  EXPECT_EQ(reservations_->free(a, 5 * kGranule), CUDA_SUCCESS);
  EXPECT_EQ(reservations_->free(a, 5 * kGranule), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(reserve(kGranule), a);
}

// Another virtual GPU's memory lies where that one has it, and is taken back.
TEST_F(ReservationsTest, MemoryOfAnotherPartIsMappedAtItsAddress) {
  const uint64_t there = kBase + VGPU_WINDOW_PART_BYTES + 6 * kGranule;
  CUmemGenericAllocationHandle handle = 0;
  driver_->cuMemCreate(&handle, 2 * kGranule, nullptr, 0);
  const auto lent = std::make_shared<CudaMemory>(driver_, handle, 2 * kGranule, Charge(&host_));
  EXPECT_EQ(reservations_->map(there, 2 * kGranule, 0, lent), CUDA_ERROR_INVALID_VALUE);
  ASSERT_EQ(reservations_->adopt(there, 2 * kGranule), CUDA_SUCCESS);
  EXPECT_EQ(reservations_->adopt(there + kGranule, kGranule), CUDA_ERROR_INVALID_VALUE);
  ASSERT_EQ(reservations_->map(there, 2 * kGranule, 0, lent), CUDA_SUCCESS);
  EXPECT_EQ(reservations_->set_access(there, 2 * kGranule, CU_MEM_ACCESS_FLAGS_PROT_READWRITE), CUDA_SUCCESS);
  EXPECT_TRUE(reservations_->covers(there, 2 * kGranule));
  EXPECT_EQ(host_.charged, 0);
  reservations_->revoke(lent);
  EXPECT_TRUE(fake.mapped.empty());
  EXPECT_FALSE(reservations_->covers(there, 1));
  EXPECT_EQ(reservations_->map(there, 2 * kGranule, 0, lent), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(reservations_->free(there, 2 * kGranule), CUDA_SUCCESS);
  EXPECT_TRUE(fake.freed.empty());
  EXPECT_EQ(reservations_->adopt(there, kGranule), CUDA_SUCCESS);
  reservations_.reset();
  EXPECT_EQ(fake.freed, std::vector<uint64_t>{kBase + VGPU_WINDOW_PART_BYTES}) << "the whole part, once";
}

TEST_F(ReservationsTest, OwnAndForeignAddressesAreNotAdopted) {
  for (const uint64_t wrong : std::vector<uint64_t>{kBase, kBase - kGranule, kWindow, kWindow + VGPU_WINDOW_BYTES}) {
    EXPECT_EQ(reservations_->adopt(wrong, 2 * kGranule), CUDA_ERROR_INVALID_VALUE) << std::hex << wrong;
  }
  fake.elsewhere = kBase + VGPU_WINDOW_PART_BYTES;
  EXPECT_EQ(reservations_->adopt(fake.elsewhere, kGranule), CUDA_ERROR_INVALID_VALUE) << "the driver gave others";
  EXPECT_EQ(fake.freed, std::vector{fake.elsewhere + kGranule});
}

TEST_F(ReservationsTest, OnlyWhatIsMappedIsCovered) {
  const uint64_t base = reserve(5 * kGranule);
  const CudaMemoryRef some = memory(2 * kGranule);
  ASSERT_EQ(reservations_->map(base + kGranule, kGranule, 0, some), CUDA_SUCCESS);
  ASSERT_EQ(reservations_->map(base + 2 * kGranule, kGranule, kGranule, some), CUDA_SUCCESS);
  EXPECT_TRUE(heap_->reserves(base));
  EXPECT_FALSE(reservations_->covers(base, 1));
  EXPECT_TRUE(reservations_->covers(base + kGranule, 2 * kGranule));  // over the seam
  EXPECT_TRUE(reservations_->covers(base + 3 * kGranule - 1, 1));
  EXPECT_FALSE(reservations_->covers(base + 3 * kGranule - 1, 2));
  EXPECT_FALSE(reservations_->covers(base + kGranule, ~uint64_t{0}));
  EXPECT_FALSE(heap_->covers(base + kGranule, 1));
}

TEST_F(ReservationsTest, OnlyWhatIsAllocatedIsCoveredByTheHeap) {
  uint64_t small = 0, large = 0;
  ASSERT_EQ(heap_->allocate(nullptr, 1000, &small), CUDA_SUCCESS);
  ASSERT_EQ(heap_->allocate(nullptr, 2 * kGranule, &large), CUDA_SUCCESS);
  EXPECT_TRUE(heap_->covers(small, 1000));
  EXPECT_FALSE(heap_->covers(small, 4096));
  EXPECT_TRUE(heap_->covers(large + 5, 2 * kGranule - 5));
  EXPECT_FALSE(heap_->covers(large + 5, 2 * kGranule));
  EXPECT_FALSE(heap_->covers(large + 5, ~uint64_t{0}));
  EXPECT_FALSE(heap_->covers(kBase + 100 * kGranule, 1));
  EXPECT_EQ(heap_->release(large), CUDA_SUCCESS);
  EXPECT_FALSE(heap_->covers(large, 1));
  EXPECT_TRUE(heap_->reserves(large));
  EXPECT_FALSE(heap_->reserves(kBase + kBytes));
}

TEST_F(ReservationsTest, MappingsDoNotOverlapNorLeaveTheirReservation) {
  const uint64_t base = reserve(4 * kGranule);
  const CudaMemoryRef some = memory(2 * kGranule);
  EXPECT_EQ(reservations_->map(base + kGranule, 2 * kGranule, 0, some), CUDA_SUCCESS);
  EXPECT_EQ(reservations_->map(base, 2 * kGranule, 0, some), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(reservations_->map(base + 2 * kGranule, kGranule, 0, some), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(reservations_->map(base + 3 * kGranule, 2 * kGranule, 0, some), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(reservations_->map(base, kGranule, 2 * kGranule, some), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(reservations_->map(base, 3 * kGranule, 0, some), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(reservations_->map(base, kGranule, ~uint64_t{0}, some), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(reservations_->map(base - kGranule, kGranule, 0, some), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(reservations_->map(base, kGranule, 0, some), CUDA_SUCCESS);
  EXPECT_EQ(reservations_->free(base, 4 * kGranule), CUDA_ERROR_INVALID_VALUE) << "something is mapped";
  EXPECT_EQ(fake.mapped.size(), 2u);
}

TEST_F(ReservationsTest, WholeMappingsAreUnmappedAndNothingElse) {
  uint64_t plain = 0;
  ASSERT_EQ(heap_->allocate(nullptr, 8 * kGranule, &plain), CUDA_SUCCESS);
  const uint64_t base = reserve(4 * kGranule);
  ASSERT_EQ(reservations_->map(base, 2 * kGranule, 0, memory(2 * kGranule)), CUDA_SUCCESS);
  ASSERT_EQ(reservations_->map(base + 2 * kGranule, kGranule, 0, memory(kGranule)), CUDA_SUCCESS);
  EXPECT_EQ(reservations_->unmap(base, kGranule), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(reservations_->unmap(base + kGranule, 2 * kGranule), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(reservations_->unmap(base, 4 * kGranule), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(reservations_->unmap(plain, 8 * kGranule), CUDA_ERROR_INVALID_VALUE) << "the heap's own";
  EXPECT_EQ(reservations_->set_access(plain, 8 * kGranule, 3), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(reservations_->set_access(base, 4 * kGranule, 3), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(reservations_->set_access(base, 3 * kGranule, 3), CUDA_SUCCESS);
  EXPECT_EQ(fake.access_bytes, 3 * kGranule);
  EXPECT_EQ(reservations_->unmap(base, 3 * kGranule), CUDA_SUCCESS);
  EXPECT_EQ(fake.mapped.size(), 1u);
  EXPECT_EQ(reservations_->free(base, 4 * kGranule), CUDA_SUCCESS);
  EXPECT_EQ(heap_->release(plain), CUDA_SUCCESS);
  EXPECT_EQ(host_.charged, 0);
}

TEST_F(ReservationsTest, MemoryCountsAsLongAsSomebodyHasIt) {
  const uint64_t base = reserve(kGranule);
  CudaMemoryRef some = memory(kGranule);
  ASSERT_EQ(reservations_->map(base, kGranule, 0, some), CUDA_SUCCESS);
  some = nullptr;
  EXPECT_EQ(host_.charged, static_cast<int64_t>(kGranule));
  EXPECT_EQ(fake.memory.size(), 1u);
  EXPECT_EQ(reservations_->unmap(base, kGranule), CUDA_SUCCESS);
  EXPECT_EQ(host_.charged, 0);
  EXPECT_TRUE(fake.memory.empty());
}

TEST_F(ReservationsTest, TheEndUnmapsEverything) {
  const uint64_t base = reserve(2 * kGranule);
  ASSERT_EQ(reservations_->map(base, kGranule, 0, memory(kGranule)), CUDA_SUCCESS);
  reservations_ = nullptr;
  EXPECT_TRUE(fake.mapped.empty());
  EXPECT_TRUE(fake.memory.empty());
  EXPECT_EQ(host_.charged, 0);
}

TEST_F(ReservationsTest, TheHeapTellsWhatHoldsAnAllocation) {
  uint64_t small = 0, other = 0, large = 0;
  ASSERT_EQ(heap_->allocate(nullptr, 100, &small), CUDA_SUCCESS);
  ASSERT_EQ(heap_->allocate(nullptr, 100, &other), CUDA_SUCCESS);
  ASSERT_EQ(heap_->allocate(nullptr, 3 * kGranule + 1, &large), CUDA_SUCCESS);
  CUmemGenericAllocationHandle slab = 0, same = 0, own = 0;
  uint64_t bytes = 0, offset = 0;
  ASSERT_TRUE(heap_->share(small, &slab, &bytes, &offset));
  EXPECT_EQ(bytes, kGranule);
  ASSERT_TRUE(heap_->share(other, &same, &bytes, &offset));
  EXPECT_EQ(same, slab);
  EXPECT_EQ(offset, other - small);
  ASSERT_TRUE(heap_->share(large, &own, &bytes, &offset));
  EXPECT_NE(own, slab);
  EXPECT_EQ(bytes, 4 * kGranule);
  EXPECT_EQ(offset, 0u);
  EXPECT_FALSE(heap_->share(large + kGranule, &own, &bytes, &offset));
}

TEST_F(ReservationsTest, WhatWasReleasedIsThereForTheNextOfItsSize) {
  uint64_t first = 0, second = 0, other = 0;
  ASSERT_EQ(heap_->allocate(nullptr, 3 * kGranule - 1, &first), CUDA_SUCCESS);
  const auto charged = host_.charged;
  ASSERT_EQ(heap_->release(first), CUDA_SUCCESS);
  EXPECT_EQ(host_.charged, 0);
  EXPECT_EQ(heap_->release(first), CUDA_ERROR_INVALID_VALUE);
  EXPECT_FALSE(heap_->covers(first, 1));
  ASSERT_EQ(heap_->allocate(nullptr, 2 * kGranule, &other), CUDA_SUCCESS);
  EXPECT_NE(other, first);
  ASSERT_EQ(heap_->allocate(nullptr, 3 * kGranule, &second), CUDA_SUCCESS);
  EXPECT_EQ(second, first);
  EXPECT_EQ(fake.memory.size(), 2u);
  EXPECT_EQ(host_.charged, charged + 2 * static_cast<int64_t>(kGranule));
}

TEST_F(ReservationsTest, LittleIsKeptAndGoesWhenRoomIsWanted) {
  std::vector<uint64_t> all(20);
  for (uint64_t& each : all) ASSERT_EQ(heap_->allocate(nullptr, 2 * kGranule, &each), CUDA_SUCCESS);
  uint64_t large = 0;
  ASSERT_EQ(heap_->allocate(nullptr, 16 * kGranule, &large), CUDA_SUCCESS);
  for (const uint64_t each : all) ASSERT_EQ(heap_->release(each), CUDA_SUCCESS);
  ASSERT_EQ(heap_->release(large), CUDA_SUCCESS);
  EXPECT_EQ(fake.memory.size(), 4u);  // 16 MiB of the small ones
  heap_->trim();
  EXPECT_TRUE(fake.memory.empty());
  EXPECT_TRUE(fake.mapped.empty());
  EXPECT_EQ(host_.charged, 0);
}

TEST_F(ReservationsTest, WhatOthersMayHaveIsNotKept) {
  uint64_t large = 0, bytes = 0, offset = 0;
  CUmemGenericAllocationHandle handle = 0;
  ASSERT_EQ(heap_->allocate(nullptr, 2 * kGranule, &large), CUDA_SUCCESS);
  ASSERT_TRUE(heap_->share(large, &handle, &bytes, &offset));
  ASSERT_EQ(heap_->release(large), CUDA_SUCCESS);
  EXPECT_TRUE(fake.memory.empty());
}

TEST_F(ReservationsTest, AddressesOfWhatIsKeptCanBeHad) {
  uint64_t address = 0, reserved = 0;
  ASSERT_EQ(heap_->allocate(nullptr, 2 * kGranule, &address), CUDA_SUCCESS);
  ASSERT_EQ(heap_->release(address), CUDA_SUCCESS);
  EXPECT_TRUE(heap_->reserve_at(address, kGranule, &reserved));
}

}  // namespace
}  // namespace bandsaw::cuda
