// How a virtual GPU is written into a libvirt domain.
//
// libvirt has no element of its own for a vfio-user device, so the device is an argument that libvirt hands to QEMU
// (<qemu:commandline>), and guest memory must be a shared memfd (<memoryBacking>) for the session to reach it. An
// element in <metadata> (namespace kMetadataNamespace) records the virtual GPU's name for people and tools.
// libvirt applies such a change only when the domain starts, so a running domain is refused.
//
// Threads: every function opens and closes its own connection and may be called from any thread.
#pragma once

#include <string>
#include <vector>

#include "memory/base/status.h"

namespace bandsaw::libvirt {

inline constexpr const char* kMetadataNamespace = "https://bandsaw.dev/xmlns/libvirt/1.0";

struct Attachment {
  std::string vgpu;    // name of the virtual GPU
  std::string socket;  // absolute path of its vfio.sock
};

// What to paste into a domain by hand: a whole <domain> fragment with the three elements.
std::string domain_snippet(const Attachment& attachment);

// Adds the attachment to a domain's XML, or takes it out. The text is the domain's inactive definition. Errors:
// EEXIST (attached already), ENOENT (not attached), EINVAL (not a domain).
Result<std::string> add_to_xml(const std::string& domain_xml, const Attachment& attachment);
Result<std::string> remove_from_xml(const std::string& domain_xml, const Attachment& attachment);

// The same on a persistent domain. `uri` may be empty: libvirt's default (LIBVIRT_DEFAULT_URI). Errors: ENOENT (no
// such domain), EBUSY (it is running), ENOTCONN (libvirt does not answer), and those above.
Status attach(const std::string& uri, const std::string& domain, const Attachment& attachment);
Status detach(const std::string& uri, const std::string& domain, const Attachment& attachment);

}  // namespace bandsaw::libvirt
