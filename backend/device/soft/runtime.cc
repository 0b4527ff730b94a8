// The functions that compiled code calls: barriers, turns, faults, output and heap. See warp.h.
#include <cuda.h>

#include <algorithm>
#include <bit>

#include "backend/device/soft/block.h"
#include "backend/device/soft/child_work.h"
#include "backend/device/soft/printf.h"
#include "backend/device/soft/soft_device.h"
#include "guest-driver/uapi/vgpu_control.h"
#include "memory/base/log.h"

namespace bandsaw::soft {

namespace {

// For the time of a call from compiled code: faults in it are ours, unless they hit the guest's window.
class RuntimeCall {
 public:
  explicit RuntimeCall(WarpState* warp) : warp_(warp), worker_(warp->block->runner->worker()) {
    worker_.in_compiled = false;
  }
  ~RuntimeCall() {
    worker_.running_warp = warp_;
    worker_.in_compiled = true;
  }
  BlockState& block() { return *warp_->block; }
  BlockRunner& runner() { return *warp_->block->runner; }

 private:
  WarpState* warp_;
  Worker& worker_;
};

uint32_t reduce(BarrierOp op, uint32_t trues, uint32_t votes) {
  switch (op) {
    case BarrierOp::kAnd:
      return trues == votes;
    case BarrierOp::kOr:
      return trues != 0;
    case BarrierOp::kPopc:
      return trues;
    default:
      return 0;
  }
}

// Counts out the lanes that ended since this warp last told.
void note_living(BlockState& block, const WarpState& warp) {
  const auto living = static_cast<uint8_t>(std::popcount(warp.live));
  block.living -= block.counted[warp.warp_id] - living;
  block.counted[warp.warp_id] = living;
}

LaunchServices& services(WarpState* warp) { return *warp->block->runner->job().plan().services; }

}  // namespace

void complete_barrier(BlockRunner& runner, BlockState& block, Barrier& barrier, uint32_t* trues, uint32_t* votes) {
  *trues = barrier.trues;
  *votes = barrier.votes;
  for (Fiber* fiber = barrier.first; fiber;) {
    Fiber* next = fiber->next;
    fiber->result = reduce(static_cast<BarrierOp>(fiber->result), barrier.trues, barrier.votes);
    --block.waiting_warps;
    runner.wake(fiber);
    fiber = next;
  }
  barrier = {};
}

// `lanes` of the warp arrive at barrier `id`, and wait there unless they only arrive.
static uint32_t meet(WarpState* warp, uint32_t id, uint32_t threads, uint32_t lanes, BarrierOp kind,
                     uint32_t predicate) {
  RuntimeCall call(warp);
  BlockState& block = call.block();
  BlockRunner& runner = call.runner();
  if (runner.job().cancelled()) runner.leave();
  note_living(block, *warp);
  Barrier& barrier = block.barriers[id];
  const auto arriving = static_cast<uint32_t>(std::popcount(lanes));
  // With a thread count, barriers count whole warps, also a last one that has fewer threads.
  barrier.arrived += threads && lanes == warp->live ? kWarpLanes : arriving;
  if (kind != BarrierOp::kArrive && kind != BarrierOp::kSync) {
    barrier.votes += arriving;
    barrier.trues += static_cast<uint32_t>(std::popcount(predicate & lanes));
  }
  if (threads) barrier.expected = threads;
  const uint32_t wanted = barrier.expected ? barrier.expected : block.living;
  if (barrier.arrived >= wanted) {
    uint32_t trues = 0, votes = 0;
    const bool others = barrier.first != nullptr;
    complete_barrier(runner, block, barrier, &trues, &votes);
    // In order, the first warp first: programs let all of them write what that one alone should have read before, as
    // on a GPU it mostly has (Eigen's sums of halves).
    if (others && kind != BarrierOp::kArrive) runner.go_last();
    return reduce(kind, trues, votes);
  }
  if (kind == BarrierOp::kArrive) return 0;
  Fiber* self = runner.worker().current;
  self->result = static_cast<uint32_t>(kind);
  self->next = nullptr;
  (barrier.last ? barrier.last->next : barrier.first) = self;
  barrier.last = self;
  ++block.waiting_warps;
  runner.wait_here(block);
  return self->result;
}

extern "C" {

void bandsaw_fault(WarpState* warp, uint32_t fault, uint64_t address) {
  BlockRunner& runner = *warp->block->runner;
  Worker& worker = runner.worker();
  worker.fault = fault;
  worker.fault_address = address;
  worker.fault_warp = warp;
  runner.leave();
}

void bandsaw_cancelled(WarpState* warp) { warp->block->runner->leave(); }

uint32_t bandsaw_barrier(WarpState* warp, uint32_t id, uint32_t threads, uint32_t lanes, uint32_t op,
                         uint32_t predicate) {
  if (id >= kNamedBarriers || threads % kWarpLanes != 0) bandsaw_fault(warp, CUDA_ERROR_ILLEGAL_INSTRUCTION, id);
  return meet(warp, id, threads, lanes, static_cast<BarrierOp>(op), predicate);
}

void bandsaw_warpgroup(WarpState* warp) {
  constexpr uint32_t kWarps = 4;
  const uint32_t group = warp->warp_id / kWarps, warps = std::min(kWarps, warp->warps - group * kWarps);
  meet(warp, kNamedBarriers + group, warps * kWarpLanes, warp->live, BarrierOp::kSync, 0);
}

void bandsaw_cluster_arrive(WarpState* warp, uint32_t lanes) {
  RuntimeCall call(warp);
  BlockState& block = call.block();
  note_living(block, *warp);
  if (lanes) call.runner().cluster_arrive(block, warp->warp_id, lanes);
}

void bandsaw_cluster_wait(WarpState* warp) {
  RuntimeCall call(warp);
  if (call.runner().job().cancelled()) call.runner().leave();
  if (call.block().cluster) call.runner().cluster_wait(call.block(), warp->warp_id);
}

void bandsaw_exit(WarpState*) {}  // the runner counts a warp's end when its entry returns

void bandsaw_yield(WarpState* warp) {
  RuntimeCall call(warp);
  if (call.runner().job().cancelled()) call.runner().leave();
  call.runner().yield_here(call.block());
}

void* bandsaw_translate(WarpState* warp, uint64_t address, uint32_t bytes) {
  RuntimeCall call(warp);
  if (void* host = services(warp).visible_host(address, bytes)) return host;
  bandsaw_fault(warp, CUDA_ERROR_ILLEGAL_ADDRESS, address);
}

int32_t bandsaw_vprintf(WarpState* warp, uint32_t lane, const char* format, const std::byte* arguments,
                        uint32_t bytes) {
  RuntimeCall call(warp);
  int32_t count = 0;
  bool readable;
  {
    std::string text;
    readable = format_printf(*warp, lane % kWarpLanes, services(warp), format, {arguments, bytes}, &text, &count);
    if (readable) services(warp).print(std::move(text));
  }
  if (!readable) bandsaw_fault(warp, CUDA_ERROR_ILLEGAL_ADDRESS, 0);
  return count;
}

void bandsaw_assert(WarpState* warp, uint32_t lane, const char* message, const char* file, uint32_t line,
                    const char* function) {
  {
    RuntimeCall call(warp);
    services(warp).print(format_assert(*warp, lane, message, file, line, function));
  }
  bandsaw_fault(warp, CUDA_ERROR_ASSERT, 0);
}

uint64_t bandsaw_malloc(WarpState* warp, uint64_t bytes) {
  RuntimeCall call(warp);
  return services(warp).heap_alloc(bytes);
}

void bandsaw_free(WarpState* warp, uint64_t address) {
  RuntimeCall call(warp);
  services(warp).heap_free(address);
}

void bandsaw_device_call(WarpState* warp, uint32_t lane, DeviceCall call, const uint64_t* words, DeviceAnswer* answer) {
  RuntimeCall here(warp);
  const uint64_t block =
      (uint64_t{warp->ctaid[2]} * warp->nctaid[1] + warp->ctaid[1]) * warp->nctaid[0] + warp->ctaid[0];
  const uint32_t thread = warp->warp_id * kWarpLanes + lane % kWarpLanes;
  SoftDevice* const device = here.runner().job().plan().device;
  if (call == DeviceCall::kSetConditional) {
    if (device) device->set_condition(words[0], static_cast<uint32_t>(words[1]));
    return;
  }
  constexpr uint64_t kNotSupported = 801;  // cudaErrorNotSupported
  ChildWork* const children = here.runner().job().children();
  if (children) {
    children->call(block, thread, call, words, answer);
  } else {
    answer->value = kNotSupported;
  }
}

}  // extern "C"

}  // namespace bandsaw::soft
