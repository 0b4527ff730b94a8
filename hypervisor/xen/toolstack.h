// What `xl` does for the devices that it knows: gives a running domain a virtual GPU, and takes it away, in xenstore.
//
// Threads: what takes no connection opens and closes its own, and may be called from any thread.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "hypervisor/xen/store_path.h"
#include "memory/base/status.h"

struct xs_handle;

namespace bandsaw::xen {

// Of all domains that run, but for dom0.
std::vector<uint32_t> domains(xs_handle* store);
// Empty: no such domain, or it has no name yet.
std::string domain_name(xs_handle* store, uint32_t domain);
// The same as below by a connection that is there already. EEXIST: it has this virtual GPU.
Status attach(xs_handle* store, uint32_t domain, const std::string& vgpu);
// Removes what stands of the device on the backend's side, unless its frontend is there.
void forget(xs_handle* store, const DevicePath& device);

// `domain`: the name or the number of a running domain. Errors: ENOENT (no such domain), EEXIST (it has this virtual
// GPU already), ENOTCONN (no Xen here, or xenstored does not answer).
Status attach(const std::string& domain, const std::string& vgpu);
// ENOENT: no such domain, or it has no such virtual GPU.
Status detach(const std::string& domain, const std::string& vgpu);

}  // namespace bandsaw::xen
