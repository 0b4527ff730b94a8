// What libvirt runs when a domain starts: /etc/libvirt/hooks/qemu.d/bandsaw, a script that hands the domain's XML to
// `vgpuctl hook`. Its end with another status than 0 keeps the domain from starting. A domain without our metadata
// starts whatever has become of vgpuctl.
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
