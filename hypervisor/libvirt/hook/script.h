// What libvirt runs when a domain starts: bandsaw in /etc/libvirt/hooks/qemu.d (QEMU's domains) and libxl.d (Xen's), a
// script that hands the domain's XML to `vgpuctl hook`. If it exits with a status other than 0, the domain does not
// start. A domain without our metadata starts even where vgpuctl is missing or fails.
//
// Sources: libvirt's documentation of hooks: DOMAIN OPERATION SUBOPERATION EXTRA, the XML on stdin; a hook may not call
// libvirt. libvirt's AppArmor profile (usr.sbin.libvirtd): a hook may execute what lies in /usr/bin, unconfined, and
// nothing in /usr/local/bin or elsewhere; hence env.
#pragma once

#include <string>

namespace bandsaw::libvirt {

// libvirt's names of its drivers, and `vgpuctl`'s of the same hypervisors.
struct HookDriver {
  const char *driver, *hypervisor;
};
inline constexpr HookDriver kHookDrivers[] = {{"qemu", "libvirt"}, {"libxl", "xen"}};

// The script, for this vgpuctl (an absolute path) and vgpud's folder of sockets.
std::string hook_script(const HookDriver& driver, const std::string& vgpuctl, const std::string& run);

}  // namespace bandsaw::libvirt
