// Launches, copies and fills that kernels queued.
#include <utility>

#include "backend/device/soft/soft_device.h"
#include "memory/base/log.h"

namespace bandsaw::soft {

CUresult SoftDevice::check_child(const Launch& launch) {
  const CodeView code = view(launch.code);
  if (!code.code) return CUDA_ERROR_INVALID_HANDLE;
  if (const CUresult refused = check_shape(launch, code)) return refused;
  code.loaded->is_compiled(code.code->name, compiler_);
  return CUDA_SUCCESS;
}

CUresult SoftDevice::make_child(const KernelOp& parent, const ChildItem& item, bool tail, const EngineWork& slice,
                                OpRef* op) {
  if (item.content.type != CU_GRAPH_NODE_TYPE_KERNEL) {
    return make_op(parent.context(), parent.priority(), item.content, op);
  }
  Launch launch = item.content.launch;
  launch.parameters = item.content.parameter_bytes;
  LaunchPlan plan;
  if (const CUresult refused = plan_launch(parent.context(), launch, &plan)) return refused;
  plan.priority = parent.priority();
  plan.by_kernel = true;
  plan.depth = parent.depth() + (tail ? 0 : 1);
  *op = std::make_shared<KernelOp>(parent.context(), std::move(plan), next_grid_++, compute_, host_, slice);
  return CUDA_SUCCESS;
}

void SoftDevice::run_children(KernelOp& parent, ChildWork& work, const EngineWork& slice, Done done) {
  Ops ops, tail;
  for (const auto* list : {&work.items, &work.tail}) {
    const bool is_tail = list == &work.tail;
    for (const ChildItem& item : *list) {
      OpRef op;
      if (const CUresult refused = make_child(parent, item, is_tail, slice, &op)) {
        log::error("what a kernel queued cannot run: error {}", static_cast<int>(refused));
        scheduler_.poison(refused == CUDA_ERROR_OUT_OF_MEMORY ? refused : CUDA_ERROR_LAUNCH_FAILED);
        return done(scheduler_.error());
      }
      (is_tail ? tail : ops).push_back(std::move(op));
    }
  }
  const OpRef first = std::make_shared<CallOp>(parent.context(), nullptr);
  const OpRef end = std::make_shared<CallOp>(parent.context(), nullptr);
  const OpRef last = std::make_shared<CallOp>(parent.context(), nullptr);
  // Nobody has an operation that a kernel launched but those that follow it. It ends here, lest a chain of tail
  // launches be kept as a whole.
  if (!parent.by_kernel()) last->done = std::exchange(done, nullptr);
  {
    // Nothing but `first` is ready here, because it has not run.
    std::lock_guard lock(scheduler_.mutex());
    bool early = !scheduler_.link(first, {});
    for (size_t i = 0; i < ops.size(); ++i) {
      Ops after;
      for (const uint32_t index : work.items[i].after) after.push_back(ops[index]);
      if (after.empty()) after.push_back(first);
      early |= scheduler_.link(ops[i], after);
    }
    ops.push_back(first);
    early |= scheduler_.link(end, ops);
    OpRef before = end;
    for (const OpRef& op : tail) {
      early |= scheduler_.link(op, std::span(&before, 1));
      before = op;
    }
    early |= scheduler_.link(last, std::span(&before, 1));
    if (parent.by_kernel()) scheduler_.hand_over(parent, *last);
    if (early) log::critical("what a kernel queued was ready before its parent had ended");
  }
  work.items.clear();
  work.tail.clear();
  if (done) done(CUDA_SUCCESS);
  scheduler_.start(first);
}

}  // namespace bandsaw::soft
