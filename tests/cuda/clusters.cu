// Blocks in clusters: their places, barriers, each other's shared memory by loads, stores and atomics, asynchronous
// stores and copies, and what a launch refuses.
// nvcc: -arch=compute_90a -code=compute_90a
#include <cooperative_groups.h>
#include <cooperative_groups/reduce.h>

#include <vector>

#include "check.h"

namespace cg = cooperative_groups;

// Where each block is, told by its first thread: 12 numbers.
__global__ void places(unsigned* out) {
  const cg::cluster_group cluster = cg::this_cluster();
  if (threadIdx.x) return;
  const unsigned block = (blockIdx.z * gridDim.y + blockIdx.y) * gridDim.x + blockIdx.x;
  unsigned* at = out + block * 12;
  unsigned id_x, id_y, ids_x, is_explicit;
  asm volatile("mov.u32 %0, %%clusterid.x;" : "=r"(id_x));
  asm volatile("mov.u32 %0, %%clusterid.y;" : "=r"(id_y));
  asm volatile("mov.u32 %0, %%nclusterid.x;" : "=r"(ids_x));
  asm volatile("{.reg .pred p; mov.pred p, %%is_explicit_cluster; selp.u32 %0, 1, 0, p;}" : "=r"(is_explicit));
  const dim3 index = cluster.block_index(), dim = cluster.dim_blocks();
  const unsigned all[12] = {
      index.x, index.y, index.z, dim.x,      dim.y, dim.z, cluster.block_rank(), cluster.num_blocks(),
      id_x,    id_y,    ids_x,   is_explicit};
  for (int i = 0; i < 12; ++i) at[i] = all[i];
}

// Every block counts in the histogram of the whole cluster, whose bins its blocks share out.
__global__ void __cluster_dims__(4, 1, 1) histogram(const unsigned* values, unsigned n, unsigned* bins) {
  constexpr unsigned kEach = 64;
  __shared__ unsigned mine[kEach];
  const cg::cluster_group cluster = cg::this_cluster();
  for (unsigned i = threadIdx.x; i < kEach; i += blockDim.x) mine[i] = 0;
  cluster.sync();
  for (unsigned i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += gridDim.x * blockDim.x) {
    const unsigned bin = values[i] % (kEach * cluster.num_blocks());
    atomicAdd(cluster.map_shared_rank(mine, bin / kEach) + bin % kEach, 1);
  }
  cluster.sync();
  for (unsigned i = threadIdx.x; i < kEach; i += blockDim.x)
    atomicAdd(bins + cluster.block_rank() * kEach + i, mine[i]);
}

// A value goes round the cluster, by a store into the next block in each round.
__global__ void ring(unsigned* out) {
  __shared__ unsigned cell[2];
  const cg::cluster_group cluster = cg::this_cluster();
  const unsigned rank = cluster.block_rank(), blocks = cluster.num_blocks();
  if (threadIdx.x == 0) cell[0] = rank;
  cluster.sync();
  for (unsigned round = 0; round < blocks; ++round) {
    if (threadIdx.x == 0) cluster.map_shared_rank(cell, (rank + 1) % blocks)[(round + 1) % 2] = cell[round % 2] + 1;
    auto arrived = cluster.barrier_arrive();
    cluster.barrier_wait(std::move(arrived));
  }
  if (threadIdx.x == 0) out[blockIdx.x] = cell[blocks % 2];
  if (cluster.query_shared_rank(cluster.map_shared_rank(cell, blocks - 1)) != blocks - 1) out[blockIdx.x] = ~0u;
}

