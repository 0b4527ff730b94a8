#include "backend/device/soft/block.h"

#include <cuda.h>
#include <fmt/format.h>

#include <algorithm>
#include <bit>

#include "backend/device/soft/child_work.h"
#include "backend/device/soft/recorder.h"
#include "memory/base/log.h"

namespace bandsaw::soft {

namespace {

// Blocks of one launch that a worker keeps in flight at least while they spin; cooperative launches know no limit.
constexpr uint32_t kBlocksInFlight = 64;
constexpr uint64_t kBatchMax = 32;

std::string place(const KernelJob& job, const WarpState& warp) {
  const uint32_t first = 0, last = warp.live ? 31u - static_cast<uint32_t>(std::countl_zero(warp.live)) : 31u;
  return fmt::format("kernel {}: block [{},{},{}], warp {} (threads [{},{},{}] to [{},{},{}])", job.plan().kernel,
                     warp.ctaid[0], warp.ctaid[1], warp.ctaid[2], warp.warp_id, warp.tid_x[first], warp.tid_y[first],
                     warp.tid_z[first], warp.tid_x[last], warp.tid_y[last], warp.tid_z[last]);
}

uint64_t number_of(const LaunchPlan& plan, const uint32_t (&ctaid)[3]) {
  return (uint64_t{ctaid[2]} * plan.grid[1] + ctaid[1]) * plan.grid[0] + ctaid[0];
}

const char* fault_words(uint32_t fault) {
  switch (fault) {
    case CUDA_ERROR_ILLEGAL_ADDRESS:
      return "illegal address";
    case CUDA_ERROR_MISALIGNED_ADDRESS:
      return "misaligned address";
    case CUDA_ERROR_ASSERT:
      return "assertion failed";
    case CUDA_ERROR_ILLEGAL_INSTRUCTION:
      return "illegal instruction";
    case CUDA_ERROR_INVALID_ADDRESS_SPACE:
      return "invalid address space";
    case CUDA_ERROR_INVALID_PC:
      return "invalid program counter";
    case CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES:
      return "no memory for another warp";
    default:
      return "trap, stack overflow or arithmetic fault";
  }
}

}  // namespace

std::shared_ptr<const BlockShape> make_block_shape(const uint32_t (&block)[3]) {
  auto shape = std::make_shared<BlockShape>();
  std::copy(std::begin(block), std::end(block), shape->block);
  shape->threads = block[0] * block[1] * block[2];
  const uint32_t warps = (shape->threads + kWarpLanes - 1) / kWarpLanes;
  shape->warps.resize(warps);
  for (uint32_t w = 0; w < warps; ++w) {
    WarpState& warp = shape->warps[w];
    for (uint32_t lane = 0; lane < kWarpLanes; ++lane) {
      const uint32_t thread = w * kWarpLanes + lane;
      warp.tid_x[lane] = thread % block[0];
      warp.tid_y[lane] = thread / block[0] % block[1];
      warp.tid_z[lane] = thread / block[0] / block[1];
      if (thread < shape->threads) warp.live |= 1u << lane;
    }
    std::copy(std::begin(block), std::end(block), warp.ntid);
    warp.warp_id = w;
    warp.warps = warps;
  }
  return shape;
}

KernelJob::KernelJob(LaunchPlan plan, uint64_t grid_id, Finished finished)
    : Job(plan.clusters(), plan.priority, plan.workers),
      plan_(std::move(plan)),
      grid_id_(grid_id),
      finished_(std::move(finished)) {}

KernelJob::~KernelJob() = default;

ChildWork* KernelJob::children() {
  std::lock_guard lock(mutex_);
  if (!children_ && plan_.device) children_ = std::make_unique<ChildWork>(*plan_.device, plan_);
  return children_.get();
}

void KernelJob::fail(uint32_t error, const std::string& text) {
  {
    std::lock_guard lock(mutex_);
    if (error_) return;
    error_ = error;
  }
  set_cancelled();
  log::error("{}", text);
}

std::unique_ptr<Share> KernelJob::share(Worker& worker) { return std::make_unique<BlockRunner>(*this, worker); }

void KernelJob::finished() { finished_(error_); }

BlockRunner::BlockRunner(KernelJob& job, Worker& worker)
    : job_(job),
      worker_(worker),
      limit_(job.plan().cooperative ? UINT32_MAX : std::max(kBlocksInFlight, job.plan().waiting_blocks)) {
  // Many small blocks: fewer trips to the shared counter, but every worker still gets many batches.
  if (!job.plan().cooperative) batch_ = std::clamp<uint64_t>(job.total() / 4096, 1, kBatchMax);
}

BlockRunner::~BlockRunner() {
  drop_all();
  for (Fiber* fiber : fibers_) worker_.put_fiber(fiber);
  for (const auto& block : blocks_) {
    if (block->shared) worker_.put_shared(block->shared);
  }
}

// Runs on the worker's own stack; everything else of a launch runs on fibers.
Turn BlockRunner::run(Worker& worker) {
  worker.window_base = job_.plan().window_base;
  spins_ = 0;
  yielded_ = false;
  while (true) {
    if (worker.fault) report_fault();
    if (job_.cancelled()) {
      drop_all();
      return Turn::kFinished;
    }
    if (yielded_ || !first_) {
      if (start_block()) spins_ = 0;
      yielded_ = false;
    }
    Fiber* next = pop();
    if (!next) return holds_work() || job_.tickets_left() ? Turn::kMore : Turn::kFinished;
    resume(next);
    if (spins_ > 2 * fibers_.size() + 2) return Turn::kSpinning;
    if (worker.turn_over()) {
      if (worker.fault || job_.cancelled()) continue;
      return holds_work() || job_.tickets_left() ? Turn::kMore : Turn::kFinished;
    }
  }
}

void BlockRunner::fiber_body(void* argument) {
  auto* fiber = static_cast<Fiber*>(argument);
  while (true) {
    auto* block = static_cast<BlockState*>(fiber->owner);
    BlockRunner* runner = block->runner;
    runner->run_warps(fiber, *block);
    runner->idle_.push_back(fiber);
    runner->switch_away(fiber);
  }
}

// Runs warps that no fiber has begun, then further blocks; returns when the block's other fibers must end it.
void BlockRunner::run_warps(Fiber* fiber, BlockState& block) {
  const LaunchPlan& plan = job_.plan();
  const uint32_t warps = static_cast<uint32_t>(block.warps.size());
  std::byte* local = plan.local_bytes ? fiber->local(size_t{plan.local_bytes} * kWarpLanes) : nullptr;
  if (plan.local_bytes && !local) {
    worker_.fault = CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES;
    worker_.fault_warp = &block.warps[0];
    leave();
  }
  do {
    while (block.next_warp < warps) {
      const uint32_t index = block.next_warp++;
      WarpState& warp = block.warps[index];
      std::copy(std::begin(block.ctaid), std::end(block.ctaid), warp.ctaid);
      warp.live = plan.shape->warps[index].live;
      warp.local = local;
      warp.stack_limit = fiber->stack_limit();
      std::fill(std::begin(warp.stack_top), std::end(warp.stack_top), 0);
      warp.recording = plan.recording ? plan.recording->begin_warp(number_of(plan, block.ctaid), index) : nullptr;
      worker_.running_warp = &warp;
      worker_.in_compiled = true;
      plan.entry(&warp);
      worker_.in_compiled = false;
      if (plan.recording) plan.recording->end_warp(warp.recording);
      ++block.ended_warps;
      block.living -= block.counted[index];
      if (block.cluster) cluster_warp_ended(block, index);
      if (block.waiting_warps || block.cluster) {
        check_barriers(block);
        check_deadlock(block);
      }
    }
    if (block.ended_warps < warps) return;
    spins_ = 0;
  } while (next_block(block));
}

// The block is done: begins another one in its place, or gives it back.
bool BlockRunner::next_block(BlockState& block) {
  if (block.cluster) return next_in_cluster(block);
  if (!job_.cancelled() && !worker_.turn_over() && reserve_ticket()) {
    begin(block, next_ticket());
    return true;
  }
  --in_flight_;
  free_blocks_.push_back(&block);
  return false;
}

bool BlockRunner::start_block() {
  if (in_flight_ >= limit_ || !reserve_ticket()) return false;
  if (job_.plan().cluster_blocks() > 1) return start_cluster();
  BlockState* block = get_block();
  if (!block || (begin(*block, next_ticket()), !start_fiber(*block))) {
    job_.fail(CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES, fmt::format("kernel {}: no memory for a block", job_.plan().kernel));
    return false;
  }
  ++in_flight_;
  return true;
}

bool BlockRunner::reserve_ticket() {
  if (tickets_ == 0) tickets_ = job_.take(batch_, &ticket_);
  return tickets_ != 0;
}

uint64_t BlockRunner::next_ticket() {
  --tickets_;
  return ticket_++;
}

// Gives the block its place in the grid: blocks are counted by rows.
void BlockRunner::begin(BlockState& block, uint64_t number) {
  const LaunchPlan& plan = job_.plan();
  const uint64_t row = number / plan.grid[0];
  block.ctaid[0] = static_cast<uint32_t>(number - row * plan.grid[0]);
  block.ctaid[1] = static_cast<uint32_t>(row % plan.grid[1]);
  block.ctaid[2] = static_cast<uint32_t>(row / plan.grid[1]);
  block.next_warp = block.ended_warps = block.waiting_warps = 0;
  block.living = plan.shape->threads;
  for (size_t w = 0; w < block.warps.size(); ++w) {
    block.counted[w] = static_cast<uint8_t>(std::popcount(plan.shape->warps[w].live));
  }
  block.barriers.fill({});
  if (block.cluster) join_cluster(block);
}

// Front of the queue: a block's warps begin before others go on.
bool BlockRunner::start_fiber(BlockState& block) {
  Fiber* fiber = nullptr;
  if (idle_.empty()) {
    fiber = worker_.get_fiber();
    if (!fiber) return false;
    fibers_.push_back(fiber);
    fiber->prepare(&fiber_body, fiber);
  } else {
    fiber = idle_.back();
    idle_.pop_back();
  }
  fiber->owner = &block;
  fiber->next = first_;
  first_ = fiber;
  if (!last_) last_ = fiber;
  return true;
}

BlockState* BlockRunner::get_block() {
  if (!free_blocks_.empty()) {
    BlockState* block = free_blocks_.back();
    free_blocks_.pop_back();
    return block;
  }
  return make_block();
}

BlockState* BlockRunner::make_block() {
  const LaunchPlan& plan = job_.plan();
  auto block = std::make_unique<BlockState>();
  block->runner = this;
  block->warps = plan.shape->warps;
  block->counted.resize(block->warps.size());
  if ((plan.shared_bytes || plan.reserved_shared) && !(block->shared = worker_.get_shared())) return nullptr;
  for (WarpState& warp : block->warps) {
    std::copy(std::begin(plan.grid), std::end(plan.grid), warp.nctaid);
    warp.sm_id = static_cast<uint32_t>(worker_.index()) % plan.sms;
    warp.grid_id = job_.grid_id();
    warp.grid_id_low = static_cast<uint32_t>(job_.grid_id());
    warp.shared_bytes = (plan.shared_bytes + kSharedUnit - 1) / kSharedUnit * kSharedUnit;
    warp.dynamic_shared_base = plan.shared_bytes - plan.dynamic_shared_bytes;
    warp.dynamic_shared_bytes = plan.dynamic_shared_bytes;
    warp.local_bytes = plan.local_bytes;
    warp.stack_bytes = plan.stack_bytes;
    warp.shared = block->shared;
    warp.parameters = plan.parameters.data();
    warp.window_base = plan.window_base;
    warp.block = block.get();
    warp.cancelled = job_.cancel_word();
    warp.parameter_bytes = plan.parameter_bytes;
    warp.cooperative = plan.cooperative;
    warp.grid_workspace = plan.grid_workspace;
    warp.textures = plan.textures;
    std::copy(std::begin(plan.cluster), std::end(plan.cluster), warp.cluster);
    warp.explicit_cluster = plan.explicit_cluster;
  }
  blocks_.push_back(std::move(block));
  return blocks_.back().get();
}

void BlockRunner::push(Fiber* fiber) {
  fiber->next = nullptr;
  (last_ ? last_->next : first_) = fiber;
  last_ = fiber;
}

Fiber* BlockRunner::pop() {
  Fiber* fiber = first_;
  if (!fiber) return nullptr;
  first_ = fiber->next;
  if (!first_) last_ = nullptr;
  fiber->next = nullptr;
  return fiber;
}

void BlockRunner::resume(Fiber* fiber) {
  worker_.current = fiber;
  switch_stack(worker_.thread_point(), fiber->point());
  worker_.current = nullptr;
}

// From fiber `self` to whoever may go on: another fiber, or the worker's own stack.
void BlockRunner::switch_away(Fiber* self) {
  Fiber* next = worker_.fault || job_.cancelled() ? nullptr : pop();
  if (next == self) return;
  worker_.current = next;
  switch_stack(self->point(), next ? next->point() : worker_.thread_point());
}

void BlockRunner::wait_here(BlockState& block) {
  Fiber* self = worker_.current;
  if (block.next_warp < block.warps.size()) {
    if (!start_fiber(block)) {
      worker_.fault = CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES;
      worker_.fault_warp = worker_.running_warp;
      leave();
    }
  } else {
    check_deadlock(block);
  }
  switch_away(self);
}

void BlockRunner::wake(Fiber* fiber) { push(fiber); }

void BlockRunner::go_last() {
  Fiber* self = worker_.current;
  push(self);
  switch_away(self);
}

void BlockRunner::yield_here(BlockState& block) {
  Fiber* self = worker_.current;
  push(self);
  if (block.next_warp < block.warps.size() && start_fiber(block)) {
    switch_away(self);
    return;
  }
  ++spins_;
  yielded_ = true;
  worker_.current = nullptr;
  switch_stack(self->point(), worker_.thread_point());
}

void BlockRunner::leave() {
  worker_.in_compiled = false;
  abandon_stack(worker_.thread_point());
}

// Threads that ended no longer count: a barrier for all may be complete now.
void BlockRunner::check_barriers(BlockState& block) {
  for (Barrier& barrier : block.barriers) {
    if (barrier.first && barrier.expected == 0 && barrier.arrived >= block.living) {
      uint32_t trues = 0, votes = 0;
      complete_barrier(*this, block, barrier, &trues, &votes);
    }
  }
}

void BlockRunner::check_deadlock(BlockState& block) {
  const auto idle = [](const BlockState& one) {
    const auto warps = static_cast<uint32_t>(one.warps.size());
    return one.next_warp == warps && one.ended_warps + one.waiting_warps + one.cluster_waits == warps;
  };
  if (!idle(block)) return;
  if (!block.cluster) {
    if (block.waiting_warps == 0) return;
  } else {
    bool waits = false;
    for (const BlockState* other : block.cluster->blocks) {
      if (!idle(*other)) return;
      waits = waits || other->waiting_warps || other->cluster_waits;
    }
    if (!waits) return;
  }
  report_deadlock(block);
  leave();  // nothing on this stack may need a destructor here
}

void BlockRunner::report_deadlock(const BlockState& block) {
  std::string who;
  for (uint32_t id = 0; id < kBarriers; ++id) {
    const Barrier& barrier = block.barriers[id];
    if (!barrier.first) continue;
    who += fmt::format(" barrier {}: {} of {} threads;", id, barrier.arrived,
                       barrier.expected ? barrier.expected : block.living);
  }
  if (block.cluster_waits) who += fmt::format(" the cluster's barrier: {} warps;", block.cluster_waits);
  job_.fail(CUDA_ERROR_LAUNCH_FAILED,
            fmt::format("kernel {}: block [{},{},{}] is deadlocked, every warp waits:{}", job_.plan().kernel,
                        block.ctaid[0], block.ctaid[1], block.ctaid[2], who));
}

void BlockRunner::drop_all() {
  first_ = last_ = nullptr;
  if (in_flight_ != 0) {  // suspended fibers hold dead frames: they start afresh
    idle_.clear();
    for (Fiber* fiber : fibers_) worker_.put_fiber(fiber);
    fibers_.clear();
  }
  in_flight_ = 0;
  tickets_ = 0;
  free_blocks_.clear();
  free_clusters_.clear();
  if (job_.plan().cluster_blocks() > 1)
    for (const auto& cluster : clusters_) free_clusters_.push_back(cluster.get());
  else
    for (const auto& block : blocks_) free_blocks_.push_back(block.get());
}

void BlockRunner::report_fault() {
  const uint32_t fault = worker_.fault;
  const uint64_t address = worker_.fault_address;
  worker_.fault = 0;
  const auto* warp = static_cast<const WarpState*>(worker_.fault_warp);
  job_.fail(fault, fmt::format("{}: {}, address {:#x}", warp ? place(job_, *warp) : job_.plan().kernel,
                               fault_words(fault), address));
}

}  // namespace bandsaw::soft
