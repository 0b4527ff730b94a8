// Answers to VGPU_CTL_QUERY: what a virtual GPU says of itself to those who watch it. Of its neighbours, nothing.
//
// Threads: the event loop's only.
#pragma once

#include <functional>
#include <memory>
#include <span>
#include <string>

#include "backend/control/event_ptr.h"
#include "backend/control/vgpu_identity.h"
#include "backend/session/processes.h"
#include "backend/session/sensor_reader.h"
#include "backend/session/usage_rates.h"
#include "guest-driver/uapi/wire.h"

namespace bandsaw {

class StatusQuery {
 public:
  // What the device is, as a runner has said; null: none has been ready yet.
  using DeviceInfo = std::function<const vgpu_device_info*()>;

  // The usage page outlives it. `host`: as host_id(). `sensors`: of the GPU; null: the device is none.
  StatusQuery(event_base* base, const UsagePageOwner* usage_page, std::string host, VgpuIdentity identity,
              DeviceInfo device_info, std::unique_ptr<SensorReader> sensors);

  // `processes`: those that the asker may see.
  vgpu_ctl_reply answer(const vgpu_ctl_query& query, std::span<const ProcessSlot> processes);
  // Looks each second from now on, until there is nothing to see.
  void wake();
  bool awake() const;

 private:
  void tick();
  void take();
  vgpu_ctl_reply device() const;
  vgpu_ctl_reply sensors() const;
  vgpu_ctl_reply links() const;
  // Of the GPU that `info` is of; null: none has come yet.
  const GpuReport* report(const vgpu_device_info& info) const;
  vgpu_ctl_reply usage(std::span<const ProcessSlot> processes) const;
  vgpu_ctl_reply process(std::span<const ProcessSlot> processes, uint32_t index) const;

  const UsagePageOwner* usage_page_;
  const std::string host_;
  const VgpuIdentity identity_;
  DeviceInfo device_info_;
  std::unique_ptr<SensorReader> sensors_;
  EventPtr timer_;
  UsageRates rates_;
  uint64_t taken_us_ = 0;  // since the epoch
  unsigned quiet_ = 0;     // looks in a row at which nobody used the virtual GPU
};

}  // namespace bandsaw
