// The VM's way in: turns what the virtio device, or Xen's backend, reports into guest processes and RAM.
#pragma once

#include <functional>
#include <string>

#include "backend/session/processes.h"
#include "hypervisor/virtio/device.h"

namespace bandsaw {

class VmFrontend : public virtio::DeviceSink, public ProcessWatcher {
 public:
  // Source and usage_page outlive the frontend.
  VmFrontend(event_base* base, const ProcessesConfig& config, RunnerSource* source, UsagePageOwner* usage_page);

  virtio::Device& device() { return device_; }
  const Processes& processes() const { return processes_; }

  void on_control(std::vector<uint8_t> request, Reply reply) override;
  void on_ram_added(virtio::RamRegion region) override;
  void on_ram_removed(uint32_t id, Done done) override;
  void on_driver_ready() override;
  void on_reset(Done done) override;
  void on_connected() override;
  void on_disconnected() override;

  // A second way by which a VM may have come: events go there too. Whichever has no driver drops them.
  using EventPort = std::function<void(vgpu_event_type type, uint32_t process)>;
  void also_post_to(EventPort port) { other_ = std::move(port); }

  void wake(uint32_t process) override { post(VGPU_EVENT_WAKE, process); }
  void lost(uint32_t process) override { post(VGPU_EVENT_PROCESS_LOST, process); }

 private:
  void post(vgpu_event_type type, uint32_t process);

  Processes processes_;
  virtio::Device device_;
  EventPort other_;
};

}  // namespace bandsaw
