#include "guest-driver/libcuda/core/userfault.h"

#include <fcntl.h>
#include <linux/userfaultfd.h>
#include <sys/ioctl.h>
#include <sys/syscall.h>
#include <unistd.h>

namespace bandsaw::libcuda {
namespace {

#ifndef USERFAULTFD_IOC_NEW
#define USERFAULTFD_IOC_NEW _IO(0xAA, 0x00)
#endif

int open_with(int flags) { return static_cast<int>(syscall(SYS_userfaultfd, flags)); }

}  // namespace

int open_userfault(bool only_own) {
  constexpr int kFlags = O_CLOEXEC | O_NONBLOCK;
  if (const int direct = open_with(kFlags); direct >= 0) return direct;
  if (const int device = open("/dev/userfaultfd", O_RDWR | O_CLOEXEC); device >= 0) {
    const int made = ioctl(device, USERFAULTFD_IOC_NEW, kFlags);
    close(device);
    if (made >= 0) return made;
  }
  return only_own ? open_with(kFlags | UFFD_USER_MODE_ONLY) : -1;
}

}  // namespace bandsaw::libcuda
