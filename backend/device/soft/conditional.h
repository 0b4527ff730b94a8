// Conditional nodes of graphs: a number that kernels set, and graphs that run by what it is.
#pragma once

#include <atomic>
#include <memory>
#include <vector>

#include "backend/device/soft/graph.h"
#include "backend/device/soft/op.h"

namespace bandsaw::soft {

class SoftDevice;

// What a CUgraphConditionalHandle stands for. Kernels set it at any time.
struct Condition {
  Condition(uint32_t initial_, bool assigns_) : initial(initial_), assigns(assigns_), value(initial_) {}
  // A launch of the graph that has it, at any depth, begins.
  void begin() {
    if (assigns) value = initial;
  }
  const uint32_t initial;
  const bool assigns;  // `initial`, each time that the whole graph is launched
  std::atomic<uint32_t> value;
  bool used = false;  // by a node; guarded by the scheduler's mutex
};

// One body of a conditional node, as it was when the graph was instantiated.
struct ExecBody {
  std::vector<SoftExec::Step> steps;
  std::vector<uint32_t> leaves;
};

// Runs the bodies that the condition asks for, one after another. Ends when it asks for none.
class ConditionalOp final : public StreamOp {
 public:
  ConditionalOp(SoftDevice& device, std::shared_ptr<SoftContext> context, int priority, const SoftExec::Step& step)
      : StreamOp(std::move(context)),
        device_(device),
        priority_(priority),
        type_(step.content.conditional.type),
        condition_(step.condition),
        bodies_(step.bodies) {}
  bool start(Scheduler& scheduler, CUresult* status) override;
  void cancel(Scheduler&) override { cancelled_ = true; }

 private:
  const ExecBody* chosen() const;
  // False: nothing is to be run any more, and `status` says how it ended.
  bool go_on(Scheduler& scheduler, CUresult* status);
  void body_ended(Scheduler& scheduler, CUresult status, bool deep);

  SoftDevice& device_;
  const int priority_;
  const uint32_t type_;  // CUgraphConditionalNodeType
  const std::shared_ptr<Condition> condition_;
  const std::vector<std::shared_ptr<const ExecBody>> bodies_;
  std::atomic<bool> cancelled_{false};
};

}  // namespace bandsaw::soft
