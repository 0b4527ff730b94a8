// The virtual GPU as a virtio device (id 63), apart from the frontend through which a hypervisor reaches it
// (hypervisor/vfio_user today). The session owns a Device, implements DeviceSink and opens a frontend:
//
//   virtio::Device device({.name = "web0", .schema = schema}, sink);
//   vfio_user::Server server(event_base, device);   // hypervisor/vfio_user/server.h
//   Status status = server.listen("/run/bandsaw/web0/vfio.sock");
//   ...
//   device.post_event(VGPU_EVENT_WAKE, process);
//
// Threads: everything here, the sink's functions included, runs on the thread of the one event loop.
// Lifetime: the sink outlives the device, the device outlives its frontend. A Reply or Done may be called at once, from
// inside the sink's function, or any time later, also after the device is gone: it then does nothing.
// Sources: virtio 1.2 (sections 2.1, 2.7, 4.1), guest-driver/uapi/vgpu_control.h.
#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "guest-driver/uapi/vgpu_control.h"
#include "memory/base/unique_fd.h"

namespace bandsaw::virtio {

class Core;
class PciFunction;

// A stretch of guest RAM that the hypervisor shares by a descriptor.
struct RamRegion {
  uint32_t id = 0;   // never used twice in the device's life
  uint64_t gpa = 0;  // guest-physical address of its first byte
  uint64_t bytes = 0;
  UniqueFd fd;          // the sink's own copy
  uint64_t offset = 0;  // where the region begins in `fd`, bytes
  bool writable = false;
};

// What the session implements.
class DeviceSink {
 public:
  using Reply = std::function<void(const vgpu_ctl_reply&)>;
  using Done = std::function<void()>;
  virtual ~DeviceSink() = default;

  // A control request: a private copy of the chain's readable bytes, of any content and at most kRequestMaxBytes
  // long. Every request must be answered once, in any order; an answer after a reset goes nowhere.
  virtual void on_control(std::vector<uint8_t> request, Reply reply) = 0;

  virtual void on_ram_added(RamRegion region) = 0;
  // A region goes while the guest runs. Call `done` when nothing on the host touches the region any more; guest
  // processes that still use it have to end. The hypervisor waits for that. QEMU gives up after five seconds, so bound
  // the wait.
  virtual void on_ram_removed(uint32_t id, Done done) = 0;

  // The driver has set DRIVER_OK: control requests may come, events may be posted.
  virtual void on_driver_ready() = 0;
  // The driver or the hypervisor resets the device (driver unloaded, guest rebooted): every guest process ends. Call
  // `done` when no guest page is touched any more: only then does the driver see the reset finished and may reuse its
  // pages. RAM regions stay.
  virtual void on_reset(Done done) = 0;

  // A hypervisor has come or has gone. On disconnect (the hypervisor may have been killed) all RAM regions are
  // withdrawn without on_ram_removed and all guest processes end.
  virtual void on_connected() = 0;
  virtual void on_disconnected() = 0;
};

struct DeviceConfig {
  std::string name;  // at most 63 bytes are shown to the guest
  uint32_t max_processes = 64;
  vgpu_schema schema{};
};

// The largest request: ADD_REGION with VGPU_SEGMENTS_MAX segments.
inline constexpr uint64_t kRequestMaxBytes =
    sizeof(vgpu_ctl_add_region) + uint64_t{VGPU_SEGMENTS_MAX} * sizeof(vgpu_segment);

class Device {
 public:
  Device(DeviceConfig config, DeviceSink& sink);
  ~Device();
  Device(const Device&) = delete;
  Device& operator=(const Device&) = delete;

  // Tells the guest's driver. Waits in the device while the guest has no free event buffer; equal events that wait are
  // merged. Dropped when no driver is ready, and at reset.
  void post_event(vgpu_event_type type, uint32_t process);

  bool connected() const;     // a hypervisor is there
  bool driver_ready() const;  // and the guest's driver too

  PciFunction& pci();  // for frontends

 private:
  std::shared_ptr<Core> core_;
  std::unique_ptr<PciFunction> pci_;
};

}  // namespace bandsaw::virtio
