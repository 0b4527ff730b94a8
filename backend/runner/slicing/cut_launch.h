// One launch that is cut: it puts grid slices or persistent blocks on the device as the gate lets them in.
#pragma once

#include <chrono>
#include <memory>
#include <string>

#include "backend/runner/slicing/launch_chooser.h"
#include "backend/runner/slicing/launch_under_way.h"
#include "backend/runner/slicing/launch_variant.h"
#include "backend/runner/slicing/slicing_parts.h"
#include "backend/runner/slicing/stall_watch.h"

namespace bandsaw::runner {

// For the record loop's thread. What is on the device may outlive it.
class CutLaunch {
 public:
  // `choice` has a clone, `parts` outlives it. Null: it cannot be cut after all, and is to run whole.
  static std::unique_ptr<CutLaunch> make(SlicingParts* parts, const LaunchCaller& caller, const StreamRef& stream,
                                         const Launch& launch, const LaunchChoice& choice);

  struct Progress {
    bool issued = false;   // something was
    bool at_gate = false;  // and more would be, but for the gate
    bool over = false;     // nothing more will be; call finish()
  };
  // Call when something may have changed, and by look_again().
  Progress advance();
  void finish();
  // Copies stand before it on its stream: where it is planned, it does not ask before these have ended.
  void await_copies();

  const LaunchCaller& caller() const { return launch_.caller; }
  // Nothing but the gate is in the way of advance().
  bool may_advance() const;
  // When advance() is to be called at the latest, even if nothing happens.
  std::chrono::nanoseconds look_again() const;
  // It is to be soon: persistent blocks may have to be told to stop.
  bool is_watched() const;

 private:
  CutLaunch(SlicingParts* parts, const LaunchCaller& caller, const StreamRef& stream, const Launch& launch,
            const LaunchChoice& choice);
  std::unique_ptr<LaunchVariant> variant_of(const std::shared_ptr<const KernelClone>& clone, std::string* why_not);
  std::chrono::nanoseconds timeout() const;
  bool is_stalled();
  void turn();
  void issue();
  void run_whole();
  void fail(CUresult error);
  void learn();

  SlicingParts& parts_;
  LaunchUnderWay launch_;
  std::unique_ptr<LaunchVariant> variant_;
  StallWatch stall_watch_;
};

}  // namespace bandsaw::runner