// Block 0 sends to all blocks: a bulk copy to several, and a store and an addition that their barriers hear of.
__global__ void __cluster_dims__(2, 2, 1) messages(const unsigned* from, unsigned* out) {
  __shared__ __align__(128) unsigned inbox[64];
  __shared__ __align__(16) unsigned words[4];
  __shared__ __align__(8) unsigned long long bar;
  const cg::cluster_group cluster = cg::this_cluster();
  const unsigned rank = cluster.block_rank();
  const auto at = [](const void* p) { return static_cast<unsigned>(__cvta_generic_to_shared(p)); };
  if (threadIdx.x == 0) {
    words[3] = 1000;
    asm volatile("mbarrier.init.shared::cta.b64 [%0], 1;" ::"r"(at(&bar)) : "memory");
    asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
    asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(at(&bar)), "r"(256 + 8 + 4) : "memory");
  }
  cluster.sync();
  if (rank == 0 && threadIdx.x == 0) {
    asm volatile(
        "cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes.multicast::cluster [%0], [%1], 256, [%2], "
        "%3;" ::"r"(at(inbox)),
        "l"(from), "r"(at(&bar)), "h"((short)0xf)
        : "memory");
    for (unsigned to = 0; to < 4; ++to) {
      unsigned cell, barrier;
      asm volatile("mapa.shared::cluster.u32 %0, %1, %2;" : "=r"(cell) : "r"(at(words)), "r"(to));
      asm volatile("mapa.shared::cluster.u32 %0, %1, %2;" : "=r"(barrier) : "r"(at(&bar)), "r"(to));
      asm volatile(
          "st.async.weak.shared::cluster.mbarrier::complete_tx::bytes.v2.b32 [%0], {%1, %2}, [%3];" ::"r"(cell),
          "r"(to), "r"(to * to), "r"(barrier)
          : "memory");
      asm volatile(
          "red.async.relaxed.cluster.shared::cluster.mbarrier::complete_tx::bytes.add.u32 [%0], %1, [%2];" ::"r"(cell +
                                                                                                                 12),
          "r"(to), "r"(barrier)
          : "memory");
    }
  }
  unsigned done = 0;
  while (!done)
    asm volatile("{.reg .pred p; mbarrier.try_wait.parity.shared::cta.b64 p, [%1], 0; selp.u32 %0, 1, 0, p;}"
                 : "=r"(done)
                 : "r"(at(&bar))
                 : "memory");
  unsigned* mine = out + (blockIdx.y * gridDim.x + blockIdx.x) * 68;
  for (unsigned i = threadIdx.x; i < 64; i += blockDim.x) mine[i] = inbox[i];
  if (threadIdx.x == 0) {
    mine[64] = words[0];
    mine[65] = words[1];
    mine[66] = words[3];
    mine[67] = rank;
  }
  cluster.sync();
}

template <class... Parameters, class... Arguments>
cudaError_t launch(void (*kernel)(Parameters...), dim3 grid, dim3 block, dim3 cluster, Arguments... arguments) {
  cudaLaunchAttribute attribute{};
  attribute.id = cudaLaunchAttributeClusterDimension;
  attribute.val.clusterDim = {cluster.x, cluster.y, cluster.z};
  cudaLaunchConfig_t config{};
  config.gridDim = grid;
  config.blockDim = block;
  config.attrs = &attribute;
  config.numAttrs = 1;
  return cudaLaunchKernelEx(&config, kernel, arguments...);
}

template <class T>
T* managed(size_t n) {
  T* made = nullptr;
  CHECK(cudaMallocManaged(&made, n * sizeof(T)));
  for (size_t i = 0; i < n; ++i) made[i] = 0;
  return made;
}

static void check_places() {
  const dim3 grid(4, 6, 2), cluster(2, 3, 1);
  auto* out = managed<unsigned>(4 * 6 * 2 * 12);
  CHECK(launch(places, grid, dim3(64), cluster, out));
  CHECK(cudaDeviceSynchronize());
  for (unsigned z = 0; z < grid.z; ++z)
    for (unsigned y = 0; y < grid.y; ++y)
      for (unsigned x = 0; x < grid.x; ++x) {
        const unsigned* at = out + ((z * grid.y + y) * grid.x + x) * 12;
        const unsigned want[12] = {x % 2, y % 3, 0, 2, 3, 1, x % 2 + y % 3 * 2, 6, x / 2, y / 3, 2, 1};
        for (int i = 0; i < 12; ++i) EXPECT_EQ(at[i], want[i]);
      }
  places<<<3, 64>>>(out);  // a launch without clusters: each block by itself
  CHECK(cudaDeviceSynchronize());
  for (unsigned x = 0; x < 3; ++x) {
    const unsigned want[12] = {0, 0, 0, 1, 1, 1, 0, 1, x, 0, 3, 0};
    for (int i = 0; i < 12; ++i) EXPECT_EQ(out[x * 12 + i], want[i]);
  }
  CHECK(cudaFree(out));
}

