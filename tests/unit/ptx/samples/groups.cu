// Cooperative groups, clusters, asynchronous copies and barriers.
#include <cooperative_groups.h>
#include <cooperative_groups/memcpy_async.h>
#include <cooperative_groups/reduce.h>
#include <cuda/barrier>
#include <cuda/pipeline>

namespace cg = cooperative_groups;
using Barrier = cuda::barrier<cuda::thread_scope_block>;

__global__ void __cluster_dims__(2, 1, 1) groups(int* data, int n) {
  __shared__ int tile[256];
#pragma nv_diag_suppress static_var_with_dynamic_init
  __shared__ Barrier barrier;
  auto block = cg::this_thread_block();
  auto warp = cg::tiled_partition<32>(block);
  auto half = cg::tiled_partition<16>(warp);
  auto cluster = cg::this_cluster();
  if (block.thread_rank() == 0) init(&barrier, block.size());
  block.sync();
  cuda::memcpy_async(block, tile, data, cuda::aligned_size_t<16>(sizeof tile), barrier);
  barrier.arrive_and_wait();
  cg::memcpy_async(block, tile, data, sizeof tile);
  cg::wait(block);
  int* other = cluster.map_shared_rank(tile, cluster.block_rank() ^ 1);
  cluster.sync();
  int sum = cg::reduce(warp, tile[block.thread_rank()] + other[0], cg::plus<int>());
  if (n > 3) {
    auto active = cg::coalesced_threads();
    sum += active.shfl(sum, 0) + half.match_any(sum);
  }
  data[block.thread_rank()] = sum;
  cluster.sync();
}

__global__ void whole_grid(int* data) {
  auto grid = cg::this_grid();
  data[grid.thread_rank()] = 1;
  grid.sync();
  data[grid.thread_rank()] += data[(grid.thread_rank() + 1) % grid.size()];
}
