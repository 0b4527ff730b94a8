#include "hypervisor/libvirt/live.h"

#include <libvirt/libvirt-qemu.h>

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <nlohmann/json.hpp>
#include <thread>

#include "hypervisor/libvirt/connection.h"
#include "hypervisor/libvirt/xml_tree.h"
#include "memory/base/json.h"

namespace bandsaw::libvirt {
namespace {

using nlohmann::json;

struct Running {
  Connection connection;
  Domain domain;
};

Result<Running> running(const std::string& uri, const std::string& name) {
  auto connection = open_connection(uri);
  if (!connection.ok()) return connection.status();
  auto domain = find_domain(connection.value(), name);
  if (!domain.ok()) return domain.status();
  if (virDomainIsActive(domain.value().get()) != 1) return Status::error(ESHUTDOWN, "domain '{}' does not run", name);
  return Running{std::move(connection.value()), std::move(domain.value())};
}

// What QEMU returns, or its error in its words.
Result<json> ask(const Domain& domain, const std::string& command, json arguments) {
  const std::string text = json_text({{"execute", command}, {"arguments", std::move(arguments)}});
  char* answer = nullptr;
  if (virDomainQemuMonitorCommand(domain.get(), text.c_str(), &answer, 0) < 0) {
    return Status::error(EIO, "libvirt does not hand '{}' to QEMU: {}", command, last_error());
  }
  json reply = parse_json(answer);
  std::free(answer);
  if (!reply.is_object()) return Status::error(EIO, "QEMU's answer to '{}' is no JSON object", command);
  if (reply.contains("error")) return Status::error(EIO, "QEMU: {}", text_in(reply["error"], "desc"));
  return reply["return"];
}

// The children of an object of QEMU's: (name, type) of each.
Result<std::vector<std::pair<std::string, std::string>>> children(const Domain& domain, const std::string& path) {
  const auto listed = ask(domain, "qom-list", {{"path", path}});
  if (!listed.ok()) return listed.status();
  std::vector<std::pair<std::string, std::string>> result;
  for (const json& one : listed.value()) result.emplace_back(text_in(one, "name"), text_in(one, "type"));
  return result;
}

constexpr const char* kDevices = "/machine/peripheral";
constexpr std::chrono::seconds kUnplugTimeout{30};
constexpr std::chrono::milliseconds kUnplugPoll{100};

std::string id_of(const std::string& vgpu) { return "bandsaw-" + vgpu; }

Result<bool> has(const Domain& domain, const std::string& id) {
  const auto devices = children(domain, kDevices);
  if (!devices.ok()) return devices.status();
  return std::any_of(devices.value().begin(), devices.value().end(), [&](const auto& one) { return one.first == id; });
}

// The last one, because libvirt, which does not know, takes the first.
Result<std::string> free_port(const Domain& domain) {
  const auto devices = children(domain, kDevices);
  if (!devices.ok()) return devices.status();
  std::string found;
  for (const auto& [id, type] : devices.value()) {
    if (type != "child<pcie-root-port>") continue;
    const auto plugged = children(domain, std::string(kDevices) + "/" + id + "/" + id);
    if (!plugged.ok()) return plugged.status();
    const bool taken = std::any_of(plugged.value().begin(), plugged.value().end(),
                                   [](const auto& one) { return one.first.starts_with("child["); });
    if (!taken) found = id;
  }
  if (!found.empty()) return found;
  return Status::error(
      ENODEV,
      "the domain has no free PCI Express root port, which a device needs that comes while it runs: add "
      "<controller type='pci' model='pcie-root-port'/> to its <devices>, and start it anew");
}

bool shares_memory(const std::string& xml) {
  const xml::Document document = xml::parse(xml);
  xmlNode* const root = xml::domain_root(document);
  xmlNode* const backing = root ? xml::child(root, "memoryBacking") : nullptr;
  xmlNode* const access = backing ? xml::child(backing, "access") : nullptr;
  if (access && xml::attribute(access, "mode") == "shared") return true;
  // Or each NUMA node's by itself.
  xmlNode* const cpu = root ? xml::child(root, "cpu") : nullptr;
  xmlNode* const numa = cpu ? xml::child(cpu, "numa") : nullptr;
  int shared = 0;
  for (xmlNode* cell = numa ? numa->children : nullptr; cell; cell = cell->next) {
    if (!xml::is_named(cell, "cell")) continue;
    if (xml::attribute(cell, "memAccess") != "shared") return false;
    ++shared;
  }
  return shared > 0;
}

}  // namespace

Status plug(const std::string& uri, const std::string& name, const Attachment& attachment) {
  const auto found = running(uri, name);
  if (!found.ok()) return found.status();
  const Domain& domain = found.value().domain;
  const auto xml = definition(domain, name, 0);
  if (!xml.ok()) return xml.status();
  if (!shares_memory(xml.value())) {
    return Status::error(
        ENOTSUP,
        "it runs without shared memory, which a virtual GPU needs: shut it down, then `vgpuctl attach`, "
        "which sets <memoryBacking>, and start it");
  }
  const std::string id = id_of(attachment.vgpu);
  const auto there = has(domain, id);
  if (!there.ok()) return there.status();
  if (there.value()) return Status::error(EEXIST, "domain '{}' has virtual GPU '{}' already", name, attachment.vgpu);
  const auto port = free_port(domain);
  if (!port.ok()) return port.status();
  return ask(domain, "device_add",
             {{"driver", "vfio-user-pci"},
              {"id", id},
              {"bus", port.value()},
              {"socket", {{"type", "unix"}, {"path", attachment.socket}}}})
      .status();
}

namespace {

// The region of a vfio-user device's pending bits. QEMU (11.1.3, hw/vfio-user/pci.c, vfio_user_msix_teardown) takes it
// out of its BAR once more when the device is gone, and aborts: memory_region_del_subregion: subregion->container ==
// mr.
constexpr const char* kAborts = "VFIO MSIX PBA";

Result<bool> would_abort(const Domain& domain, const std::string& id) {
  const auto regions = children(domain, std::string(kDevices) + "/" + id);
  if (!regions.ok()) return regions.status();
  return std::ranges::any_of(regions.value(), [](const auto& one) { return one.first.starts_with(kAborts); });
}

// The guest is asked to let it go, as by the button of a slot; Linux waits five seconds for a second thought, unless it
// plugs by ACPI.
Status wait_until_gone(const Domain& domain, const std::string& name, const std::string& id) {
  const auto deadline = std::chrono::steady_clock::now() + kUnplugTimeout;
  while (std::chrono::steady_clock::now() < deadline) {
    const auto there = has(domain, id);
    if (!there.ok()) return there.status();
    if (!there.value()) return {};
    std::this_thread::sleep_for(kUnplugPoll);
  }
  return Status::error(
      ETIMEDOUT,
      "the guest of domain '{}' has not let go of it in {} s: its kernel must have PCI Express hot plug, "
      "and have booted",
      name, kUnplugTimeout.count());
}

Status check_unplug_of(const Domain& domain, const std::string& name, const std::string& vgpu) {
  const auto there = has(domain, id_of(vgpu));
  if (!there.ok()) return there.status();
  if (!there.value()) return Status::error(ENOENT, "domain '{}' has no virtual GPU '{}' now", name, vgpu);
  const auto aborts = would_abort(domain, id_of(vgpu));
  if (!aborts.ok()) return aborts.status();
  if (aborts.value()) {
    return Status::error(
        ENOTSUP,
        "virtual GPU '{}' came with the start of domain '{}' and goes only with its end: it has MSI-X, and QEMU (11.1, "
        "as seen) aborts, and the domain with it, when such a device is unplugged; to end its programs now, write 1 to "
        "the device's 'remove' in the guest's /sys/bus/pci/devices",
        vgpu, name);
  }
  return {};
}

}  // namespace

Status check_unplug(const std::string& uri, const std::string& name, const std::string& vgpu) {
  const auto found = running(uri, name);
  return found.ok() ? check_unplug_of(found.value().domain, name, vgpu) : found.status();
}

Status unplug(const std::string& uri, const std::string& name, const std::string& vgpu) {
  const auto found = running(uri, name);
  if (!found.ok()) return found.status();
  if (Status status = check_unplug_of(found.value().domain, name, vgpu); !status.ok()) return status;
  const Status asked = ask(found.value().domain, "device_del", {{"id", id_of(vgpu)}}).status();
  // Asked before, and not gone yet, is an error too.
  const bool again = asked.message().find("already in the process of unplug") != std::string::npos;
  if (!asked.ok() && !again) return asked;
  return wait_until_gone(found.value().domain, name, id_of(vgpu));
}

}  // namespace bandsaw::libvirt
