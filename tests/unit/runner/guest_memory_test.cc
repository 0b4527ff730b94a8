#include "backend/runner/memory/guest_memory.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/mman.h>

#include "guest-driver/uapi/vgpu_control.h"
#include "tests/unit/runner/fake_device.h"
#include "tests/unit/runner/guest.h"

namespace bandsaw::runner {
namespace {

constexpr uint64_t kVa = 0x5f0000000000;

class GuestMemoryTest : public testing::Test {
 protected:
  GuestMemoryTest()
      : window_(std::move(Reservation::make(kWindowBytes, {kWindowBase}).value())),
        memory_(std::move(GuestMemory::make(&window_).value())) {
    EXPECT_TRUE(memory_->add_ram(0, ram_.fd(), kRamBytes, 0).ok());
  }
  Status add(uint32_t id, uint64_t va, std::vector<RunnerSegment> segments, uint32_t flags = 0) {
    return memory_->add_region(id, va, flags, segments);
  }
  static RunnerSegment piece(uint64_t offset, uint64_t bytes, uint32_t ram = 0) { return {ram, 0, offset, bytes}; }

  Ram ram_;
  Reservation window_;
  std::unique_ptr<GuestMemory> memory_;
};

TEST_F(GuestMemoryTest, ScatteredPagesLieInOnePiece) {
  ram_.data()[8 * kPage + 5] = std::byte{1};
  ram_.data()[2 * kPage] = std::byte{2};
  ASSERT_TRUE(add(1, kVa, {piece(8 * kPage, kPage), piece(2 * kPage, 2 * kPage)}).ok());
  const GuestSpan span = memory_->find(kVa, 3 * kPage, Access::kWrite);
  ASSERT_TRUE(span);
  EXPECT_EQ(span.data[5], std::byte{1});
  EXPECT_EQ(span.data[kPage], std::byte{2});
  span.data[3 * kPage - 1] = std::byte{3};
  EXPECT_EQ(ram_.data()[4 * kPage - 1], std::byte{3});
}

// A driver that refuses a mapping leaves a gap in the reservation, and another thread's memory may come to lie there.
TEST(ReservationTest, AGapIsReservedAgainUnlessSomethingLiesThere) {
  const Reservation range = std::move(Reservation::make(16 * kPage).value());
  const uint64_t gap = range.base() + 4 * kPage;
  range.release(gap, 8 * kPage);
  EXPECT_TRUE(Reservation::fill_gap(gap, 8 * kPage));
  range.release(gap, 8 * kPage);
  void* const wanted = reinterpret_cast<void*>(gap + kPage);
  auto* const own = static_cast<char*>(
      mmap(wanted, kPage, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED_NOREPLACE, -1, 0));
  ASSERT_EQ(own, wanted);
  *own = 1;
  EXPECT_FALSE(Reservation::fill_gap(gap, 8 * kPage));
  EXPECT_EQ(*own, 1);
}

TEST_F(GuestMemoryTest, AddressesAtAndBeyondTheEdges) {
  ASSERT_TRUE(add(1, kVa, {piece(0, 2 * kPage)}).ok());
  EXPECT_TRUE(memory_->find(kVa, 2 * kPage, Access::kRead));
  EXPECT_TRUE(memory_->find(kVa + 2 * kPage - 1, 1, Access::kRead));
  EXPECT_FALSE(memory_->find(kVa - 1, 1, Access::kRead));
  EXPECT_FALSE(memory_->find(kVa - 1, 2, Access::kRead));
  EXPECT_FALSE(memory_->find(kVa + 2 * kPage, 1, Access::kRead));
  EXPECT_FALSE(memory_->find(kVa + 2 * kPage - 1, 2, Access::kRead));
  EXPECT_FALSE(memory_->find(kVa, 2 * kPage + 1, Access::kRead));
  EXPECT_FALSE(memory_->find(kVa + 1, ~0ull, Access::kRead));
  EXPECT_FALSE(memory_->find(~0ull, 1, Access::kRead));
  EXPECT_FALSE(memory_->find(~0ull, ~0ull, Access::kRead));
}

// As a GPU that reaches memory at the program's own addresses.
struct SameAddresses : FakeDevice {
  explicit SameAddresses(void* at) : FakeDevice(reinterpret_cast<uint64_t>(at), nullptr) {}
  bool same_addresses() const override { return true; }
};

TEST_F(GuestMemoryTest, RegionsStayAwayFromTheRunnersOwnMemory) {
  void* const at = ::mmap(nullptr, FakeDevice::kBytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  ASSERT_NE(at, MAP_FAILED);
  SameAddresses device(at);
  memory_->set_pins(&device);
  const auto stack = reinterpret_cast<uint64_t>(__builtin_frame_address(0)) & ~(kPage - 1);
  constexpr uint64_t kThird = (uint64_t{1} << 47) / 3;
  for (const uint64_t wrong : {uint64_t{0}, uint64_t{kPage}, stack - (64 << 20), kThird / kPage * kPage + kPage,
                               kThird / kPage * kPage + (uint64_t{1} << 39), uint64_t{1} << 47, uint64_t{1} << 62}) {
    EXPECT_EQ(add(1, wrong, {piece(0, kPage)}, VGPU_REGION_DEVICE_VISIBLE).code(), EINVAL) << std::hex << wrong;
  }
  EXPECT_TRUE(add(1, 0x480123456000, {piece(0, kPage)}, VGPU_REGION_DEVICE_VISIBLE).ok());
  EXPECT_TRUE(add(2, 0x550123456000, {piece(0, kPage)}, VGPU_REGION_DEVICE_VISIBLE).ok());
  EXPECT_TRUE(memory_->find(0x480123456000, kPage, Access::kRead));
  for (const uint32_t id : {1, 2}) EXPECT_TRUE(memory_->drop_region(id, nullptr).ok());
  memory_->set_pins(nullptr);
}

// As a GPU in a PV dom0, and how often it was asked to register pages.
struct NoGrants : FakeDevice {
  explicit NoGrants(void* at) : FakeDevice(reinterpret_cast<uint64_t>(at), nullptr) {}
  bool registers_grants() const override { return false; }
  CUresult host_pin(void*, uint64_t, bool) override { return ++registered, CUDA_SUCCESS; }
  int registered = 0;
};

TEST_F(GuestMemoryTest, GrantedPagesAreNotRegisteredWhereTheGpuWouldNotReachThem) {
  void* const at = ::mmap(nullptr, FakeDevice::kBytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  ASSERT_NE(at, MAP_FAILED);
  NoGrants device(at);
  memory_->set_pins(&device);
  // A character device, as gntdev is.
  ASSERT_TRUE(memory_->add_ram(5, UniqueFd(::open("/dev/zero", O_RDWR | O_CLOEXEC)), 4 * kPage, 0).ok());
  EXPECT_TRUE(add(1, kVa, {piece(0, kPage, 5)}).ok());
  EXPECT_TRUE(memory_->find(kVa, kPage, Access::kWrite)) << "what is copied is there all the same";
  const Status refused = add(2, kVa + (1 << 20), {piece(0, kPage, 5)}, VGPU_REGION_DEVICE_VISIBLE);
  EXPECT_EQ(refused.code(), ENOMEM);
  EXPECT_NE(refused.message().find("PVH"), std::string::npos);
  EXPECT_EQ(device.registered, 0);
  EXPECT_TRUE(add(3, kVa + (2 << 20), {piece(0, kPage)}).ok());
  EXPECT_EQ(device.registered, 1);
  for (const uint32_t id : {1, 3}) EXPECT_TRUE(memory_->drop_region(id, nullptr).ok());
  memory_->set_pins(nullptr);
}

TEST_F(GuestMemoryTest, SegmentsMustBeWholePagesOfKnownRam) {
  EXPECT_EQ(add(1, kVa, {}).code(), EINVAL);
  EXPECT_EQ(add(1, kVa, {piece(1, kPage)}).code(), EINVAL);
  EXPECT_EQ(add(1, kVa, {piece(0, 100)}).code(), EINVAL);
  EXPECT_EQ(add(1, kVa, {piece(0, 0)}).code(), EINVAL);
  EXPECT_EQ(add(1, kVa + 1, {piece(0, kPage)}).code(), EINVAL);
  EXPECT_EQ(add(1, kVa, {piece(0, kPage, 9)}).code(), EFAULT);
  EXPECT_EQ(add(1, kVa, {piece(kRamBytes, kPage)}).code(), EFAULT);
  EXPECT_EQ(add(1, kVa, {piece(kRamBytes - kPage, 2 * kPage)}).code(), EFAULT);
  EXPECT_EQ(add(1, kVa, {piece(~0ull - kPage + 1, kPage)}).code(), EFAULT);
  EXPECT_EQ(add(1, 0ull - kPage, {piece(0, 2 * kPage)}).code(), EINVAL);
  EXPECT_TRUE(add(1, kVa, {piece(kRamBytes - kPage, kPage)}).ok());
  EXPECT_EQ(add(1, kVa + kPage, {piece(0, kPage)}).code(), EEXIST);
}

TEST_F(GuestMemoryTest, RamMustLieInItsDescriptor) {
  EXPECT_EQ(memory_->add_ram(1, ram_.fd(), kRamBytes + kPage, 0).code(), EINVAL);
  EXPECT_EQ(memory_->add_ram(1, ram_.fd(), kPage, ~0ull).code(), EINVAL);
  EXPECT_EQ(memory_->add_ram(0, ram_.fd(), kPage, 0).code(), EEXIST);
  EXPECT_TRUE(memory_->add_ram(1, ram_.fd(), kPage, kRamBytes - kPage).ok());
  EXPECT_TRUE(memory_->drop_ram(1).ok());
  EXPECT_EQ(memory_->drop_ram(1).code(), ENOENT);
}

TEST_F(GuestMemoryTest, ReadOnlyRegionsAreNoDestination) {
  ASSERT_TRUE(add(1, kVa, {piece(0, kPage)}, VGPU_REGION_READ_ONLY).ok());
  EXPECT_TRUE(memory_->find(kVa, 8, Access::kRead));
  EXPECT_FALSE(memory_->find(kVa, 8, Access::kWrite));
}

TEST_F(GuestMemoryTest, VisibleRegionsInTheWindowLieAtTheirOwnAddress) {
  const uint64_t va = kWindowBase + 16 * kPage;
  ASSERT_TRUE(add(1, va, {piece(0, 2 * kPage)}, VGPU_REGION_DEVICE_VISIBLE).ok());
  EXPECT_EQ(reinterpret_cast<uint64_t>(memory_->find(va, 1, Access::kRead).data), va);
  EXPECT_EQ(add(2, va + kPage, {piece(0, 2 * kPage)}, VGPU_REGION_DEVICE_VISIBLE).code(), EEXIST);
  EXPECT_EQ(add(2, va - kPage, {piece(0, 2 * kPage)}, VGPU_REGION_DEVICE_VISIBLE).code(), EEXIST);
  EXPECT_TRUE(add(2, va + 2 * kPage, {piece(0, kPage)}, VGPU_REGION_DEVICE_VISIBLE).ok());
  EXPECT_TRUE(add(3, va - kPage, {piece(0, kPage)}, VGPU_REGION_DEVICE_VISIBLE).ok());
  ASSERT_TRUE(memory_->drop_region(1, nullptr).ok());
  EXPECT_TRUE(add(1, va, {piece(4 * kPage, 2 * kPage)}, VGPU_REGION_DEVICE_VISIBLE).ok());
}

TEST_F(GuestMemoryTest, NothingIsMappedOverTheDevicesHalf) {
  const uint64_t half = kWindowBase + VGPU_WINDOW_DEVICE_OFFSET;
  EXPECT_EQ(add(1, half, {piece(0, kPage)}, VGPU_REGION_DEVICE_VISIBLE).code(), EINVAL);
  EXPECT_EQ(add(1, half - kPage, {piece(0, 2 * kPage)}, VGPU_REGION_DEVICE_VISIBLE).code(), EINVAL);
  EXPECT_EQ(add(1, kWindowBase - kPage, {piece(0, 2 * kPage)}, VGPU_REGION_DEVICE_VISIBLE).code(), EINVAL);
  EXPECT_TRUE(add(1, half - kPage, {piece(0, kPage)}, VGPU_REGION_DEVICE_VISIBLE).ok());
}

TEST_F(GuestMemoryTest, OverlappingRegionsAreBothFound) {
  ASSERT_TRUE(add(1, kVa, {piece(0, 8 * kPage)}).ok());
  ASSERT_TRUE(add(2, kVa + kPage, {piece(kPage, kPage)}).ok());
  EXPECT_TRUE(memory_->find(kVa + kPage, 4 * kPage, Access::kRead));
  EXPECT_TRUE(memory_->find(kVa + 2 * kPage, 1, Access::kRead));
  ASSERT_TRUE(memory_->drop_region(1, nullptr).ok());
  EXPECT_FALSE(memory_->find(kVa + kPage, 4 * kPage, Access::kRead));
  EXPECT_TRUE(memory_->find(kVa + kPage, kPage, Access::kRead));
}

TEST_F(GuestMemoryTest, KernelsSeeRegisteredMemoryAsLongAsItIsThere) {
  EXPECT_EQ(memory_->visible_host(kVa, 8), nullptr);
  ASSERT_TRUE(add(1, kVa, {piece(0, kPage)}, VGPU_REGION_DEVICE_VISIBLE).ok());
  ASSERT_TRUE(add(2, kVa + kPage, {piece(0, kPage)}).ok());
  EXPECT_NE(memory_->visible_host(kVa + kPage - 8, 8), nullptr);
  EXPECT_EQ(memory_->visible_host(kVa + kPage - 4, 8), nullptr);
  EXPECT_EQ(memory_->visible_host(kVa + kPage, 8), nullptr);
  ASSERT_TRUE(memory_->drop_region(1, nullptr).ok());
  EXPECT_EQ(memory_->visible_host(kVa, 8), nullptr);
}

TEST_F(GuestMemoryTest, PointersFindTheirWayBack) {
  ASSERT_TRUE(add(1, kVa, {piece(0, kPage)}).ok());
  const uint64_t pointer = reinterpret_cast<uint64_t>(memory_->find(kVa + 8, 8, Access::kRead).data);
  const GuestSpan span = memory_->find_pointer(pointer, 8);
  ASSERT_TRUE(span);
  EXPECT_EQ(span.region->va(), kVa);
  EXPECT_FALSE(memory_->find_pointer(pointer, kPage));
  EXPECT_FALSE(memory_->find_pointer(pointer - 9, 1));
}

TEST_F(GuestMemoryTest, AliasRangesAreUsedAgain) {
  for (uint32_t i = 0; i < 2000; ++i) {
    ASSERT_TRUE(add(i, kVa, {piece(0, kRamBytes)}).ok());
    ASSERT_TRUE(memory_->drop_region(i, nullptr).ok());
  }
}

}  // namespace
}  // namespace bandsaw::runner
