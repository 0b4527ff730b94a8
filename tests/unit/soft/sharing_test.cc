// Virtual memory management, and memory and events that another process has: a second device stands for it.
#include <sys/mman.h>

#include "backend/device/soft/shared_event.h"
#include "backend/device/soft/shared_memory.h"
#include "tests/unit/soft/fixture.h"

namespace bandsaw::soft {
namespace {

struct ExportedThing {
  CUresult result = CUDA_ERROR_UNKNOWN;
  UniqueFd fd;
  uint64_t bytes = 0, offset = 0;
};

class SharingTest : public SoftDeviceTest {
 protected:
  MemoryRef create(uint64_t bytes) {
    MemoryRef memory;
    vgpu_memory_props made{};
    EXPECT_EQ(device->memory_create({}, bytes, &memory, &made), CUDA_SUCCESS);
    return memory;
  }
  uint64_t mapped(const MemoryRef& memory, uint64_t bytes) {
    uint64_t at = 0;
    EXPECT_EQ(device->address_reserve(bytes, 0, &at), CUDA_SUCCESS);
    EXPECT_EQ(device->memory_map(at, bytes, 0, memory), CUDA_SUCCESS);
    EXPECT_EQ(device->memory_set_access(at, bytes, CU_MEM_ACCESS_FLAGS_PROT_READWRITE), CUDA_SUCCESS);
    return at;
  }
  ExportedThing exported(const MemoryRef& memory, uint64_t address) {
    std::promise<ExportedThing> promise;
    device->memory_export(memory, address, [&](CUresult result, UniqueFd fd, uint64_t bytes, uint64_t offset) {
      promise.set_value({result, std::move(fd), bytes, offset});
    });
    return promise.get_future().get();
  }
};

TEST_F(SharingTest, MemoryIsMappedTwice) {
  const MemoryRef memory = create(2 * kGranule);
  EXPECT_EQ(host.charged, static_cast<int64_t>(2 * kGranule));
  const uint64_t a = mapped(memory, 2 * kGranule), b = mapped(memory, kGranule);
  EXPECT_EQ(a % kGranule, 0u);
  int value = 7, got = 0;
  ASSERT_EQ(copy_in(legacy, a + 8, &value, sizeof(value)), CUDA_SUCCESS);
  ASSERT_EQ(copy_out(legacy, &got, b + 8, sizeof(got)), CUDA_SUCCESS);
  ASSERT_EQ(sync(legacy), CUDA_SUCCESS);
  EXPECT_EQ(got, 7);
  uint32_t access = 0;
  EXPECT_EQ(device->memory_get_access(a + kGranule, &access), CUDA_SUCCESS);
  EXPECT_EQ(access, static_cast<uint32_t>(CU_MEM_ACCESS_FLAGS_PROT_READWRITE));
  EXPECT_EQ(device->memory_unmap(a, 2 * kGranule), CUDA_SUCCESS);
  EXPECT_EQ(copy_in(legacy, a, &value, sizeof(value)), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(device->address_free(a, 2 * kGranule), CUDA_SUCCESS);
}

TEST_F(SharingTest, WrongSizesAndAddressesAreRefused) {
  MemoryRef none;
  vgpu_memory_props made{};
  EXPECT_EQ(device->memory_create({}, kGranule / 2, &none, &made), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(device->memory_create({}, 4ull << 30, &none, &made), CUDA_ERROR_OUT_OF_MEMORY);
  uint64_t at = 0;
  EXPECT_EQ(device->address_reserve(~uint64_t{0}, 0, &at), CUDA_ERROR_OUT_OF_MEMORY);
  EXPECT_EQ(device->address_reserve(kGranule, uint64_t{1} << 63, &at), CUDA_ERROR_OUT_OF_MEMORY);
  ASSERT_EQ(device->address_reserve(4 * kGranule, 0, &at), CUDA_SUCCESS);
  const MemoryRef memory = create(2 * kGranule);
  EXPECT_EQ(device->memory_map(at + 4096, kGranule, 0, memory), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(device->memory_map(at, kGranule, 4096, memory), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(device->memory_map(at, kGranule + 4096, 0, memory), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(device->memory_map(at, 3 * kGranule, 0, memory), CUDA_ERROR_INVALID_VALUE);
  const uint64_t plain = alloc(kGranule);
  EXPECT_EQ(device->memory_map(plain, kGranule, 0, memory), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(device->memory_set_access(plain, kGranule, 0), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(device->memory_unmap(plain, kGranule), CUDA_ERROR_INVALID_VALUE);
}

TEST_F(SharingTest, AnAllocationGoesToAnotherProcess) {
  const uint64_t address = alloc(10000);
  int value = 11, got = 0;
  ASSERT_EQ(copy_in(legacy, address + 9996, &value, sizeof(value)), CUDA_SUCCESS);
  const ExportedThing thing = exported(nullptr, address);
  ASSERT_EQ(thing.result, CUDA_SUCCESS);
  EXPECT_EQ(thing.offset, 0u);
  EXPECT_EQ(exported(nullptr, address + 16).result, CUDA_ERROR_INVALID_VALUE);
  const int64_t before = host.charged;
  MemoryRef other;
  ASSERT_EQ(device->memory_import(thing.fd.get(), thing.bytes, &other), CUDA_SUCCESS);
  EXPECT_EQ(host.charged - before, static_cast<int64_t>(thing.bytes));
  const uint64_t there = mapped(other, thing.bytes);
  ASSERT_EQ(copy_out(legacy, &got, there + 9996, sizeof(got)), CUDA_SUCCESS);
  ASSERT_EQ(sync(legacy), CUDA_SUCCESS);
  EXPECT_EQ(got, 11);
  value = 12;
  ASSERT_EQ(copy_in(legacy, there, &value, sizeof(value)), CUDA_SUCCESS);
  ASSERT_EQ(copy_out(legacy, &got, address, sizeof(got)), CUDA_SUCCESS);
  ASSERT_EQ(sync(legacy), CUDA_SUCCESS);
  EXPECT_EQ(got, 12);
  EXPECT_EQ(free(address), CUDA_SUCCESS);
  ASSERT_EQ(copy_out(legacy, &got, there, sizeof(got)), CUDA_SUCCESS);
  ASSERT_EQ(sync(legacy), CUDA_SUCCESS);
  EXPECT_EQ(got, 12) << "who has it keeps it";
}

// In another part of the window; not counted here; gone when the owner wants it back.
TEST_F(SharingTest, MemoryIsBorrowed) {
  const uint64_t elsewhere = alloc(4096) / VGPU_WINDOW_PART_BYTES * VGPU_WINDOW_PART_BYTES + 2 * VGPU_WINDOW_PART_BYTES;
  const UniqueFd file = make_sealed_file("test", 3 * kPage);
  const int64_t before = host.charged;
  MemoryRef memory;
  ASSERT_EQ(device->memory_borrow(file.get(), 3 * kPage, &memory), CUDA_SUCCESS);
  EXPECT_EQ(host.charged, before);
  const uint64_t at = elsewhere + kPage;
  EXPECT_EQ(device->memory_map(at, 3 * kPage, 0, memory), CUDA_ERROR_INVALID_VALUE) << "nobody has reserved it";
  ASSERT_EQ(device->address_adopt(at, 3 * kPage), CUDA_SUCCESS);
  ASSERT_EQ(device->memory_map(at, 3 * kPage, 0, memory), CUDA_SUCCESS);
  ASSERT_EQ(device->memory_set_access(at, 3 * kPage, CU_MEM_ACCESS_FLAGS_PROT_READWRITE), CUDA_SUCCESS);
  int value = 5, got = 0;
  ASSERT_EQ(copy_in(legacy, at + 16, &value, sizeof(value)), CUDA_SUCCESS);
  ASSERT_EQ(sync(legacy), CUDA_SUCCESS);
  EXPECT_EQ(::pread(file.get(), &got, sizeof(got), 16), 4);
  EXPECT_EQ(got, 5);
  device->memory_revoke(memory);
  EXPECT_EQ(copy_in(legacy, at + 16, &value, sizeof(value)), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(device->memory_map(at, 3 * kPage, 0, memory), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(device->memory_unmap(at, 3 * kPage), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(device->address_free(at, 3 * kPage), CUDA_SUCCESS);
}

// What a guest may only read it cannot write, whatever it asks for, and whoever else has the descriptor cannot either.
TEST_F(SharingTest, ASegmentIsReadWhereItMayNotBeWritten) {
  constexpr uint64_t kBytes = 2 << 20;
  const auto made = make_soft_segment(kBytes);
  ASSERT_TRUE(made.ok());
  const int read = made.value().read.get();
  EXPECT_EQ(::mmap(nullptr, kBytes, PROT_READ | PROT_WRITE, MAP_SHARED, read, 0), MAP_FAILED);
  const int value = 5;
  EXPECT_LT(::pwrite(read, &value, sizeof value, 0), 0);
  ASSERT_EQ(::pwrite(made.value().write.get(), &value, sizeof value, 0), 4);
  MemoryRef memory;
  ASSERT_EQ(device->memory_borrow(read, kBytes, &memory), CUDA_SUCCESS);
  uint64_t at = 0;
  ASSERT_EQ(device->address_reserve(kBytes, 0, &at), CUDA_SUCCESS);
  ASSERT_EQ(device->memory_map(at, kBytes, 0, memory), CUDA_SUCCESS);
  EXPECT_NE(device->memory_set_access(at, kBytes, CU_MEM_ACCESS_FLAGS_PROT_READWRITE), CUDA_SUCCESS)
      << "the host's kernel refuses it";
  memory->read_only = true;
  EXPECT_EQ(device->memory_set_access(at, kBytes, CU_MEM_ACCESS_FLAGS_PROT_READWRITE), CUDA_ERROR_NOT_PERMITTED);
  ASSERT_EQ(device->memory_set_access(at, kBytes, CU_MEM_ACCESS_FLAGS_PROT_READ), CUDA_SUCCESS);
  int got = 0;
  ASSERT_EQ(copy_out(legacy, &got, at, sizeof got), CUDA_SUCCESS);
  ASSERT_EQ(sync(legacy), CUDA_SUCCESS);
  EXPECT_EQ(got, 5);
}

TEST_F(SharingTest, AddressesAreAdoptedWhereNobodyHasThem) {
  const uint64_t own = alloc(4096);
  const uint64_t elsewhere = own / VGPU_WINDOW_PART_BYTES * VGPU_WINDOW_PART_BYTES + 2 * VGPU_WINDOW_PART_BYTES;
  for (const uint64_t wrong :
       std::vector<uint64_t>{0, own, elsewhere + 1, test_window(), test_window() + VGPU_WINDOW_BYTES,
                             test_window() + VGPU_WINDOW_BYTES - kPage, ~uint64_t{0} - kPage + 1}) {
    EXPECT_EQ(device->address_adopt(wrong, 2 * kPage), CUDA_ERROR_INVALID_VALUE) << std::hex << wrong;
  }
  EXPECT_EQ(device->address_adopt(elsewhere, ~uint64_t{0}), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(device->address_adopt(elsewhere, 0), CUDA_ERROR_INVALID_VALUE);
  ASSERT_EQ(device->address_adopt(elsewhere, 4 * kPage), CUDA_SUCCESS);
  for (const uint64_t taken : {elsewhere, elsewhere - kPage, elsewhere + 3 * kPage}) {
    EXPECT_EQ(device->address_adopt(taken, 2 * kPage), CUDA_ERROR_INVALID_VALUE);
  }
  EXPECT_EQ(device->address_adopt(elsewhere + 4 * kPage, kPage), CUDA_SUCCESS);
  EXPECT_EQ(device->address_free(elsewhere, 4 * kPage), CUDA_SUCCESS);
  EXPECT_EQ(device->address_adopt(elsewhere, kPage), CUDA_SUCCESS);
}

// Once something was shared, what is allocated next needs no waiting for it.
TEST_F(SharingTest, LaterAllocationsAreBornShared) {
  ASSERT_EQ(exported(nullptr, alloc(100)).result, CUDA_SUCCESS);
  const uint64_t address = alloc(100);
  int value = 3, got = 0;
  ASSERT_EQ(copy_in(legacy, address, &value, sizeof(value)), CUDA_SUCCESS);
  ASSERT_EQ(sync(legacy), CUDA_SUCCESS);
  const ExportedThing thing = exported(nullptr, address);
  ASSERT_EQ(thing.result, CUDA_SUCCESS);
  EXPECT_EQ(::pread(thing.fd.get(), &got, sizeof(got), 0), 4);
  EXPECT_EQ(got, 3);
  EXPECT_EQ(free(address), CUDA_SUCCESS);
}

TEST_F(SharingTest, FilesThatAreNotSealedAreRefused) {
  const UniqueFd open(::memfd_create("test", MFD_CLOEXEC | MFD_ALLOW_SEALING));
  ASSERT_EQ(::ftruncate(open.get(), kGranule), 0);
  MemoryRef memory;
  EXPECT_EQ(device->memory_import(open.get(), kGranule, &memory), CUDA_ERROR_INVALID_VALUE);
  const UniqueFd sealed = make_sealed_file("test", kGranule);
  EXPECT_EQ(device->memory_import(sealed.get(), 2 * kGranule, &memory), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(device->memory_import(sealed.get(), kGranule, &memory), CUDA_SUCCESS);
  EventRef event;
  EXPECT_EQ(device->event_import(context, {}, open.get(), &event), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(device->event_import(context, {}, -1, &event), CUDA_ERROR_INVALID_VALUE);
}

TEST_F(SharingTest, EventsEndForAllWhoHaveThem) {
  const EventRef own = event(CU_EVENT_INTERPROCESS | CU_EVENT_DISABLE_TIMING);
  Device::EventToken token{};
  UniqueFd fd;
  ASSERT_EQ(device->event_export(own, &token, &fd), CUDA_SUCCESS);
  EXPECT_EQ(device->event_export(event(), &token, &fd), CUDA_ERROR_INVALID_HANDLE);
  EventRef other;
  ASSERT_EQ(device->event_import(context, token, fd.get(), &other), CUDA_SUCCESS);
  EXPECT_EQ(device->event_query(other), CUDA_SUCCESS);
  const uint64_t word = alloc(4);
  const StreamRef first = stream(), second = stream();
  ASSERT_EQ(device->wait_value(first, word, 1, 4, CU_STREAM_WAIT_VALUE_GEQ), CUDA_SUCCESS);
  ASSERT_EQ(device->event_record(own, first, 0), CUDA_SUCCESS);
  EXPECT_EQ(device->event_query(other), CUDA_ERROR_NOT_READY);
  ASSERT_EQ(device->stream_wait_event(second, other, 0), CUDA_SUCCESS);
  EXPECT_EQ(device->stream_query(second), CUDA_ERROR_NOT_READY);
  *reinterpret_cast<std::atomic<uint32_t>*>(word) = 1;
  EXPECT_EQ(wait_for([&](Done done) { device->event_synchronize(other, done); }), CUDA_SUCCESS);
  EXPECT_EQ(sync(second), CUDA_SUCCESS);
  EXPECT_EQ(device->event_query(other), CUDA_SUCCESS);
}

}  // namespace
}  // namespace bandsaw::soft
