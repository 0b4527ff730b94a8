// Launches: grids, barriers, spinning blocks, fairness, killing.
#include <atomic>
#include <bit>
#include <cstring>

#include "tests/unit/soft/fixture.h"

namespace bandsaw::soft {
namespace {

template <typename T>
T parameter(const WarpState* warp, size_t offset) {
  T value;
  std::memcpy(&value, warp->parameters + offset, sizeof value);
  return value;
}

// out[global thread] = block * 1000 + tid
void write_ids(WarpState* warp) {
  auto* out = reinterpret_cast<uint32_t*>(parameter<uint64_t>(warp, 0));
  for (int lane = 0; lane < kWarpLanes; ++lane) {
    if (!(warp->live >> lane & 1)) continue;
    out[warp->ctaid[0] * warp->ntid[0] + warp->tid_x[lane]] = warp->ctaid[0] * 1000 + warp->tid_x[lane];
  }
}

TEST_F(SoftDeviceTest, EveryThreadRunsOnce) {
  const KernelRef kernel = load(fake_kernel("write_ids", write_ids, 8));
  const uint64_t out = alloc(4 * 100 * 70);
  ASSERT_EQ(launch(legacy, kernel, 100, 70, out), CUDA_SUCCESS);
  std::vector<uint32_t> result(100 * 70);
  ASSERT_EQ(copy_out(legacy, result.data(), out, 4 * result.size()), CUDA_SUCCESS);
  ASSERT_EQ(sync(legacy), CUDA_SUCCESS);
  for (uint32_t i = 0; i < result.size(); ++i) ASSERT_EQ(result[i], i / 70 * 1000 + i % 70);
  EXPECT_GT(host.busy[0], 0u);
  EXPECT_EQ(host.moved[2], 4 * result.size());
}

void count_3d(WarpState* warp) {
  auto* out = reinterpret_cast<uint32_t*>(parameter<uint64_t>(warp, 0));
  for (int lane = 0; lane < kWarpLanes; ++lane) {
    if (!(warp->live >> lane & 1)) continue;
    const uint32_t block = (warp->ctaid[2] * warp->nctaid[1] + warp->ctaid[1]) * warp->nctaid[0] + warp->ctaid[0];
    const uint32_t thread = (warp->tid_z[lane] * warp->ntid[1] + warp->tid_y[lane]) * warp->ntid[0] + warp->tid_x[lane];
    std::atomic_ref(out[block * 105 + thread]).fetch_add(1);
  }
}

TEST_F(SoftDeviceTest, ThreeDimensions) {
  const KernelRef kernel = load(fake_kernel("count_3d", count_3d, 8));
  const uint64_t out = alloc(4 * 105 * 24);
  Launch shape;
  shape.code.kernel = kernel;
  shape.grid[0] = 2, shape.grid[1] = 3, shape.grid[2] = 4;
  shape.block[0] = 7, shape.block[1] = 5, shape.block[2] = 3;
  shape.parameters = std::as_bytes(std::span(&out, 1));
  ASSERT_EQ(device->launch(legacy, shape), CUDA_SUCCESS);
  ASSERT_EQ(sync(), CUDA_SUCCESS);
  const auto* counts = reinterpret_cast<uint32_t*>(out);
  for (int i = 0; i < 105 * 24; ++i) ASSERT_EQ(counts[i], 1u);
}

// Each round: write own slot, barrier, read the neighbour warp's.
void barrier_rounds(WarpState* warp) {
  auto* shared = reinterpret_cast<uint32_t*>(warp->shared);
  uint32_t sum = 0;
  for (uint32_t round = 0; round < 20; ++round) {
    shared[warp->warp_id] = round * 100 + warp->warp_id;
    bandsaw_barrier(warp, 0, 0, warp->live, 0, 0);
    const uint32_t next = (warp->warp_id + 1) % warp->warps;
    if (shared[next] != round * 100 + next) bandsaw_fault(warp, 719, 0);
    const uint32_t votes = bandsaw_barrier(warp, 1, 0, warp->live, static_cast<uint32_t>(BarrierOp::kPopc), 1);
    if (votes != warp->warps) bandsaw_fault(warp, 719, 0);
    sum += votes;
  }
  reinterpret_cast<uint32_t*>(parameter<uint64_t>(warp, 0))[warp->ctaid[0] * warp->warps + warp->warp_id] = sum;
  bandsaw_exit(warp);
}

TEST_F(SoftDeviceTest, Barriers) {
  KernelCode code = fake_kernel("barrier_rounds", barrier_rounds, 8);
  code.static_shared_bytes = 256;
  const uint64_t out = alloc(4 * 50 * 32);
  ASSERT_EQ(launch(legacy, load(code), 50, 1000, out), CUDA_SUCCESS);
  ASSERT_EQ(sync(), CUDA_SUCCESS);
  for (int i = 0; i < 50 * 32; ++i) ASSERT_EQ(reinterpret_cast<uint32_t*>(out)[i], 640u);
}

// Each time they meet, warps tell in which order they go on.
void meet_in_order(WarpState* warp) {
  auto* out = reinterpret_cast<uint32_t*>(parameter<uint64_t>(warp, 0));
  for (int i = 0; i < 3; ++i) {
    bandsaw_barrier(warp, 0, 0, warp->live, 0, 0);
    out[1 + out[0]++] = warp->warp_id;
  }
}

TEST_F(SoftDeviceTest, WarpsGoOnInOrderBehindABarrier) {
  const uint64_t out = alloc(13 * 4);
  std::memset(reinterpret_cast<void*>(out), 0, 4);
  ASSERT_EQ(launch(legacy, load(fake_kernel("meet_in_order", meet_in_order, 8)), 1, 128, out), CUDA_SUCCESS);
  ASSERT_EQ(sync(), CUDA_SUCCESS);
  const auto* found = reinterpret_cast<uint32_t*>(out);
  EXPECT_EQ(found[0], 12u);
  for (uint32_t i = 0; i < 12; ++i) EXPECT_EQ(found[1 + i], i % 4) << i;
}

// Warps that end early no longer count.
void early_exit(WarpState* warp) {
  if (warp->warp_id % 2) return;
  bandsaw_barrier(warp, 0, 0, warp->live, 0, 0);
  std::atomic_ref(*reinterpret_cast<uint32_t*>(parameter<uint64_t>(warp, 0))).fetch_add(1);
}

TEST_F(SoftDeviceTest, BarrierAfterWarpsEnded) {
  const uint64_t out = alloc(4);
  ASSERT_EQ(launch(legacy, load(fake_kernel("early_exit", early_exit, 8)), 3, 256, out), CUDA_SUCCESS);
  ASSERT_EQ(sync(), CUDA_SUCCESS);
  EXPECT_EQ(*reinterpret_cast<uint32_t*>(out), 12u);
}

// Producer warps arrive, consumer warps wait, at a named barrier with a count.
void named(WarpState* warp) {
  auto* shared = reinterpret_cast<volatile uint32_t*>(warp->shared);
  if (warp->warp_id == 1) {
    shared[0] = 42;
    bandsaw_barrier(warp, 5, 64, warp->live, static_cast<uint32_t>(BarrierOp::kArrive), 0);
  } else {
    bandsaw_barrier(warp, 5, 64, warp->live, 0, 0);
    *reinterpret_cast<uint32_t*>(parameter<uint64_t>(warp, 0)) = shared[0];
  }
}

TEST_F(SoftDeviceTest, NamedBarrierArrive) {
  KernelCode code = fake_kernel("named", named, 8);
  code.static_shared_bytes = 4;
  const uint64_t out = alloc(4);
  ASSERT_EQ(launch(legacy, load(code), 1, 64, out), CUDA_SUCCESS);
  ASSERT_EQ(sync(), CUDA_SUCCESS);
  EXPECT_EQ(*reinterpret_cast<uint32_t*>(out), 42u);
}

void deadlock(WarpState* warp) {
  if (warp->warp_id == 0) bandsaw_barrier(warp, 0, 0, warp->live, 0, 0);
  if (warp->warp_id != 0) bandsaw_barrier(warp, 1, 0, warp->live, 0, 0);
}

TEST_F(SoftDeviceTest, DeadlockedBlockFails) {
  ASSERT_EQ(launch(legacy, load(fake_kernel("deadlock", deadlock)), 4, 96), CUDA_SUCCESS);
  EXPECT_EQ(sync(), CUDA_ERROR_LAUNCH_FAILED);
  EXPECT_EQ(host.poisonings, 1);
  EXPECT_EQ(device->stream_query(legacy), CUDA_ERROR_LAUNCH_FAILED);
}

// Every block waits until all blocks have come: more blocks than workers.
void grid_barrier(WarpState* warp) {
  auto& count = *reinterpret_cast<uint32_t*>(warp->grid_workspace + 4);
  if (warp->warp_id == 0) {
    std::atomic_ref<uint32_t> arrived(count);
    ++arrived;
    while (arrived.load() < warp->nctaid[0]) {
      if (__atomic_load_n(warp->cancelled, __ATOMIC_RELAXED)) bandsaw_cancelled(warp);
      bandsaw_yield(warp);
    }
  }
  bandsaw_barrier(warp, 0, 0, warp->live, 0, 0);
  std::atomic_ref(*reinterpret_cast<uint32_t*>(parameter<uint64_t>(warp, 0))).fetch_add(1);
}

TEST_F(SoftDeviceTest, CooperativeGrid) {
  const uint64_t out = alloc(4);
  Launch wide;
  wide.code.kernel = load(fake_kernel("grid_barrier", grid_barrier, 8));
  wide.grid[0] = 100, wide.grid[1] = wide.grid[2] = 1;
  wide.block[0] = 64, wide.block[1] = wide.block[2] = 1;
  wide.cooperative = true;
  wide.parameters = std::as_bytes(std::span(&out, 1));
  for (int i = 0; i < 3; ++i) ASSERT_EQ(device->launch(legacy, wide), CUDA_SUCCESS);
  ASSERT_EQ(sync(), CUDA_SUCCESS);
  EXPECT_EQ(*reinterpret_cast<uint32_t*>(out), 600u);
  wide.grid[0] = 100000;
  EXPECT_EQ(device->launch(legacy, wide), CUDA_ERROR_COOPERATIVE_LAUNCH_TOO_LARGE);
}

// As programs write it themselves: they launch as many blocks as the device says it holds.
void own_grid_barrier(WarpState* warp) {
  auto& count = *reinterpret_cast<uint32_t*>(parameter<uint64_t>(warp, 0));
  std::atomic_ref<uint32_t> arrived(count);
  ++arrived;
  while (arrived.load() < warp->nctaid[0]) {
    if (__atomic_load_n(warp->cancelled, __ATOMIC_RELAXED)) bandsaw_cancelled(warp);
    bandsaw_yield(warp);
  }
}

TEST_F(SoftDeviceTest, AsManyBlocksAsFitMayWaitForEachOther) {
  Code code;
  code.kernel = load(fake_kernel("own_grid_barrier", own_grid_barrier, 8));
  vgpu_device_info info{};
  device->info(&info);
  uint32_t blocks = 0;
  ASSERT_EQ(device->occupancy(code, 32, 0, &blocks), CUDA_SUCCESS);
  const auto all = blocks * static_cast<uint32_t>(info.attributes[CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT]);
  const uint64_t count = alloc(4);
  *reinterpret_cast<uint32_t*>(count) = 0;
  ASSERT_EQ(launch(legacy, code.kernel, all, 32, count), CUDA_SUCCESS);
  ASSERT_EQ(sync(), CUDA_SUCCESS);
  EXPECT_EQ(*reinterpret_cast<uint32_t*>(count), all);
}

// Block b waits for block b - 1, and in each block warp 0 waits for warp 1.
void chained(WarpState* warp) {
  auto* flags = reinterpret_cast<uint32_t*>(parameter<uint64_t>(warp, 0));
  auto* shared = reinterpret_cast<uint32_t*>(warp->shared);
  const auto wait = [&](uint32_t& word, uint32_t value) {
    while (std::atomic_ref(word).load() != value) {
      if (__atomic_load_n(warp->cancelled, __ATOMIC_RELAXED)) bandsaw_cancelled(warp);
      bandsaw_yield(warp);
    }
  };
  if (warp->warp_id == 1) {
    std::atomic_ref(shared[0]).store(warp->ctaid[0] + 1);
    return;
  }
  wait(shared[0], warp->ctaid[0] + 1);
  if (warp->ctaid[0] > 0) wait(flags[warp->ctaid[0] - 1], 1);
  std::atomic_ref(flags[warp->ctaid[0]]).store(1);
}

TEST_F(SoftDeviceTest, SpinningBlocksMakeProgress) {
  KernelCode code = fake_kernel("chained", chained, 8);
  code.static_shared_bytes = 4;
  const uint64_t flags = alloc(4 * 500);
  ASSERT_EQ(launch(legacy, load(code), 500, 64, flags), CUDA_SUCCESS);
  ASSERT_EQ(sync(), CUDA_SUCCESS);
  for (int i = 0; i < 500; ++i) ASSERT_EQ(reinterpret_cast<uint32_t*>(flags)[i], 1u);
}

std::atomic<uint32_t> g_gate{0};

// Never gives way, so only the system's time slicing lets others run.
void hog(WarpState* warp) {
  while (g_gate.load() == 0) {
    if (__atomic_load_n(warp->cancelled, __ATOMIC_RELAXED)) bandsaw_cancelled(warp);
  }
}

void open_gate(WarpState*) { g_gate = 1; }

TEST_F(SoftDeviceTest, LongKernelsDoNotLockOutOthers) {
  g_gate = 0;
  const StreamRef first = stream(), second = stream();
  ASSERT_EQ(launch(first, load(fake_kernel("hog", hog)), 16, 32), CUDA_SUCCESS);
  ASSERT_EQ(launch(second, load(fake_kernel("open_gate", open_gate)), 1, 32), CUDA_SUCCESS);
  EXPECT_EQ(sync(first), CUDA_SUCCESS);
}

TEST_F(SoftDeviceTest, DestroyingAContextKillsItsKernels) {
  g_gate = 0;
  const StreamRef on = stream();
  const KernelRef kernel = load(fake_kernel("hog", hog));
  ASSERT_EQ(launch(on, kernel, 16, 32), CUDA_SUCCESS);
  ASSERT_EQ(launch(on, kernel, 16, 32), CUDA_SUCCESS);
  CUresult told = CUDA_SUCCESS;
  device->stream_synchronize(on, [&](CUresult result) { told = result; });
  EXPECT_EQ(device->context_destroy(context), CUDA_SUCCESS);
  EXPECT_EQ(told, CUDA_ERROR_CONTEXT_IS_DESTROYED);
  EXPECT_EQ(launch(on, kernel, 1, 32), CUDA_ERROR_CONTEXT_IS_DESTROYED);
}

TEST_F(SoftDeviceTest, LaunchLimits) {
  const KernelRef kernel = load(fake_kernel("write_ids", write_ids, 8));
  const uint64_t out = alloc(4096);
  EXPECT_EQ(launch(legacy, kernel, 0, 1, out), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(launch(legacy, kernel, 1, 1025, out), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(launch(legacy, kernel, 1, 32), CUDA_ERROR_INVALID_VALUE);  // parameters missing
  Launch shape;
  shape.code.kernel = kernel;
  std::fill_n(shape.grid, 3, 1);
  std::fill_n(shape.block, 3, 1);
  shape.parameters = std::as_bytes(std::span(&out, 1));
  shape.shared_bytes = 49 * 1024;
  EXPECT_EQ(device->launch(legacy, shape), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(device->function_set_attribute(shape.code, CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES, 228 * 1024),
            CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(device->function_set_attribute(shape.code, CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES, 227 * 1024),
            CUDA_SUCCESS);
  EXPECT_EQ(device->launch(legacy, shape), CUDA_SUCCESS);
  shape.grid[1] = 65536;
  EXPECT_EQ(device->launch(legacy, shape), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(sync(), CUDA_SUCCESS);
  uint32_t blocks = 0;
  EXPECT_EQ(device->occupancy(shape.code, 256, 0, &blocks), CUDA_SUCCESS);
  EXPECT_EQ(blocks, 8u);
  EXPECT_EQ(device->occupancy(shape.code, 32, 100 * 1024, &blocks), CUDA_SUCCESS);
  EXPECT_EQ(blocks, 2u);
}

}  // namespace
}  // namespace bandsaw::soft
