// What libvirt runs when a domain starts: /etc/libvirt/hooks/qemu.d/bandsaw, a script that hands the domain's XML to
// `vgpuctl hook`. If it exits with a status other than 0, the domain does not start. A domain without our metadata
// starts even where vgpuctl is missing or fails.
//
// Sources: libvirt's documentation of hooks: DOMAIN OPERATION SUBOPERATION EXTRA, the XML on stdin; a hook may not call
// libvirt. libvirt's AppArmor profile (usr.sbin.libvirtd): a hook may execute what lies in /usr/bin, unconfined, and
// nothing in /usr/local/bin or elsewhere; hence env.
#pragma once

#include <string>

namespace bandsaw::libvirt {

// The script, for this vgpuctl (an absolute path) and vgpud's folder of sockets.
std::string hook_script(const std::string& vgpuctl, const std::string& run);

}  // namespace bandsaw::libvirt
