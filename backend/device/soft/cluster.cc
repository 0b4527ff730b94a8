// Blocks of a launch in clusters: one worker has all blocks of a cluster in flight at once, because they reach each
// other's shared memory, which needs no locks that way.
#include <cuda.h>
#include <fmt/format.h>

#include <bit>
#include <utility>

#include "backend/device/soft/block.h"

namespace bandsaw::soft {

ClusterState* BlockRunner::get_cluster() {
  if (!free_clusters_.empty()) {
    ClusterState* cluster = free_clusters_.back();
    free_clusters_.pop_back();
    return cluster;
  }
  auto cluster = std::make_unique<ClusterState>();
  for (uint32_t rank = 0; rank < job_.plan().cluster_blocks(); ++rank) {
    BlockState* block = make_block();
    if (!block) return nullptr;  // those made so far end with this object
    block->cluster = cluster.get();
    block->cluster_arrivals.resize(block->warps.size());
    cluster->blocks.push_back(block);
    cluster->shared.push_back(block->shared);
  }
  for (BlockState* block : cluster->blocks)
    for (WarpState& warp : block->warps) warp.cluster_shared = cluster->shared.data();
  clusters_.push_back(std::move(cluster));
  return clusters_.back().get();
}

bool BlockRunner::start_cluster() {
  ClusterState* cluster = get_cluster();
  bool started = cluster != nullptr;
  if (started) begin(*cluster, next_ticket());
  for (size_t i = 0; started && i < cluster->blocks.size(); ++i) started = start_fiber(*cluster->blocks[i]);
  if (!started) {
    job_.fail(CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES,
              fmt::format("kernel {}: no memory for a cluster", job_.plan().kernel));
    return false;
  }
  ++in_flight_;
  return true;
}

// Clusters are counted by rows, and so are a cluster's blocks.
void BlockRunner::begin(ClusterState& cluster, uint64_t number) {
  const LaunchPlan& plan = job_.plan();
  const uint64_t columns = plan.grid[0] / plan.cluster[0], rows = plan.grid[1] / plan.cluster[1];
  const uint64_t x = number % columns * plan.cluster[0], y = number / columns % rows * plan.cluster[1],
                 z = number / columns / rows * plan.cluster[2];
  for (uint32_t rank = 0; rank < cluster.blocks.size(); ++rank) {
    const uint64_t bx = x + rank % plan.cluster[0], by = y + rank / plan.cluster[0] % plan.cluster[1],
                   bz = z + rank / plan.cluster[0] / plan.cluster[1];
    BlockState& block = *cluster.blocks[rank];
    begin(block, (bz * plan.grid[1] + by) * plan.grid[0] + bx);
  }
}

// A block begins. No other of its cluster has arrived anywhere yet.
void BlockRunner::join_cluster(BlockState& block) {
  ClusterState& cluster = *block.cluster;
  cluster.ended_blocks = cluster.arrived = cluster.phase = 0;
  cluster.first = cluster.last = nullptr;
  block.cluster_waits = 0;
  block.cluster_arrivals.assign(block.warps.size(), {});
}

// Without clusters each block is one by itself, which only those that use the barrier have to know.
void BlockRunner::make_cluster_of_one(BlockState& block) {
  clusters_.push_back(std::make_unique<ClusterState>());
  block.cluster = clusters_.back().get();
  block.cluster->blocks.push_back(&block);
  join_cluster(block);
}

// A block's memory stays until the last block of its cluster has ended. True: the fiber goes on with this block, which
// has another place in the grid.
bool BlockRunner::next_in_cluster(BlockState& block) {
  ClusterState& cluster = *block.cluster;
  if (++cluster.ended_blocks < cluster.blocks.size()) return false;
  if (!job_.cancelled() && !worker_.turn_over() && reserve_ticket()) {
    begin(cluster, next_ticket());
    bool started = true;
    for (BlockState* other : cluster.blocks) started = started && (other == &block || start_fiber(*other));
    if (started) return true;
    job_.fail(CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES,
              fmt::format("kernel {}: no memory for a cluster", job_.plan().kernel));
  }
  --in_flight_;
  if (cluster.blocks.size() == 1)
    free_blocks_.push_back(&block);
  else
    free_clusters_.push_back(&cluster);
  return false;
}

void BlockRunner::cluster_arrive(BlockState& block, uint32_t index, uint32_t lanes) {
  if (!block.cluster) make_cluster_of_one(block);
  ClusterState& cluster = *block.cluster;
  ClusterArrival& arrival = block.cluster_arrivals[index];
  if (arrival.phase != cluster.phase) arrival = {cluster.phase, 0};
  arrival.lanes += static_cast<uint32_t>(std::popcount(lanes));
  cluster.arrived += static_cast<uint32_t>(std::popcount(lanes));
  end_cluster_phase(cluster);
}

void BlockRunner::cluster_wait(BlockState& block, uint32_t index) {
  ClusterState& cluster = *block.cluster;
  if (block.cluster_arrivals[index].phase != cluster.phase || block.cluster_arrivals[index].lanes == 0) return;
  Fiber* self = worker_.current;
  self->next = nullptr;
  (cluster.last ? cluster.last->next : cluster.first) = self;
  cluster.last = self;
  ++block.cluster_waits;
  wait_here(block);
}

// Only living threads are waited for.
void BlockRunner::cluster_warp_ended(BlockState& block, uint32_t index) {
  ClusterState& cluster = *block.cluster;
  const ClusterArrival& arrival = block.cluster_arrivals[index];
  if (arrival.phase == cluster.phase) cluster.arrived -= arrival.lanes;
  block.cluster_arrivals[index] = {};
  end_cluster_phase(cluster);
}

void BlockRunner::end_cluster_phase(ClusterState& cluster) {
  uint32_t living = 0;
  for (const BlockState* block : cluster.blocks) living += block->living;
  if (cluster.arrived == 0 || cluster.arrived < living) return;
  ++cluster.phase;
  cluster.arrived = 0;
  for (Fiber* fiber = std::exchange(cluster.first, nullptr); fiber;) {
    Fiber* next = fiber->next;
    --static_cast<BlockState*>(fiber->owner)->cluster_waits;
    wake(fiber);
    fiber = next;
  }
  cluster.last = nullptr;
}

}  // namespace bandsaw::soft
