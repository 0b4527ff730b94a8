// A virtual GPU comes to a domain of QEMU's while it runs, and goes: PCI Express hot plug, by QEMU's own monitor, which
// libvirt hands on. libvirt does not know of the device, and marks the domain as tainted. The definition is left alone.
//
// Sources: QEMU's documentation of QMP (device_add, qom-list); docs/pcie.txt (only root ports take devices
// while the machine runs, not the root bus).
#pragma once

#include "hypervisor/libvirt/domain.h"

namespace bandsaw::libvirt {

// Errors: ENOENT (no such domain), ESHUTDOWN (it does not run), EEXIST (it has the virtual GPU), ENOTSUP (its memory is
// not shared), ENODEV (no root port is free), ENOTCONN, EIO with QEMU's words.
Status plug(const std::string& uri, const std::string& domain, const Attachment& attachment);
// Whether unplug() could take it out: its errors but for ETIMEDOUT.
Status check_unplug(const std::string& uri, const std::string& domain, const std::string& vgpu);
// Takes it out of the guest and waits for that. Errors: ENOTSUP (it was not plugged in, but there from the start),
// ETIMEDOUT (the guest keeps it), ENOENT (the domain, or the virtual GPU in it), ESHUTDOWN (it does not run), ENOTCONN,
// EIO.
Status unplug(const std::string& uri, const std::string& domain, const std::string& vgpu);

}  // namespace bandsaw::libvirt
