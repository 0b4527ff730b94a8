// How the blocks of a launch under way get onto the device: in grid slices, or as persistent blocks.
#pragma once

#include <chrono>
#include <memory>
#include <optional>
#include <string>

#include "backend/control/kernel_descriptor.h"
#include "backend/runner/execution/clock.h"
#include "backend/runner/execution/launch_id.h"
#include "backend/runner/slicing/kernel_cloner.h"

namespace bandsaw::runner {

// For the record loop's thread. The launch outlives it.
class LaunchVariant {
 public:
  virtual ~LaunchVariant() = default;

  // Looks at what has ended and at what others want, in whatever time look_again() says.
  virtual void look() {}
  virtual std::chrono::nanoseconds look_again(Clock::Point) const { return std::chrono::nanoseconds::max(); }
  // Nothing but the gate is in the way of the next time slice.
  virtual bool may_issue() const = 0;
  // What the next time slice has in common with others, as far as its time goes. None: that is not known.
  virtual std::optional<LaunchId> next_id() const { return std::nullopt; }
  // Puts it on the device; the gate has let it pass. Its time slice at the gate ends with it.
  virtual CUresult issue() = 0;
  // What is in flight does not end: puts all that is left beside it, without asking at the gate.
  virtual CUresult issue_rest() = 0;
  // Blocks have begun since the last call, although no launch has ended; as far as it is known.
  virtual bool goes_on() { return false; }

  // Nothing more is issued of it: when what is in flight has ended, turn() says with which clone the launch goes on.
  // Null: with this one after all.
  virtual bool turns() const { return false; }
  virtual std::shared_ptr<const KernelClone> turn() { return nullptr; }
  // Nothing of it is used by the device any more.
  virtual void give_back() {}

  // What it alone knows for the launch's descriptor.
  virtual void describe(KernelDescriptor* descriptor) const = 0;
  // The launch's time is that of grid slices of the size that was chosen for its shape, or as good as that.
  virtual bool is_comparable() const { return true; }
  virtual const KernelClone& clone() const = 0;
};

}  // namespace bandsaw::runner
