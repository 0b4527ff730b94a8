#include "hypervisor/virtio/device.h"

#include "hypervisor/virtio/core.h"
#include "hypervisor/virtio/pci_function.h"

namespace bandsaw::virtio {

Device::Device(DeviceConfig config, DeviceSink& sink)
    : core_(std::make_shared<Core>(std::move(config), sink)), pci_(std::make_unique<PciFunction>(*core_)) {}

Device::~Device() = default;

void Device::post_event(vgpu_event_type type, uint32_t process) { core_->post_event(type, process); }
bool Device::connected() const { return core_->is_connected(); }
bool Device::driver_ready() const { return core_->driver_ready(); }
PciFunction& Device::pci() { return *pci_; }

}  // namespace bandsaw::virtio
