// userfaultfd(2), as the kernel gives it to this process.
#pragma once

namespace bandsaw::libcuda {

// A descriptor that does not block and that the caller closes; UFFDIO_API is still to come. -1: this process may have
// none. `only_own`: one will do that hears of the program's touches and fails the kernel's (UFFD_USER_MODE_ONLY).
int open_userfault(bool only_own = false);

}  // namespace bandsaw::libcuda
