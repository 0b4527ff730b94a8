// What SharedMemory keeps of freed blocks, with a host side that only counts.
#include <gtest/gtest.h>

#include <cerrno>
#include <cstring>
#include <map>
#include <vector>

#include "guest-driver/libcuda/core/shared_memory.h"
#include "guest-driver/libcuda/core/transport.h"
#include "guest-driver/libcuda/core/virtual_gpu.h"

namespace bandsaw::libcuda {
namespace {

class CountingTransport : public Transport {
 public:
  uint64_t window_base() const override { return 0; }
  int add_ring(vgpu_ring_header**) override { return ENOTSUP; }
  int allocate(uint64_t bytes, uint32_t flags, SharedBlock* block) override {
    if (held + bytes > room) return ENOMEM;
    held += bytes;
    auto& memory = blocks[++made];
    memory.resize(bytes);
    *block = {memory.data(), bytes, made, flags};
    return 0;
  }
  int release(const SharedBlock& block) override {
    held -= block.bytes;
    ++released;
    return blocks.erase(block.region) ? 0 : ENOENT;
  }
  int pin(void*, uint64_t, uint32_t, SharedBlock*) override { return ENOTSUP; }
  int unpin(const SharedBlock&) override { return ENOTSUP; }
  int also(const SharedBlock&, SharedBlock*) override { return ENOTSUP; }
  void kick() override {}
  int wait(vgpu_ring_header*, uint64_t*, uint32_t) override { return ENOTSUP; }
  uint64_t snapshot(vgpu_ring_header*) override { return 0; }
  bool alive() override { return true; }
  void forget_in_child() override {}

  uint64_t room = 1ull << 30, held = 0;
  uint32_t made = 0, released = 0;
  std::map<uint32_t, std::vector<char>> blocks;
};

class SpareBlocksTest : public testing::Test {
 protected:
  SpareBlocksTest() {
    gpu_.transport = &host_;
    memory_ = std::make_unique<SharedMemory>(&gpu_);
  }
  SharedBlock allocate(uint64_t bytes, uint32_t flags = VGPU_REGION_DEVICE_VISIBLE) {
    SharedBlock block;
    EXPECT_EQ(memory_->allocate(bytes, flags, &block), CUDA_SUCCESS);
    return block;
  }
  void put_by(const SharedBlock& block) { EXPECT_EQ(memory_->release_idle(block.address), CUDA_SUCCESS); }

  CountingTransport host_;
  VirtualGpu gpu_;
  std::unique_ptr<SharedMemory> memory_;
};

TEST_F(SpareBlocksTest, ALoopAsksTheHostOnceAndFindsZeros) {
  for (int i = 0; i < 100; ++i) {
    const SharedBlock block = allocate(10000);
    auto* const bytes = static_cast<char*>(block.address);
    for (uint64_t at = 0; at < block.bytes; ++at) ASSERT_EQ(bytes[at], 0);
    std::memset(bytes, 7, block.bytes);
    put_by(block);
  }
  EXPECT_EQ(host_.made, 1u);
  EXPECT_EQ(host_.released, 0u);
}

TEST_F(SpareBlocksTest, OnlyWhatFitsIsTaken) {
  put_by(allocate(16 * 4096));
  allocate(17 * 4096);                         // more than there is
  allocate(4 * 4096);                          // less than half of it
  allocate(16 * 4096, VGPU_REGION_READ_ONLY);  // others may use it
  EXPECT_EQ(host_.made, 4u);
  EXPECT_EQ(allocate(9 * 4096).bytes, 16u * 4096);
  EXPECT_EQ(host_.made, 4u);
}

TEST_F(SpareBlocksTest, AKeptBlockIsNobodys) {
  const SharedBlock block = allocate(4096);
  put_by(block);
  SharedBlock found;
  EXPECT_FALSE(memory_->find(block.address, 1, &found));
  EXPECT_EQ(memory_->release_idle(block.address), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(memory_->release(block.address), CUDA_ERROR_INVALID_VALUE);
}

TEST_F(SpareBlocksTest, KeepsNoMoreThanItMay) {
  put_by(allocate(SpareBlocks::kBlockBytesMost + 1));
  EXPECT_EQ(host_.held, 0u) << "too large to be kept";
  std::vector<SharedBlock> blocks;
  for (uint64_t i = 0; i < 20; ++i) blocks.push_back(allocate(SpareBlocks::kBlockBytesMost));
  for (const SharedBlock& block : blocks) put_by(block);
  EXPECT_EQ(host_.held, SpareBlocks::kBytesMost);
  blocks.clear();
  for (size_t i = 0; i < 2 * SpareBlocks::kCountMost; ++i) blocks.push_back(allocate(4096));
  for (const SharedBlock& block : blocks) put_by(block);
  EXPECT_EQ(host_.held, SpareBlocks::kCountMost * 4096) << "the ones kept longest go";
  memory_->drop_spares();
  EXPECT_EQ(host_.held, 0u);
}

TEST_F(SpareBlocksTest, GoWhenRoomIsNeeded) {
  host_.room = 1 << 20;
  put_by(allocate(1 << 20));
  allocate(4096);
  EXPECT_EQ(host_.held, 4096u);
}

}  // namespace
}  // namespace bandsaw::libcuda