static void check_histogram() {
  constexpr unsigned kValues = 100000;
  auto* values = managed<unsigned>(kValues);
  auto* bins = managed<unsigned>(256);
  std::vector<unsigned> want(256);
  for (unsigned i = 0; i < kValues; ++i) ++want[(values[i] = i * 2654435761u >> 7) % 256];
  histogram<<<32, 96>>>(values, kValues, bins);
  CHECK(cudaDeviceSynchronize());
  for (int i = 0; i < 256; ++i) EXPECT_EQ(bins[i], want[i]);
  CHECK(cudaFree(values));
  CHECK(cudaFree(bins));
}

static void check_ring() {
  auto* out = managed<unsigned>(64);
  for (const unsigned blocks : {1u, 2u, 8u}) {
    CHECK(launch(ring, dim3(64), dim3(128), dim3(blocks), out));
    CHECK(cudaDeviceSynchronize());
    // After as many rounds as there are blocks each value is back where it began.
    for (unsigned i = 0; i < 64; ++i) EXPECT_EQ(out[i], i % blocks + blocks);
  }
  CHECK(cudaFree(out));
}

static void check_messages() {
  auto* from = managed<unsigned>(64);
  auto* out = managed<unsigned>(16 * 68);
  for (unsigned i = 0; i < 64; ++i) from[i] = i * i + 3;
  messages<<<dim3(4, 4), 32>>>(from, out);
  CHECK(cudaDeviceSynchronize());
  for (unsigned block = 0; block < 16; ++block) {
    const unsigned* mine = out + block * 68;
    const unsigned rank = block % 4 % 2 + block / 4 % 2 * 2;
    for (unsigned i = 0; i < 64; ++i) EXPECT_EQ(mine[i], from[i]);
    EXPECT_EQ(mine[64], rank);
    EXPECT_EQ(mine[65], rank * rank);
    EXPECT_EQ(mine[66], 1000 + rank);
    EXPECT_EQ(mine[67], rank);
  }
  CHECK(cudaFree(from));
  CHECK(cudaFree(out));
}

static void check_refusals() {
  auto* out = managed<unsigned>(1 << 12);
  EXPECT_CODE(cudaErrorInvalidClusterSize, launch(places, dim3(4), dim3(32), dim3(3), out));    // no whole clusters
  EXPECT_CODE(cudaErrorInvalidClusterSize, launch(places, dim3(16), dim3(32), dim3(16), out));  // not portable
  cudaGetLastError();
  CHECK(cudaFuncSetAttribute(ring, cudaFuncAttributeNonPortableClusterSizeAllowed, 1));
  int largest = 0, clusters = 0;
  cudaLaunchAttribute attribute{};
  attribute.id = cudaLaunchAttributeClusterDimension;
  attribute.val.clusterDim = {4, 1, 1};
  cudaLaunchConfig_t config{};
  config.gridDim = 4;
  config.blockDim = 128;
  CHECK(cudaOccupancyMaxPotentialClusterSize(&largest, ring, &config));
  EXPECT(largest >= 8);
  config.attrs = &attribute;
  config.numAttrs = 1;
  CHECK(cudaOccupancyMaxActiveClusters(&clusters, ring, &config));
  EXPECT(clusters > 0);
  CHECK(cudaFree(out));
}

int main() {
  check_places();
  check_histogram();
  check_ring();
  check_messages();
  check_refusals();
  return passed();
}
