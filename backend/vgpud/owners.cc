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

Status check_owner(const VgpuSpec& spec) {
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
