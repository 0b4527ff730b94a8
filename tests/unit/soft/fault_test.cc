// Faults of kernels, and what they may ask of the runtime: output, heap, host memory.
#include <atomic>
#include <cstring>

#include "tests/unit/soft/fixture.h"

namespace bandsaw::soft {
namespace {

uint64_t argument(const WarpState* warp) {
  uint64_t value;
  std::memcpy(&value, warp->parameters, 8);
  return value;
}

void store(WarpState* warp) { *reinterpret_cast<volatile uint32_t*>(argument(warp)) = 1; }
void trap(WarpState* warp) { bandsaw_fault(warp, 719, 0); }
void misaligned(WarpState* warp) { bandsaw_fault(warp, 716, 0x123); }
void failed_assert(WarpState* warp) {
  if (warp->ctaid[0] == 1) bandsaw_assert(warp, 3, "x > 0", "kernel.cu", 17, "void kernel(int)");
}

__attribute__((noinline)) uint64_t deep(uint64_t depth) {
  volatile char frame[4096];
  frame[0] = static_cast<char>(depth);
  return depth == 0 ? static_cast<uint64_t>(frame[0]) : deep(depth - 1) + static_cast<uint64_t>(frame[0]);
}
void overflow(WarpState* warp) { *reinterpret_cast<volatile uint64_t*>(argument(warp)) = deep(1 << 20); }

TEST_F(SoftDeviceTest, WildAddressPoisonsTheDevice) {
  const uint64_t a = alloc(4096);
  const KernelRef kernel = load(fake_kernel("store", store, 8));
  ASSERT_EQ(launch(legacy, kernel, 8, 32, a), CUDA_SUCCESS);
  ASSERT_EQ(sync(), CUDA_SUCCESS);
  const StreamRef on = stream();
  const EventRef waiting = event();
  ASSERT_EQ(launch(on, kernel, 8, 128, a + 4096), CUDA_SUCCESS);  // the guard page
  std::vector<char> bytes(1 << 20);
  CUresult told = CUDA_SUCCESS;
  Copy copy;
  copy.destination.address = a;
  copy.source = {reinterpret_cast<uint64_t>(bytes.data()), 0, 0, true};
  copy.width_bytes = 16;
  (void)device->copy(on, copy, [&](CUresult result) { told = result; });
  (void)device->event_record(waiting, on, 0);
  EXPECT_EQ(sync(on), CUDA_ERROR_ILLEGAL_ADDRESS);
  EXPECT_EQ(host.poisonings, 1);
  uint64_t more = 0;
  EXPECT_EQ(device->memory_alloc(context, 1, &more), CUDA_ERROR_ILLEGAL_ADDRESS);
  EXPECT_EQ(launch(legacy, kernel, 1, 1, a), CUDA_ERROR_ILLEGAL_ADDRESS);
  EXPECT_EQ(free(a), CUDA_ERROR_ILLEGAL_ADDRESS);
  EXPECT_EQ(device->stream_query(on), CUDA_ERROR_ILLEGAL_ADDRESS);
  EXPECT_TRUE(told == CUDA_ERROR_ILLEGAL_ADDRESS || told == CUDA_SUCCESS);
}

TEST_F(SoftDeviceTest, AddressOutsideTheWindow) {
  ASSERT_EQ(launch(legacy, load(fake_kernel("store", store, 8)), 1, 32, uint64_t{16}), CUDA_SUCCESS);
  EXPECT_EQ(sync(), CUDA_ERROR_ILLEGAL_ADDRESS);
}

TEST_F(SoftDeviceTest, StackOverflow) {
#if defined(__SANITIZE_ADDRESS__)
  GTEST_SKIP() << "AddressSanitizer reports it itself";
#endif
  ASSERT_EQ(launch(legacy, load(fake_kernel("overflow", overflow, 8)), 1, 32, alloc(8)), CUDA_SUCCESS);
  EXPECT_EQ(sync(), CUDA_ERROR_LAUNCH_FAILED);
}

TEST_F(SoftDeviceTest, Trap) {
  ASSERT_EQ(launch(legacy, load(fake_kernel("trap", trap)), 100, 64), CUDA_SUCCESS);
  EXPECT_EQ(sync(), CUDA_ERROR_LAUNCH_FAILED);
}

TEST_F(SoftDeviceTest, Misaligned) {
  ASSERT_EQ(launch(legacy, load(fake_kernel("misaligned", misaligned)), 1, 1), CUDA_SUCCESS);
  EXPECT_EQ(sync(), CUDA_ERROR_MISALIGNED_ADDRESS);
}

TEST_F(SoftDeviceTest, Assert) {
  ASSERT_EQ(launch(legacy, load(fake_kernel("failed_assert", failed_assert)), 3, 32), CUDA_SUCCESS);
  EXPECT_EQ(sync(), CUDA_ERROR_ASSERT);
  EXPECT_EQ(host.printed(),
            "kernel.cu:17: void kernel(int): block: [1,0,0], thread: [3,0,0] Assertion `x > 0` failed.\n");
}

void print_forms(WarpState* warp) {
  struct {
    int32_t a;
    uint32_t b;
    int64_t c;
    double d;
    uint64_t s;
    int32_t letter, small;
  } packed = {-5, 255, -1234567890123, 3.25, argument(warp), 'q', 0x1ff};
  const int32_t count = bandsaw_vprintf(warp, 0, "%d %#06x %lld %8.3f|%-6s|%c %hhd %%\n",
                                        reinterpret_cast<const std::byte*>(&packed), sizeof packed);
  if (count != 7) bandsaw_fault(warp, 719, 0);
}

TEST_F(SoftDeviceTest, Printf) {
  const uint64_t text = alloc(8);
  ASSERT_EQ(copy_in(legacy, text, "text", 5), CUDA_SUCCESS);
  ASSERT_EQ(launch(legacy, load(fake_kernel("print_forms", print_forms, 8)), 1, 32, text), CUDA_SUCCESS);
  ASSERT_EQ(sync(), CUDA_SUCCESS);
  EXPECT_EQ(host.printed(), "-5 0x00ff -1234567890123    3.250|text  |q -1 %\n");
}

void print_wild(WarpState* warp) {
  const uint64_t address = argument(warp);
  bandsaw_vprintf(warp, 0, "%s\n", reinterpret_cast<const std::byte*>(&address), sizeof address);
}

// Of this process, as the runner's stack and keys are.
const char kSecret[] = "secret of the runner";

TEST_F(SoftDeviceTest, PrintfReadsNothingOfThisProcess) {
  const auto address = reinterpret_cast<uint64_t>(kSecret);
  ASSERT_EQ(launch(legacy, load(fake_kernel("print_wild", print_wild, 8)), 1, 32, address), CUDA_SUCCESS);
  EXPECT_EQ(sync(), CUDA_ERROR_ILLEGAL_ADDRESS);
  EXPECT_EQ(host.printed(), "");
}

void print_more_than_given(WarpState* warp) {
  const uint64_t packed = 7;
  bandsaw_vprintf(warp, 0, "%lld %llx %llx %llx %llx %llx\n", reinterpret_cast<const std::byte*>(&packed),
                  sizeof packed);
}

TEST_F(SoftDeviceTest, PrintfOfMoreThanThereIs) {
  ASSERT_EQ(launch(legacy, load(fake_kernel("print_more_than_given", print_more_than_given)), 1, 32), CUDA_SUCCESS);
  ASSERT_EQ(sync(), CUDA_SUCCESS);
  EXPECT_EQ(host.printed(), "7 0 0 0 0 0\n");
}

TEST_F(SoftDeviceTest, PrintfOfAStringThatEndsNowhere) {
  const uint64_t text = alloc(4096);
  const std::string whole(4096, 'x');
  ASSERT_EQ(copy_in(legacy, text, whole.data(), whole.size()), CUDA_SUCCESS);
  ASSERT_EQ(launch(legacy, load(fake_kernel("print_wild", print_wild, 8)), 1, 32, text), CUDA_SUCCESS);
  EXPECT_EQ(sync(), CUDA_ERROR_ILLEGAL_ADDRESS);
}

TEST_F(SoftDeviceTest, PrintfOfAWildString) {
  ASSERT_EQ(launch(legacy, load(fake_kernel("print_wild", print_wild, 8)), 1, 32, uint64_t{8}), CUDA_SUCCESS);
  EXPECT_EQ(sync(), CUDA_ERROR_ILLEGAL_ADDRESS);
}

void print_much(WarpState* warp) {
  const uint32_t packed[] = {warp->ctaid[0], 0};
  bandsaw_vprintf(warp, 0, "line %6d\n", reinterpret_cast<const std::byte*>(packed), sizeof packed);
}

TEST_F(SoftDeviceTest, PrintfFifoKeepsTheNewest) {
  ASSERT_EQ(device->context_set_limit(context, CU_LIMIT_PRINTF_FIFO_SIZE, 4096), CUDA_SUCCESS);
  ASSERT_EQ(launch(legacy, load(fake_kernel("print_much", print_much)), 5000, 1), CUDA_SUCCESS);
  ASSERT_EQ(sync(), CUDA_SUCCESS);
  const std::string text = host.printed();
  EXPECT_LE(text.size(), 4096u);
  EXPECT_GE(text.size(), 4000u);
  EXPECT_EQ(text.size() % 12, 0u);
}

void use_heap(WarpState* warp) {
  const uint64_t one = bandsaw_malloc(warp, 1000);
  if (!one || one % 16) bandsaw_fault(warp, 719, one);
  *reinterpret_cast<volatile uint64_t*>(one) = 1;
  bandsaw_free(warp, one);
  if (bandsaw_malloc(warp, 1ull << 30)) bandsaw_fault(warp, 719, 0);
}

TEST_F(SoftDeviceTest, DeviceHeap) {
  ASSERT_EQ(device->context_set_limit(context, CU_LIMIT_MALLOC_HEAP_SIZE, 1 << 20), CUDA_SUCCESS);
  ASSERT_EQ(launch(legacy, load(fake_kernel("use_heap", use_heap)), 100, 32), CUDA_SUCCESS);
  ASSERT_EQ(sync(), CUDA_SUCCESS);
  EXPECT_EQ(host.charged, (1 << 20) + kFakeCodeBytes);
  EXPECT_EQ(device->context_set_limit(context, CU_LIMIT_MALLOC_HEAP_SIZE, 2 << 20), CUDA_ERROR_INVALID_VALUE);
}

void host_store(WarpState* warp) { *static_cast<volatile uint32_t*>(bandsaw_translate(warp, argument(warp), 4)) = 11; }

TEST_F(SoftDeviceTest, KernelsReachRegisteredHostMemory) {
  uint32_t word = 0;
  host.visible = &word;
  host.visible_at = 0x5000;
  host.visible_bytes = 4;
  const KernelRef kernel = load(fake_kernel("host_store", host_store, 8));
  ASSERT_EQ(launch(legacy, kernel, 1, 1, uint64_t{0x5000}), CUDA_SUCCESS);
  ASSERT_EQ(sync(), CUDA_SUCCESS);
  EXPECT_EQ(word, 11u);
  ASSERT_EQ(launch(legacy, kernel, 1, 1, uint64_t{0x5004}), CUDA_SUCCESS);
  EXPECT_EQ(sync(), CUDA_ERROR_ILLEGAL_ADDRESS);
}

void use_local(WarpState* warp) {
  for (int lane = 0; lane < kWarpLanes; ++lane) {
    auto* mine = reinterpret_cast<uint32_t*>(warp->local + static_cast<size_t>(lane) * warp->local_bytes);
    std::fill_n(mine, warp->local_bytes / 4, warp->warp_id * 32 + static_cast<uint32_t>(lane));
  }
  bandsaw_barrier(warp, 0, 0, warp->live, 0, 0);
  for (int lane = 0; lane < kWarpLanes; ++lane) {
    const auto* mine = reinterpret_cast<uint32_t*>(warp->local + static_cast<size_t>(lane) * warp->local_bytes);
    if (mine[warp->local_bytes / 4 - 1] != warp->warp_id * 32 + static_cast<uint32_t>(lane))
      bandsaw_fault(warp, 719, 0);
  }
}

TEST_F(SoftDeviceTest, LocalMemoryIsEachWarpsOwn) {
  KernelCode code = fake_kernel("use_local", use_local);
  code.local_bytes = 4096;
  ASSERT_EQ(launch(legacy, load(code), 20, 256), CUDA_SUCCESS);
  EXPECT_EQ(sync(), CUDA_SUCCESS);
}

TEST_F(SoftDeviceTest, MuchLocalMemoryCountsAgainstTheShare) {
  KernelCode code = fake_kernel("use_local", use_local);
  code.local_bytes = 256 << 10;  // of 1024 threads of two blocks at once: 512 MiB
  const KernelRef kernel = load(code);
  host.share = 300 << 20;
  EXPECT_EQ(launch(legacy, kernel, 1, 1024), CUDA_ERROR_OUT_OF_MEMORY);
  EXPECT_EQ(launch(legacy, kernel, 1, 256), CUDA_SUCCESS);
  EXPECT_EQ(sync(), CUDA_SUCCESS);
  EXPECT_GT(host.charged, 100 << 20);
}

}  // namespace
}  // namespace bandsaw::soft
