// The capabilities that go with VFIO_USER_VERSION.
#pragma once

#include <string>
#include <string_view>

#include "memory/base/status.h"

namespace bandsaw::vfio_user {

// `proposed` is the client's NUL-terminated JSON, or empty. The answer is ours, a subset of what was proposed and no
// longer than it (QEMU reads it into the request's buffer); empty when the client proposed nothing.
Result<std::string> negotiate(std::string_view proposed);

}  // namespace bandsaw::vfio_user
