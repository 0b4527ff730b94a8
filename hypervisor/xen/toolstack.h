// What `xl` does for the devices that it knows: gives a running domain a virtual GPU, and takes it away, in xenstore.
//
// Threads: every function opens and closes its own connection and may be called from any thread.
#pragma once

#include <string>

#include "memory/base/status.h"

namespace bandsaw::xen {

// `domain`: the name or the number of a running domain. Errors: ENOENT (no such domain), EEXIST (it has this virtual
// GPU already), ENOTCONN (no Xen here, or xenstored does not answer).
Status attach(const std::string& domain, const std::string& vgpu);
// ENOENT: no such domain, or it has no such virtual GPU.
Status detach(const std::string& domain, const std::string& vgpu);

}  // namespace bandsaw::xen
