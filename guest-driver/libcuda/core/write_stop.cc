#include "guest-driver/libcuda/core/write_stop.h"

#include <linux/userfaultfd.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>

#include "guest-driver/libcuda/core/userfault.h"
#include "guest-driver/libcuda/core/window.h"

namespace bandsaw::libcuda {
namespace {

// Pages that are not there yet cannot be protected by every kernel. The byte keeps what others write to it.
void touch(uint64_t address) {
  std::atomic_ref<unsigned char>(*reinterpret_cast<unsigned char*>(address)).fetch_or(0, std::memory_order_relaxed);
}

}  // namespace

WriteStop::WriteStop(uint64_t address, uint64_t bytes) {
  descriptor_ = open_userfault(true);
  if (descriptor_ < 0 || stop(address, bytes)) return;
  close(descriptor_);
  descriptor_ = -1;
}

WriteStop::~WriteStop() {
  if (descriptor_ >= 0) close(descriptor_);
}

bool WriteStop::stop(uint64_t address, uint64_t bytes) const {
  uffdio_api api{};
  api.api = UFFD_API;
  api.features = UFFD_FEATURE_PAGEFAULT_FLAG_WP | UFFD_FEATURE_WP_HUGETLBFS_SHMEM;
  uffdio_register watched{};
  watched.range = {address, bytes};
  watched.mode = UFFDIO_REGISTER_MODE_WP;
  if (ioctl(descriptor_, UFFDIO_API, &api) || ioctl(descriptor_, UFFDIO_REGISTER, &watched)) return false;
  // Those at the ends are partly others'.
  touch(address);
  touch(address + bytes - kPage);
  uffdio_writeprotect closed{};
  closed.range = {address, bytes};
  closed.mode = UFFDIO_WRITEPROTECT_MODE_WP;
  while (ioctl(descriptor_, UFFDIO_WRITEPROTECT, &closed)) {
    if (errno != EAGAIN) return false;
  }
  return true;
}

}  // namespace bandsaw::libcuda
