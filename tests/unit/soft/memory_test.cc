// Device memory, pools, copies and fills.
#include <sys/mman.h>

#include <cstring>
#include <numeric>

#include "guest-driver/uapi/vgpu_control.h"
#include "tests/unit/soft/fixture.h"

namespace bandsaw::soft {
namespace {

TEST_F(SoftDeviceTest, AllocationsLieInTheUpperHalf) {
  for (const uint64_t bytes : {1ull, 255ull, 4096ull, 3ull << 20}) {
    const uint64_t address = alloc(bytes);
    EXPECT_EQ(address % 256, 0u);
    EXPECT_GE(address, test_window() + VGPU_WINDOW_DEVICE_OFFSET);
    EXPECT_LE(address + bytes, test_window() + VGPU_WINDOW_BYTES);
    *reinterpret_cast<volatile char*>(address + bytes - 1) = 1;
  }
  uint64_t none = 0;
  EXPECT_EQ(device->memory_alloc(context, 0, &none), CUDA_ERROR_INVALID_VALUE);
}

TEST_F(SoftDeviceTest, ShareIsEnforced) {
  uint64_t address = 0;
  EXPECT_EQ(device->memory_alloc(context, 2ull << 30, &address), CUDA_ERROR_OUT_OF_MEMORY);
  EXPECT_EQ(device->memory_alloc(context, ~0ull, &address), CUDA_ERROR_OUT_OF_MEMORY);
  EXPECT_EQ(device->memory_alloc(context, 1ull << 30, &address), CUDA_SUCCESS);
  uint64_t free_bytes = 1, total = 0, second = 0;
  device->memory_info(&free_bytes, &total);
  EXPECT_EQ(free_bytes, 0u);
  EXPECT_EQ(total, 1ull << 30);
  EXPECT_EQ(device->memory_alloc(context, 1, &second), CUDA_ERROR_OUT_OF_MEMORY);
  EXPECT_EQ(free(address), CUDA_SUCCESS);
  EXPECT_EQ(host.charged, 0);
}

TEST_F(SoftDeviceTest, WrongFrees) {
  const uint64_t address = alloc(1000);
  EXPECT_EQ(free(address + 16), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(free(0), CUDA_SUCCESS);
  EXPECT_EQ(free(address), CUDA_SUCCESS);
  EXPECT_EQ(free(address), CUDA_ERROR_INVALID_VALUE);
}

TEST_F(SoftDeviceTest, CopiesRoundTrip) {
  for (const uint64_t bytes : {1ull, 100ull, 65537ull, (40ull << 20) + 13}) {
    std::vector<uint8_t> in(bytes), out(bytes);
    for (size_t i = 0; i < in.size(); ++i) in[i] = static_cast<uint8_t>(i * 7 + i / 251);
    const uint64_t a = alloc(bytes + 64), b = alloc(bytes + 64);
    Copy between;
    between.source.address = a + 3;
    between.destination.address = b + 5;
    between.width_bytes = bytes;
    ASSERT_EQ(copy_in(legacy, a + 3, in.data(), bytes), CUDA_SUCCESS);
    ASSERT_EQ(device->copy(legacy, between, nullptr), CUDA_SUCCESS);
    ASSERT_EQ(copy_out(legacy, out.data(), b + 5, bytes), CUDA_SUCCESS);
    ASSERT_EQ(sync(legacy), CUDA_SUCCESS);
    ASSERT_TRUE(in == out) << bytes;
    free(a);
    free(b);
  }
}

TEST_F(SoftDeviceTest, CopyDoneComesWhenBytesHaveMoved) {
  const uint64_t a = alloc(4096);
  uint32_t value = 77;
  Copy copy;
  copy.destination.address = a;
  copy.source = {reinterpret_cast<uint64_t>(&value), 0, 0, true};
  copy.width_bytes = 4;
  EXPECT_EQ(wait_for([&](Done done) { EXPECT_EQ(device->copy(legacy, copy, std::move(done)), CUDA_SUCCESS); }),
            CUDA_SUCCESS);
  EXPECT_EQ(*reinterpret_cast<uint32_t*>(a), 77u);
}

TEST_F(SoftDeviceTest, Copies3D) {
  constexpr uint64_t kPitch = 512, kRows = 10, kWidth = 300, kHeight = 7, kDepth = 5;
  const uint64_t a = alloc(kPitch * kRows * kDepth);
  std::vector<uint8_t> in(kWidth * kHeight * kDepth), out(in.size());
  std::iota(in.begin(), in.end(), 0);
  Copy copy;
  copy.width_bytes = kWidth, copy.height = kHeight, copy.depth = kDepth;
  copy.destination = {a, kPitch, kRows, false};
  copy.source = {reinterpret_cast<uint64_t>(in.data()), kWidth, kHeight, true};
  ASSERT_EQ(device->copy(legacy, copy, nullptr), CUDA_SUCCESS);
  std::swap(copy.source, copy.destination);
  copy.destination.address = reinterpret_cast<uint64_t>(out.data());
  ASSERT_EQ(device->copy(legacy, copy, nullptr), CUDA_SUCCESS);
  ASSERT_EQ(sync(legacy), CUDA_SUCCESS);
  EXPECT_TRUE(in == out);
}

TEST_F(SoftDeviceTest, WrongRangesAreRefused) {
  const uint64_t a = alloc(1000);
  std::vector<uint8_t> bytes(8192);
  EXPECT_EQ(copy_in(legacy, a, bytes.data(), 1001), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(copy_in(legacy, a + 1000 - 1, bytes.data(), 2), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(copy_in(legacy, ~0ull - 3, bytes.data(), 8), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(copy_in(legacy, a + 8192, bytes.data(), 1), CUDA_ERROR_INVALID_VALUE);
  Copy copy;
  copy.source = {reinterpret_cast<uint64_t>(bytes.data()), 10, 10, true};
  copy.destination = {a, 1ull << 62, 1ull << 40, false};
  copy.width_bytes = 10, copy.height = 10, copy.depth = 10;
  EXPECT_EQ(device->copy(legacy, copy, nullptr), CUDA_ERROR_INVALID_VALUE);
  copy.destination.pitch = 5;  // rows that overlap
  EXPECT_EQ(device->copy(legacy, copy, nullptr), CUDA_ERROR_INVALID_VALUE);
  const vgpu_fill fill = {a + 2, 0, 4, 1, 4, 1};
  EXPECT_EQ(device->fill(legacy, fill, nullptr), CUDA_ERROR_INVALID_VALUE);  // misaligned
  EXPECT_EQ(free(a), CUDA_SUCCESS);
  EXPECT_EQ(copy_in(legacy, a, bytes.data(), 1), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(sync(), CUDA_SUCCESS);
}

TEST_F(SoftDeviceTest, Fills) {
  const uint64_t a = alloc(4 << 20);
  auto* words = reinterpret_cast<uint32_t*>(a);
  ASSERT_EQ(device->fill(legacy, {a, 0, 1 << 20, 1, 4, 0x01020304}, nullptr), CUDA_SUCCESS);
  ASSERT_EQ(device->fill(legacy, {a, 64, 3, 2, 2, 0xabcd}, nullptr), CUDA_SUCCESS);
  ASSERT_EQ(device->fill(legacy, {a + 8, 64, 1, 1, 1, 0x1ff}, nullptr), CUDA_SUCCESS);
  ASSERT_EQ(sync(legacy), CUDA_SUCCESS);
  EXPECT_EQ(words[0], 0xabcdabcdu);
  EXPECT_EQ(words[1], 0x0102abcdu);
  EXPECT_EQ(words[2], 0x010203ffu);
  EXPECT_EQ(words[16], 0xabcdabcdu);
  EXPECT_EQ(words[(1 << 20) - 1], 0x01020304u);
}

TEST_F(SoftDeviceTest, LowerHalfIsTheProcessesOwn) {
  const uint64_t at = test_window() + (1ull << 30);
  void* page =
      ::mmap(reinterpret_cast<void*>(at), 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0);
  ASSERT_NE(page, MAP_FAILED);
  EXPECT_EQ(device->managed_add(context, at, 4096), CUDA_SUCCESS);
  EXPECT_EQ(host.charged, 4096);
  const uint32_t value = 5;
  EXPECT_EQ(copy_in(legacy, at, &value, 4), CUDA_SUCCESS);
  EXPECT_EQ(*static_cast<uint32_t*>(page), 5u);
  EXPECT_EQ(device->managed_add(context, at + VGPU_WINDOW_DEVICE_OFFSET, 4096), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(wait_for([&](Done done) { device->managed_remove(at, std::move(done)); }), CUDA_SUCCESS);
  EXPECT_EQ(wait_for([&](Done done) { device->managed_remove(at, std::move(done)); }), CUDA_ERROR_INVALID_VALUE);
  ::mmap(page, 4096, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED, -1, 0);
  EXPECT_EQ(copy_in(legacy, at, &value, 4), CUDA_SUCCESS);  // nobody can know before it runs
  EXPECT_EQ(sync(), CUDA_ERROR_ILLEGAL_ADDRESS);
}

TEST_F(SoftDeviceTest, RegisteredHostMemory) {
  uint32_t word = 0;
  host.visible = &word;
  host.visible_at = 0x1234000;
  host.visible_bytes = 4;
  const uint32_t value = 9;
  EXPECT_EQ(copy_in(legacy, 0x1234000, &value, 4), CUDA_SUCCESS);
  EXPECT_EQ(word, 9u);
  EXPECT_EQ(copy_in(legacy, 0x1234002, &value, 4), CUDA_ERROR_INVALID_VALUE);
}

TEST_F(SoftDeviceTest, PoolsReuseInStreamOrder) {
  const StreamRef on = stream(), other = stream();
  PoolRef pool;
  ASSERT_EQ(device->pool_default(&pool), CUDA_SUCCESS);
  ASSERT_EQ(device->pool_set_attribute(pool, CU_MEMPOOL_ATTR_RELEASE_THRESHOLD, ~0ull), CUDA_SUCCESS);
  uint64_t a = 0, b = 0, c = 0, value = 0;
  ASSERT_EQ(device->memory_alloc_async(on, nullptr, 10000, &a), CUDA_SUCCESS);
  // Holds the stream, so that the free has not run.
  Done hold;
  host.on_callback = [&](const HostCallback&, Done done) { hold = std::move(done); };
  ASSERT_EQ(device->callback(on, {VGPU_CALLBACK_HOST_FUNCTION, 1, 2, 0}), CUDA_SUCCESS);
  ASSERT_EQ(device->memory_free_async(on, a), CUDA_SUCCESS);
  EXPECT_EQ(device->memory_free_async(on, a), CUDA_ERROR_INVALID_VALUE);
  ASSERT_EQ(device->memory_alloc_async(other, nullptr, 10000, &b), CUDA_SUCCESS);
  EXPECT_NE(a, b);
  ASSERT_EQ(device->memory_alloc_async(on, nullptr, 9000, &c), CUDA_SUCCESS);
  EXPECT_EQ(a, c);
  hold(CUDA_SUCCESS);
  ASSERT_EQ(device->pool_get_attribute(pool, CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT, &value), CUDA_SUCCESS);
  EXPECT_EQ(value, 24576u);
  ASSERT_EQ(device->memory_free_async(on, b), CUDA_SUCCESS);
  ASSERT_EQ(device->memory_free_async(on, c), CUDA_SUCCESS);
  ASSERT_EQ(sync(), CUDA_SUCCESS);
  EXPECT_EQ(host.charged, 24576);  // under the threshold
  ASSERT_EQ(device->pool_get_attribute(pool, CU_MEMPOOL_ATTR_USED_MEM_CURRENT, &value), CUDA_SUCCESS);
  EXPECT_EQ(value, 0u);
  ASSERT_EQ(device->pool_get_attribute(pool, CU_MEMPOOL_ATTR_USED_MEM_HIGH, &value), CUDA_SUCCESS);
  EXPECT_EQ(value, 24576u);
  EXPECT_EQ(device->pool_trim(pool, 0), CUDA_SUCCESS);
  EXPECT_EQ(host.charged, 0);
}

TEST_F(SoftDeviceTest, OwnPools) {
  PoolRef pool;
  ASSERT_EQ(device->pool_create({1 << 20, 0}, &pool), CUDA_SUCCESS);
  uint64_t a = 0, b = 0;
  ASSERT_EQ(device->memory_alloc_async(legacy, pool, 1 << 19, &a), CUDA_SUCCESS);
  EXPECT_EQ(device->memory_alloc_async(legacy, pool, 1 << 20, &b), CUDA_ERROR_OUT_OF_MEMORY);
  pool.reset();  // destroyed; its memory lives until it is freed
  *reinterpret_cast<volatile int*>(a) = 1;
  EXPECT_EQ(free(a), CUDA_SUCCESS);
  EXPECT_EQ(sync(), CUDA_SUCCESS);
  EXPECT_EQ(host.charged, 0);
}

TEST_F(SoftDeviceTest, ADestroyedPoolStaysWhileAStreamUsesIt) {
  const StreamRef on = stream(), other = stream();
  PoolRef pool;
  ASSERT_EQ(device->pool_create({0, 0}, &pool), CUDA_SUCCESS);
  uint64_t a = 0;
  ASSERT_EQ(device->memory_alloc_async(on, pool, 4096, &a), CUDA_SUCCESS);
  Done hold;
  host.on_callback = [&](const HostCallback&, Done done) { hold = std::move(done); };
  ASSERT_EQ(device->callback(on, {VGPU_CALLBACK_HOST_FUNCTION, 1, 2, 0}), CUDA_SUCCESS);
  ASSERT_EQ(device->memory_free_async(on, a), CUDA_SUCCESS);
  pool.reset();
  EXPECT_EQ(sync(other), CUDA_SUCCESS);
  EXPECT_EQ(host.charged, 4096);
  hold(CUDA_SUCCESS);
  EXPECT_EQ(sync(), CUDA_SUCCESS);
  EXPECT_EQ(host.charged, 0);
}

TEST_F(SoftDeviceTest, ContextTakesItsMemoryAlong) {
  ContextRef other;
  ASSERT_EQ(device->context_create(0, &other), CUDA_SUCCESS);
  uint64_t a = 0;
  ASSERT_EQ(device->memory_alloc(other, 1 << 20, &a), CUDA_SUCCESS);
  EXPECT_EQ(host.charged, context_bytes + (1 << 20));
  EXPECT_EQ(device->context_destroy(other), CUDA_SUCCESS);
  EXPECT_EQ(host.charged, 0);
}

TEST_F(SoftDeviceTest, ContextsCountAgainstTheShare) {
  EXPECT_GT(context_bytes, 0);
  ContextRef other;
  host.share = context_bytes + 4096;
  ASSERT_EQ(device->context_create(0, &other), CUDA_SUCCESS);
  ContextRef none;
  EXPECT_EQ(device->context_create(0, &none), CUDA_ERROR_OUT_OF_MEMORY);
  uint64_t fifo = 0;
  ASSERT_EQ(device->context_get_limit(other, CU_LIMIT_PRINTF_FIFO_SIZE, &fifo), CUDA_SUCCESS);
  EXPECT_EQ(device->context_set_limit(other, CU_LIMIT_PRINTF_FIFO_SIZE, fifo + 8192), CUDA_ERROR_OUT_OF_MEMORY);
  EXPECT_EQ(device->context_set_limit(other, CU_LIMIT_PRINTF_FIFO_SIZE, fifo + 4096), CUDA_SUCCESS);
  EXPECT_EQ(host.charged, host.share);
  EXPECT_EQ(device->context_destroy(other), CUDA_SUCCESS);
  EXPECT_EQ(host.charged, 0);
}

TEST_F(SoftDeviceTest, OnePoolsRestMakesRoomForAnother) {
  PoolRef keeps, other;
  ASSERT_EQ(device->pool_create({0, ~0ull}, &keeps), CUDA_SUCCESS);
  ASSERT_EQ(device->pool_create({0, 0}, &other), CUDA_SUCCESS);
  host.share = 1 << 20;
  uint64_t a = 0, b = 0;
  ASSERT_EQ(device->memory_alloc_async(legacy, keeps, 1 << 20, &a), CUDA_SUCCESS);
  EXPECT_EQ(device->memory_alloc_async(legacy, other, 4096, &b), CUDA_ERROR_OUT_OF_MEMORY);
  ASSERT_EQ(device->memory_free_async(legacy, a), CUDA_SUCCESS);
  ASSERT_EQ(sync(legacy), CUDA_SUCCESS);
  EXPECT_EQ(host.charged, 1 << 20);
  ASSERT_EQ(device->memory_alloc_async(legacy, other, 4096, &b), CUDA_SUCCESS);
  EXPECT_EQ(host.charged, 4096);
  EXPECT_EQ(free(b), CUDA_SUCCESS);
}

}  // namespace
}  // namespace bandsaw::soft
