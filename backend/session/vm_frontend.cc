#include "backend/session/vm_frontend.h"

#include "memory/base/log.h"

namespace bandsaw {
namespace {

virtio::DeviceConfig device_config(const ProcessesConfig& config) {
  virtio::DeviceConfig device{.name = config.vgpu, .max_processes = config.processes_max, .schema = config.schema};
  return device;
}

}  // namespace

VmFrontend::VmFrontend(event_base* base, const ProcessesConfig& config, RunnerSource* source,
                       UsagePageOwner* usage_page)
    : processes_(base, config, source, usage_page, this), device_(device_config(config), *this) {}

void VmFrontend::post(vgpu_event_type type, uint32_t process) {
  device_.post_event(type, process);
  if (other_) other_(type, process);
}

void VmFrontend::on_control(std::vector<uint8_t> request, Reply reply) {
  processes_.request(std::as_bytes(std::span(request)),
                     [reply = std::move(reply)](const vgpu_ctl_reply& answer, std::span<const int>) { reply(answer); });
}

void VmFrontend::on_ram_added(virtio::RamRegion region) {
  const Status status = processes_.add_ram({.id = region.id,
                                            .base = region.gpa,
                                            .bytes = region.bytes,
                                            .offset = region.offset,
                                            .fd = std::move(region.fd),
                                            .writable = region.writable});
  // The guest can live without it: what it names there is refused.
  if (!status.ok()) log::warn("guest RAM left out: {}", status.message());
}

void VmFrontend::on_ram_removed(uint32_t id, Done done) { processes_.remove_ram(id, std::move(done)); }

void VmFrontend::on_driver_ready() { log::info("the guest's driver is ready"); }

void VmFrontend::on_reset(Done done) {
  if (processes_.count() > 0) log::info("the device is reset: {} guest processes end", processes_.count());
  processes_.end_all(false, std::move(done));
}

void VmFrontend::on_connected() { log::info("the hypervisor has connected"); }

void VmFrontend::on_disconnected() {
  log::info("the hypervisor has gone: {} guest processes end", processes_.count());
  processes_.end_all(true, nullptr);
}

}  // namespace bandsaw
