// Says to the arbiter, where it plans, which launch a time slice is asked for (backend/control/kernel_descriptor.h).
#pragma once

#include "backend/control/kernel_descriptor.h"
#include "backend/device/device.h"
#include "backend/runner/execution/gate.h"
#include "backend/runner/slicing/slicing_settings.h"

namespace bandsaw::runner {

class KnownKernel;
struct LaunchUnderWay;
class LaunchVariant;

// For the record loop's thread.
class LaunchDescriber {
 public:
  // Both outlive it.
  LaunchDescriber(GateView* gate, const SlicingSettings* settings) : gate_(*gate), settings_(*settings) {}

  // Call before each time slice of the launch. A kernel of which the device has yet to take a grid slice is
  // not described: that ask is one of short work.
  void describe(LaunchUnderWay& launch, const LaunchVariant& variant);
  // Of persistent blocks under way: so many blocks have been claimed, with so many resident on each SM as planned.
  void report(const LaunchUnderWay& launch, const LaunchVariant& variant, uint64_t claimed, uint32_t resident);
  // Call before the ask for a time slice that begins with a launch of that kernel which runs whole.
  void describe_whole(Device& device, KnownKernel& kernel, const Launch& launch);
  // Nothing more will be asked for the launch: the arbiter does not wait for another ask.
  void withdraw(const LaunchUnderWay& launch);

 private:
  KernelDescriptor descriptor_of(const LaunchUnderWay& launch, const LaunchVariant& variant) const;

  GateView& gate_;
  const SlicingSettings& settings_;
  uint64_t calls_ = 0;  // that were described
};

}  // namespace bandsaw::runner
