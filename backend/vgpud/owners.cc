#include "backend/vgpud/owners.h"

#include <unistd.h>

#include <cstdlib>

#include "memory/base/log.h"

namespace bandsaw {
namespace {

unsigned octal(const std::string& mode) { return static_cast<unsigned>(std::strtoul(mode.c_str(), nullptr, 8)) & 0777; }

}  // namespace

Owner owner_of(const VgpuSpec& spec) {
  const auto found = find_owner(spec.owner);
  if (found.ok()) return found.value();
  log::error("'{}' can be used by root alone: {}; `vgpuctl set {} --owner` names another", spec.name,
             found.status().message(), spec.name);
  return {Owner::Kind::kNobody, 0};
}

Owner vm_owner_of(const VgpuSpec& spec, const Config& config) {
  if (spec.owner.empty() || spec.domain.empty()) return owner_of(spec);
  for (const std::string& user : {config.vm_user, std::string("libvirt-qemu"), std::string("qemu")}) {
    if (user.empty()) continue;
    if (const auto found = find_owner(user); found.ok()) return found.value();
    if (user == config.vm_user) break;
  }
  log::warn(
      "'{}' is attached to a domain, and the host has no user for libvirt's QEMU ('vm.user'): vfio.sock is the owner's",
      spec.name);
  return owner_of(spec);
}

SocketAccess direct_access(const VgpuSpec& spec, const Config& config) {
  return {.mode = octal(spec.direct_mode.empty() ? config.direct_mode : spec.direct_mode),
          .group = find_group(spec.direct_group.empty() ? config.direct_group : spec.direct_group)};
}

SocketAccess vm_access(const Config& config) {
  return {.mode = octal(config.vm_mode), .group = find_group(config.vm_group)};
}

void warn_of_missing(const Config& config) {
  const Config built_in;
  const auto warn = [](const char* what, const char* key, const std::string& name, const char* then) {
    log::warn("this host has no {} '{}' ({}): {}; make it, then restart vgpud", what, name, key, then);
  };
  const auto is_missing = [](const std::string& name, const std::string& usual) {
    return name != usual && !name.empty() && !find_group(name);
  };
  if (is_missing(config.direct_group, built_in.direct_group)) {
    warn("group", "direct.group", config.direct_group, "direct.sock is root's alone");
  }
  if (is_missing(config.vm_group, built_in.vm_group)) {
    warn("group", "vm.group", config.vm_group, "vfio.sock is root's alone");
  }
  if (is_missing(config.admin_group, built_in.admin_group)) {
    warn("group", "control.admin_group", config.admin_group, "only root may change anything");
  }
  if (config.vm_user != built_in.vm_user && !find_owner(config.vm_user).ok()) {
    warn("user", "vm.user", config.vm_user, "vfio.sock of a virtual GPU with an owner is the owner's");
  }
}

Status check_owner(const VgpuSpec& spec) {
  if (!spec.direct_group.empty() && !find_group(spec.direct_group)) {
    return Status::error(EINVAL, "this host has no group '{}' for direct.sock", spec.direct_group.substr(0, 64));
  }
  if (spec.owner.empty()) return {};
  const auto found = find_owner(spec.owner);
  if (!found.ok()) {
    return Status::error(EINVAL, "{}; write USER or @GROUP, or none for whoever may open its sockets",
                         found.status().message());
  }
  if (!spec.direct_mode.empty() || !spec.direct_group.empty()) {
    return Status::error(EINVAL, "direct.sock of one that has an owner is the owner's: it has no mode or group beside");
  }
  const Owner& owner = found.value();
  if (::geteuid() != 0 && (owner.kind != Owner::Kind::kUser || owner.id != ::geteuid())) {
    return Status::error(EINVAL, "this vgpud does not run as root, and cannot give sockets to '{}'", spec.owner);
  }
  return {};
}

}  // namespace bandsaw
