// Allocations of chunks that move between a GPU and host memory, on a driver of our own.
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <chrono>
#include <future>
#include <set>
#include <thread>
#include <utility>

#include "backend/device/device.h"
#include "guest-driver/uapi/vgpu_control.h"
#include "tests/unit/cuda/fake_driver.h"
#include "tests/unit/cuda/fake_host.h"

namespace bandsaw::cuda {
namespace {

class FakeBook final : public swap::Book {
 public:
  uint64_t chunk_bytes() const override { return 4 * kMiB; }
  bool charge(int64_t bytes, bool on_device) override {
    if (bytes > room[on_device]) return false;
    room[on_device] -= bytes;
    return true;
  }
  bool charge_move(uint64_t bytes, bool to_device) override {
    const auto change = static_cast<int64_t>(bytes);
    if (change > room[to_device]) return false;
    room[to_device] -= change, room[!to_device] += change;
    return true;
  }
  void exchanged(uint64_t) override { ++exchanges; }
  void add(uint64_t, uint64_t address, uint64_t, bool) override { chunks.insert(address); }
  void remove(uint64_t address) override { chunks.erase(address); }
  bool keep(int64_t bytes) override {
    if (bytes > keeps) return ++refused, false;
    keeps -= bytes;
    return true;
  }
  void made(uint64_t bytes) override { host_memory += bytes; }
  void pin(uint64_t) override {}

  int64_t keeps = 8 * kMiB;
  std::atomic<int> refused{0};
  std::atomic<uint64_t> host_memory{0};              // made
  std::array<int64_t, 2> room{16 * kMiB, 8 * kMiB};  // of the host, of the device
  std::set<uint64_t> chunks;
  int exchanges = 0;
};

struct SwappingHost final : FakeHost {
  swap::Book* swap_book() override { return &book; }
  FakeBook book;
};

class CudaChunks : public ::testing::Test {
 protected:
  CudaChunks() {
    device_ = new_fake_device(&host_);
    EXPECT_EQ(device_->context_create(0, &context_), CUDA_SUCCESS);
    before_ = host_.book.room;
  }
  ~CudaChunks() override {
    context_.reset();
    device_.reset();
    EXPECT_EQ(host_.book.room, before_) << "memory left behind";
    EXPECT_TRUE(host_.book.chunks.empty());
  }
  uint64_t allocate(uint64_t bytes) {
    uint64_t address = 0;
    EXPECT_EQ(device_->memory_alloc(context_, bytes, &address), CUDA_SUCCESS);
    return address;
  }
  void free(uint64_t address) {
    std::promise<CUresult> result;
    device_->memory_free(address, [&](CUresult outcome) { result.set_value(outcome); });
    EXPECT_EQ(result.get_future().get(), CUDA_SUCCESS);
  }
  void leaves_and_returns(uint64_t more);
  // INVALID_VALUE: nothing moves and nothing is wrong, as of a chunk that has been freed.
  CUresult move(uint64_t chunk, bool to_device) {
    const std::vector<uint64_t> one{chunk}, none;
    bool any = false;
    const CUresult result = device_->chunks_move(
        {to_device ? none : one, to_device ? one : none, 8 * kMiB, [&](uint64_t, bool) { any = true; }});
    return result == CUDA_SUCCESS && !any ? CUDA_ERROR_INVALID_VALUE : result;
  }
  // What leaves is left with nothing at its address.
  CUresult move_apart(const std::vector<uint64_t>& out, const std::vector<uint64_t>& in) {
    return device_->chunks_move({out, in, 8 * kMiB, [](uint64_t, bool) {}, true});
  }
  static FakeGpu::Memory& memory_at(uint64_t address) {
    auto& gpu = fake_gpu();
    return gpu.memory.at(gpu.mapped.at(address));
  }

