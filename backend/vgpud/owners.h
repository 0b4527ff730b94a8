// Whose the sockets of a virtual GPU are.
#pragma once

#include "backend/control/owner.h"
#include "backend/control/vgpu_spec.h"
#include "backend/vgpud/config.h"

namespace bandsaw {

// Of direct.sock. Nobody: the user or group that was chosen is gone, and nobody else takes its place.
Owner owner_of(const VgpuSpec& spec);
// Of vfio.sock: the owner, whose own QEMU may connect; once it is attached to a domain, the user that libvirt's QEMU
// runs as, if the host has it.
Owner vm_owner_of(const VgpuSpec& spec, const Config& config);

// Who may open the sockets of one that has no owner.
SocketAccess direct_access(const VgpuSpec& spec, const Config& config);
SocketAccess vm_access(const Config& config);

// Says which users and groups of the configuration this host does not have; nothing of those that are built in, which
// are for hosts that have them.
void warn_of_missing(const Config& config);

// EINVAL: there is no such user or group, this vgpud cannot give sockets away, or permissions of direct.sock are asked
// for beside an owner.
Status check_owner(const VgpuSpec& spec);

}  // namespace bandsaw
