#include "backend/sandbox/capabilities.h"

#include <linux/capability.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <unistd.h>

namespace bandsaw {

bool has_capability(int capability) {
  __user_cap_header_struct header{_LINUX_CAPABILITY_VERSION_3, 0};
  __user_cap_data_struct data[2]{};
  if (::syscall(SYS_capget, &header, data) < 0) return false;
  return ((data[capability / 32].effective >> (capability % 32)) & 1) != 0;
}

Status drop_capabilities() {
  __user_cap_header_struct header{_LINUX_CAPABILITY_VERSION_3, 0};
  __user_cap_data_struct data[2]{};
  if (::syscall(SYS_capset, &header, data) < 0) return Status::system("cannot give up capabilities");
  return {};
}

void empty_bounding_set() {
  for (int capability = 0; ::prctl(PR_CAPBSET_READ, capability) >= 0; ++capability) {
    ::prctl(PR_CAPBSET_DROP, capability);
  }
}

}  // namespace bandsaw
