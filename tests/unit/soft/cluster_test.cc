// Blocks in clusters: how they are placed and wait for each other, and what a launch may ask for.
#include <algorithm>
#include <atomic>
#include <cstring>
#include <span>

#include "tests/unit/soft/fixture.h"

namespace bandsaw::soft {
namespace {

uint64_t parameter(WarpState* warp) {
  uint64_t value;
  std::memcpy(&value, warp->parameters, sizeof value);
  return value;
}

uint32_t& word(std::byte* shared) { return *reinterpret_cast<uint32_t*>(shared); }

uint32_t rank_of(const WarpState* warp) { return warp->ctaid[0] % warp->cluster[0]; }

Launch of(const KernelRef& kernel, uint32_t blocks, uint32_t threads, uint32_t cluster) {
  Launch launch;
  launch.code.kernel = kernel;
  std::fill_n(launch.grid, 3, 1);
  std::fill_n(launch.block, 3, 1);
  std::fill_n(launch.cluster, 3, cluster ? 1 : 0);
  launch.grid[0] = blocks;
  launch.block[0] = threads;
  launch.cluster[0] = cluster;
  return launch;
}

// Each round every block puts a number into the next one's memory.
void pass_on(WarpState* warp) {
  const uint32_t rank = rank_of(warp), blocks = warp->cluster[0];
  for (uint32_t round = 0; round < 10; ++round) {
    if (warp->warp_id == 0) word(warp->cluster_shared[(rank + 1) % blocks]) = round * 100 + rank;
    bandsaw_cluster_arrive(warp, warp->live);
    bandsaw_cluster_wait(warp);
    if (word(warp->shared) != round * 100 + (rank + blocks - 1) % blocks) bandsaw_fault(warp, 719, 0);
    bandsaw_cluster_arrive(warp, warp->live);
    bandsaw_cluster_wait(warp);
  }
  std::atomic_ref(*reinterpret_cast<uint32_t*>(parameter(warp))).fetch_add(1);
}

TEST_F(SoftDeviceTest, ClustersPassNumbersOn) {
  KernelCode code = fake_kernel("pass_on", pass_on, 8);
  code.static_shared_bytes = 4;
  const KernelRef kernel = load(code);
  const uint64_t out = alloc(4);
  for (const uint32_t cluster : {2, 4, 8}) {
    Launch launch = of(kernel, 80, 96, cluster);
    launch.parameters = std::as_bytes(std::span(&out, 1));
    std::memset(reinterpret_cast<void*>(out), 0, 4);
    ASSERT_EQ(device->launch(legacy, launch), CUDA_SUCCESS);
    ASSERT_EQ(sync(), CUDA_SUCCESS);
    EXPECT_EQ(*reinterpret_cast<uint32_t*>(out), 80u * 3);
  }
}

// Without clusters a block is one by itself, and its warps meet at the barrier; those that ended do not count.
void alone(WarpState* warp) {
  if (warp->warp_id == 2) return;
  if (warp->warp_id == 0) word(warp->shared) = 7;
  bandsaw_cluster_arrive(warp, warp->live);
  bandsaw_cluster_wait(warp);
  std::atomic_ref(*reinterpret_cast<uint32_t*>(parameter(warp))).fetch_add(word(warp->shared));
}

TEST_F(SoftDeviceTest, BlockIsAClusterOfOne) {
  KernelCode code = fake_kernel("alone", alone, 8);
  code.static_shared_bytes = 4;
  const uint64_t out = alloc(4);
  std::memset(reinterpret_cast<void*>(out), 0, 4);
  ASSERT_EQ(launch(legacy, load(code), 300, 128, out), CUDA_SUCCESS);
  ASSERT_EQ(sync(), CUDA_SUCCESS);
  EXPECT_EQ(*reinterpret_cast<uint32_t*>(out), 300u * 3 * 7);
}

// A warp that arrived and ended is counted out again: the others are still waited for.
void arrive_and_end(WarpState* warp) {
  if (rank_of(warp) == 0) {
    bandsaw_cluster_arrive(warp, warp->live);
    return;
  }
  if (warp->warp_id == 0) {
    for (int i = 0; i < 3; ++i) bandsaw_yield(warp);
    word(warp->shared) = 1;
  }
  bandsaw_cluster_arrive(warp, warp->live);
  bandsaw_cluster_wait(warp);
  if (word(warp->shared) != 1) bandsaw_fault(warp, 719, 0);
}

TEST_F(SoftDeviceTest, ClusterBarrierWaitsForTheLiving) {
  KernelCode code = fake_kernel("arrive_and_end", arrive_and_end);
  code.static_shared_bytes = 4;
  ASSERT_EQ(device->launch(legacy, of(load(code), 40, 64, 2)), CUDA_SUCCESS);
  EXPECT_EQ(sync(), CUDA_SUCCESS);
}

void never_met(WarpState* warp) {
  if (rank_of(warp) == 1) {
    bandsaw_cluster_arrive(warp, warp->live);
    bandsaw_cluster_wait(warp);
  } else {
    bandsaw_barrier(warp, warp->warp_id, 64, warp->live, 0, 0);
  }
}

TEST_F(SoftDeviceTest, DeadlockedClusterFails) {
  ASSERT_EQ(device->launch(legacy, of(load(fake_kernel("never_met", never_met)), 4, 64, 2)), CUDA_SUCCESS);
  EXPECT_EQ(sync(), CUDA_ERROR_LAUNCH_FAILED);
}

void no_work(WarpState*) {}

TEST_F(SoftDeviceTest, ClusterSizes) {
  const KernelRef kernel = load(fake_kernel("no_work", no_work));
  EXPECT_EQ(device->launch(legacy, of(kernel, 16, 32, 8)), CUDA_SUCCESS);
  EXPECT_EQ(device->launch(legacy, of(kernel, 16, 32, 3)), CUDA_ERROR_INVALID_CLUSTER_SIZE);
  EXPECT_EQ(device->launch(legacy, of(kernel, 16, 32, 16)), CUDA_ERROR_INVALID_CLUSTER_SIZE);
  Code code;
  code.kernel = kernel;
  ASSERT_EQ(device->function_set_attribute(code, CU_FUNC_ATTRIBUTE_NON_PORTABLE_CLUSTER_SIZE_ALLOWED, 1), CUDA_SUCCESS);
  EXPECT_EQ(device->launch(legacy, of(kernel, 16, 32, 16)), CUDA_SUCCESS);
  EXPECT_EQ(device->launch(legacy, of(kernel, 32, 32, 32)), CUDA_ERROR_INVALID_CLUSTER_SIZE);
  uint32_t clusters = 0, largest = 0;
  ASSERT_EQ(device->occupancy_clusters(nullptr, of(kernel, 16, 32, 4), &clusters, &largest), CUDA_SUCCESS);
  EXPECT_GT(clusters, 0u);
  EXPECT_EQ(largest, 16u);
  // Of no kernel: one that needs no more than the launch says.
  ASSERT_EQ(device->occupancy_clusters(nullptr, of(nullptr, 16, 32, 16), &clusters, &largest), CUDA_SUCCESS);
  EXPECT_GT(clusters, 0u);
  ASSERT_EQ(device->occupancy_clusters(nullptr, of(nullptr, 32, 32, 32), &clusters, &largest), CUDA_SUCCESS);
  EXPECT_EQ(clusters, 0u);
  // A kernel that wants its blocks in pairs.
  KernelCode paired = fake_kernel("paired", no_work);
  std::fill_n(paired.required_cluster, 3, 1);
  paired.required_cluster[0] = 2;
  const KernelRef pairs = load(paired);
  EXPECT_EQ(device->launch(legacy, of(pairs, 16, 32, 0)), CUDA_SUCCESS);
  EXPECT_EQ(device->launch(legacy, of(pairs, 15, 32, 0)), CUDA_ERROR_INVALID_CLUSTER_SIZE);
  EXPECT_EQ(device->launch(legacy, of(pairs, 16, 32, 4)), CUDA_ERROR_INVALID_CLUSTER_SIZE);
  EXPECT_EQ(sync(), CUDA_SUCCESS);
}

}  // namespace
}  // namespace bandsaw::soft