  SwappingHost host_;
  std::unique_ptr<Device> device_;
  ContextRef context_;
  std::array<int64_t, 2> before_{};
};

TEST_F(CudaChunks, WhatDoesNotFitLiesInHostMemory) {
  const uint64_t address = allocate(14 * kMiB);
  EXPECT_TRUE(memory_at(address).on_device && memory_at(address + 4 * kMiB).on_device);
  EXPECT_FALSE(memory_at(address + 8 * kMiB).on_device || memory_at(address + 12 * kMiB).on_device);
  EXPECT_EQ(host_.book.room[true], 0);
  uint64_t more = 0;
  EXPECT_EQ(device_->memory_alloc(context_, 12 * kMiB, &more), CUDA_ERROR_OUT_OF_MEMORY);
  EXPECT_EQ(host_.book.room[false], 10 * kMiB);
  free(address);
}

TEST_F(CudaChunks, AMovedChunkKeepsItsAddressAndItsBytes) {
  const uint64_t address = allocate(12 * kMiB), swapped = address + 8 * kMiB;
  memory_at(address).content = 7, memory_at(swapped).content = 9;
  const size_t handles = fake_gpu().memory.size(), mappings = fake_gpu().mapped.size();
  EXPECT_EQ(move(swapped, true), CUDA_ERROR_OUT_OF_MEMORY);
  EXPECT_EQ(move(address, false), CUDA_SUCCESS);
  EXPECT_EQ(move(swapped, true), CUDA_SUCCESS);
  EXPECT_FALSE(memory_at(address).on_device);
  EXPECT_TRUE(memory_at(swapped).on_device);
  EXPECT_EQ(memory_at(address).content, 7);
  EXPECT_EQ(memory_at(swapped).content, 9);
  EXPECT_EQ(fake_gpu().memory.size(), handles + 1) << "host memory that is kept for the next move";
  EXPECT_EQ(fake_gpu().mapped.size(), mappings + 1) << "host memory stays mapped beside its chunk";
  EXPECT_EQ(move(swapped, true), CUDA_ERROR_INVALID_VALUE);
  free(address);
  EXPECT_EQ(move(address, true), CUDA_ERROR_INVALID_VALUE);
}

TEST_F(CudaChunks, ChunksChangePlacesWithoutNewHostMemory) {
  const uint64_t address = allocate(16 * kMiB);
  const std::vector<uint64_t> first{address, address + 4 * kMiB}, last{address + 8 * kMiB, address + 12 * kMiB};
  for (int i = 0; i < 4; ++i) memory_at(address + i * 4 * kMiB).content = 10 + i;
  int moves = 0;
  const auto moved = [&](uint64_t chunk, bool to_device) {
    ++moves;
    EXPECT_EQ(memory_at(chunk).on_device, to_device);
  };
  EXPECT_EQ(device_->chunks_move({first, last, 0, moved}), CUDA_SUCCESS);
  const auto made = fake_gpu().host_memory_made;
  const uint64_t counted = host_.book.host_memory;
  for (int turn = 0; turn < 3; ++turn) {
    EXPECT_EQ(device_->chunks_move({turn % 2 ? first : last, turn % 2 ? last : first, 0, moved}), CUDA_SUCCESS);
  }
  EXPECT_EQ(moves, 16);
  EXPECT_EQ(fake_gpu().host_memory_made, made);
  EXPECT_EQ(host_.book.host_memory, counted);
  EXPECT_GT(counted, 0u);
  for (int i = 0; i < 4; ++i) EXPECT_EQ(memory_at(address + i * 4 * kMiB).content, 10 + i);
  EXPECT_EQ(host_.book.room[true], 0);
  free(address);
}

TEST_F(CudaChunks, AFullHostKeepsChunksOnTheDeviceAndNothingIsLost) {
  const uint64_t address = allocate(16 * kMiB), on_device = address, swapped = address + 8 * kMiB;
  for (int i = 0; i < 4; ++i) memory_at(address + i * 4 * kMiB).content = 20 + i;
  const int64_t host = std::exchange(host_.book.room[false], 0), keeps = std::exchange(host_.book.keeps, 0);
  const auto charged = host_.book.room;
  int moves = 0;
  EXPECT_EQ(device_->chunks_move({{on_device}, {swapped}, 0, [&](uint64_t, bool) { ++moves; }}),
            CUDA_ERROR_OUT_OF_MEMORY);
  EXPECT_EQ(moves, 0);
  EXPECT_EQ(host_.book.room, charged);
  EXPECT_TRUE(memory_at(on_device).on_device);
  EXPECT_FALSE(memory_at(swapped).on_device);
  for (int i = 0; i < 4; ++i) EXPECT_EQ(memory_at(address + i * 4 * kMiB).content, 20 + i);
  // What changes places needs only what may be kept beside.
  host_.book.keeps = keeps;
  EXPECT_EQ(device_->chunks_move({{on_device}, {swapped}, 0, [&](uint64_t, bool) { ++moves; }}), CUDA_SUCCESS);
  EXPECT_EQ(moves, 2);
  EXPECT_EQ(host_.book.exchanges, 1);
  EXPECT_EQ(host_.book.room, charged);
  EXPECT_EQ(memory_at(on_device).content, 20);
  EXPECT_EQ(memory_at(swapped).content, 22);
  host_.book.room[false] = host;
  free(address);
}

TEST_F(CudaChunks, APairStaysWhereTheDriverRefusesItsMappings) {
  const uint64_t address = allocate(12 * kMiB), on_device = address, swapped = address + 8 * kMiB;
  memory_at(on_device).content = 5, memory_at(swapped).content = 6;
  const auto charged = host_.book.room;
  // Where the one that goes is copied to, which then stays mapped; the one that comes, at its address; the one that has
  // gone, at its own.
  for (const int failing : {1, 2, 2}) {
    fake_gpu().map_failures = failing;
    EXPECT_EQ(device_->chunks_move({{on_device}, {swapped}, 0, [](uint64_t, bool) {}}), CUDA_ERROR_UNKNOWN);
    EXPECT_TRUE(memory_at(on_device).on_device);
    EXPECT_FALSE(memory_at(swapped).on_device);
    EXPECT_EQ(memory_at(on_device).content, 5);
    EXPECT_EQ(memory_at(swapped).content, 6);
    EXPECT_EQ(host_.book.room, charged);
  }
  EXPECT_EQ(host_.poisonings, 0);
  free(address);
}

TEST_F(CudaChunks, WhatComesTakesThePlaceOfWhatGoesAndNoOtherMemory) {
  const uint64_t address = allocate(16 * kMiB);
  for (int i = 0; i < 4; ++i) memory_at(address + i * 4 * kMiB).content = 30 + i;
  const auto on_device = [] {
    return std::count_if(fake_gpu().memory.begin(), fake_gpu().memory.end(),
                         [](const auto& one) { return one.second.on_device; });
  };
  const auto before = on_device();
  EXPECT_EQ(device_->chunks_move({{address, address + 4 * kMiB},
                                  {address + 8 * kMiB, address + 12 * kMiB},
                                  0,
                                  [&](uint64_t, bool) { EXPECT_EQ(on_device(), before); }}),
            CUDA_SUCCESS);
  EXPECT_EQ(host_.book.exchanges, 2);
  for (int i = 0; i < 4; ++i) EXPECT_EQ(memory_at(address + i * 4 * kMiB).content, 30 + i);
  free(address);
}

TEST_F(CudaChunks, AChunkStaysWhereTheDriverRefusesItsMove) {
  const uint64_t address = allocate(4 * kMiB);
  memory_at(address).content = 5;
  const auto charged = host_.book.room;
  for (const int failing : {1, 2}) {  // where it is copied to, and at its own address
    fake_gpu().map_failures = failing;
    EXPECT_EQ(move(address, false), CUDA_ERROR_UNKNOWN);
    EXPECT_TRUE(memory_at(address).on_device);
    EXPECT_EQ(memory_at(address).content, 5);
    EXPECT_EQ(host_.book.room, charged);
  }
  EXPECT_EQ(host_.poisonings, 0);
  EXPECT_EQ(move(address, false), CUDA_SUCCESS);
  free(address);
}

TEST_F(CudaChunks, AChunkMayLeaveWithNothingAtItsAddress) {
  const uint64_t address = allocate(4 * kMiB);
  memory_at(address).content = 7;
  const size_t mappings = fake_gpu().mapped.size();
  EXPECT_EQ(move_apart({address}, {}), CUDA_SUCCESS);
  EXPECT_FALSE(fake_gpu().mapped.contains(address));
  EXPECT_EQ(fake_gpu().mapped.size(), mappings) << "it is beside";
  EXPECT_EQ(device_->chunks_reach({address, address + 4 * kMiB}), CUDA_SUCCESS);
  EXPECT_FALSE(memory_at(address).on_device);
  EXPECT_EQ(memory_at(address).content, 7);
  EXPECT_EQ(device_->chunks_reach({address}), CUDA_SUCCESS) << "it is there already";
  EXPECT_EQ(move(address, true), CUDA_SUCCESS);
  EXPECT_EQ(move_apart({address}, {}), CUDA_SUCCESS) << "by the host memory that was kept";
  EXPECT_EQ(move(address, true), CUDA_SUCCESS);
  EXPECT_EQ(memory_at(address).content, 7);
  EXPECT_EQ(move(address, false), CUDA_SUCCESS) << "and it may leave otherwise again";
  EXPECT_EQ(memory_at(address).content, 7);
  free(address);
}

TEST_F(CudaChunks, ChunksChangePlacesApart) {
  const uint64_t address = allocate(16 * kMiB);
  const std::vector<uint64_t> first{address, address + 4 * kMiB}, last{address + 8 * kMiB, address + 12 * kMiB};
  for (int i = 0; i < 4; ++i) memory_at(address + i * 4 * kMiB).content = 10 + i;
  for (int turn = 0; turn < 5; ++turn) {
    const auto &comes = turn % 2 ? first : last, &goes = turn % 2 ? last : first;
    EXPECT_EQ(move_apart(goes, comes), CUDA_SUCCESS);
    for (const uint64_t chunk : goes) EXPECT_FALSE(fake_gpu().mapped.contains(chunk));
    for (const uint64_t chunk : comes) EXPECT_TRUE(memory_at(chunk).on_device);
  }
  EXPECT_EQ(device_->chunks_reach(first), CUDA_SUCCESS);
  for (int i = 0; i < 4; ++i) EXPECT_EQ(memory_at(address + i * 4 * kMiB).content, 10 + i);
  EXPECT_EQ(move_apart(last, first), CUDA_SUCCESS);
  free(address);
  EXPECT_EQ(host_.poisonings, 0);
}

TEST_F(CudaChunks, WhatIsApartStaysSoWhereTheDriverRefusesItsMove) {
  const uint64_t address = allocate(12 * kMiB), other = address + 8 * kMiB;
  memory_at(address).content = 5, memory_at(other).content = 6;
  EXPECT_EQ(move_apart({address}, {}), CUDA_SUCCESS);
  fake_gpu().map_failures = 1;
  EXPECT_EQ(move(address, true), CUDA_ERROR_UNKNOWN);
  EXPECT_FALSE(fake_gpu().mapped.contains(address));
  fake_gpu().map_failures = 1;
  EXPECT_EQ(device_->chunks_reach({address}), CUDA_ERROR_UNKNOWN);
  EXPECT_FALSE(fake_gpu().mapped.contains(address));
  EXPECT_EQ(move(other, true), CUDA_SUCCESS);
  for (const int failing :
       {1, 2}) {  // what the other one is copied to, and the device's memory at the first one's place
    fake_gpu().map_failures = failing;
    EXPECT_EQ(move_apart({other}, {address}), CUDA_ERROR_UNKNOWN);
    EXPECT_TRUE(memory_at(other).on_device);
    EXPECT_FALSE(fake_gpu().mapped.contains(address));
  }
  EXPECT_EQ(move_apart({other}, {address}), CUDA_SUCCESS);
  EXPECT_EQ(device_->chunks_reach({other}), CUDA_SUCCESS);
  EXPECT_EQ(memory_at(address).content, 5);
  EXPECT_EQ(memory_at(other).content, 6);
  free(address);
}

TEST_F(CudaChunks, WhatIsApartIsStillThereAfterAllHasLeft) {
  const uint64_t address = allocate(8 * kMiB);
  memory_at(address).content = 5, memory_at(address + 4 * kMiB).content = 6;
  EXPECT_EQ(move_apart({address}, {}), CUDA_SUCCESS);
  EXPECT_EQ(device_->memory_leave(), CUDA_SUCCESS);
  EXPECT_EQ(device_->memory_return(), CUDA_SUCCESS);
  EXPECT_EQ(device_->chunks_reach({address}), CUDA_SUCCESS);
  EXPECT_EQ(memory_at(address).content, 5);
  EXPECT_EQ(memory_at(address + 4 * kMiB).content, 6);
  free(address);
}

TEST_F(CudaChunks, AFullGpuPutsNewChunksInHostMemory) {
  fake_gpu().no_device_memory = true;
  const uint64_t address = allocate(8 * kMiB);
  EXPECT_FALSE(memory_at(address).on_device);
  EXPECT_EQ(host_.book.room[true], 8 * kMiB);
  fake_gpu().no_device_memory = false;
  EXPECT_EQ(move(address, true), CUDA_SUCCESS);
  free(address);
}

TEST_F(CudaChunks, HostMemoryIsMadeBeforeItIsNeeded) {
  const uint64_t address = allocate(8 * kMiB);
  device_->chunks_prepare(4 * kMiB, 64 * kMiB);
  const auto until = std::chrono::steady_clock::now() + std::chrono::seconds(20);
  while (host_.book.refused == 0 && std::chrono::steady_clock::now() < until) {
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  ASSERT_EQ(host_.book.refused, 1) << "no more is made than may be kept";
  EXPECT_EQ(fake_gpu().host_memory_made, 2);
  EXPECT_EQ(host_.book.keeps, 0);
  EXPECT_EQ(move(address, false), CUDA_SUCCESS);
  EXPECT_EQ(move(address + 4 * kMiB, false), CUDA_SUCCESS);
  EXPECT_EQ(fake_gpu().host_memory_made, 2);
  free(address);
  EXPECT_EQ(host_.book.keeps, 8 * kMiB);
}

// So many more bytes have room on the device.
void CudaChunks::leaves_and_returns(uint64_t more) {
  host_.book.room[true] += static_cast<int64_t>(more);
  before_ = host_.book.room;
  fake_gpu().registers = true;
  const uint64_t large = allocate(12 * kMiB + more), small = allocate(4096);
  const uint64_t slab = fake_gpu().mapped.rbegin()->first;
  memory_at(large).content = 7, memory_at(large + 4 * kMiB).content = 8, memory_at(slab).content = 9;
  const auto charged = host_.book.room;
  const auto on_device = [] {
    return std::count_if(fake_gpu().memory.begin(), fake_gpu().memory.end(),
                         [](const auto& one) { return one.second.on_device; });
  };
  const auto before = on_device();
  fake_gpu().limits[CU_LIMIT_STACK_SIZE] = 1024;
  EXPECT_EQ(device_->memory_leave(), CUDA_SUCCESS);
  EXPECT_EQ(on_device(), 0);
  EXPECT_LT(fake_gpu().limits[CU_LIMIT_STACK_SIZE], 1024) << "the driver would copy what nothing is in";
  EXPECT_FALSE(fake_gpu().mapped.contains(large));
  EXPECT_EQ(device_->memory_leave(), CUDA_SUCCESS) << "there is nothing more";
  fake_gpu().no_device_memory = true;
  EXPECT_EQ(device_->memory_return(), CUDA_ERROR_OUT_OF_MEMORY);
  EXPECT_FALSE(fake_gpu().mapped.contains(large));
  fake_gpu().no_device_memory = false;
  EXPECT_EQ(device_->memory_return(), CUDA_SUCCESS);
  EXPECT_EQ(on_device(), before);
  EXPECT_EQ(fake_gpu().limits[CU_LIMIT_STACK_SIZE], 1024);
  EXPECT_EQ(memory_at(large).content, 7);
  EXPECT_EQ(memory_at(large + 4 * kMiB).content, 8);
  EXPECT_EQ(memory_at(slab).content, 9);
  EXPECT_EQ(host_.book.room, charged);
  EXPECT_EQ(host_.poisonings, 0);
  free(large);
  free(small);
}

TEST_F(CudaChunks, AllOfItLeavesTheDeviceAndReturns) { leaves_and_returns(0); }

TEST_F(CudaChunks, MuchLeavesTheDeviceByRegisteredPages) {
  leaves_and_returns(60 * kMiB);
  EXPECT_GT(fake_gpu().registered, 0);
}

TEST_F(CudaChunks, ChunksAreNotExported) {
  const uint64_t address = allocate(4 * kMiB);
  CUresult outcome = CUDA_SUCCESS;
  device_->memory_export(nullptr, address, [&](CUresult result, UniqueFd, uint64_t, uint64_t) { outcome = result; });
  EXPECT_EQ(outcome, CUDA_ERROR_NOT_SUPPORTED);
  free(address);
}

}  // namespace
}  // namespace bandsaw::cuda
