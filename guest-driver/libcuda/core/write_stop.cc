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

WriteStop::WriteStop(uint64_t address, uint64_t bytes) : address_(address), bytes_(bytes) {
  sigset_t all;
  sigfillset(&all);  // a handler of the program's might write there
  pthread_sigmask(SIG_SETMASK, &all, &signals_);
  descriptor_ = open_userfault(true);
  if (descriptor_ < 0 || stop()) return;
  close(descriptor_);
  descriptor_ = -1;
}

// A child of this process may have the descriptor too: its end alone does not wake who waits.
WriteStop::~WriteStop() {
  if (descriptor_ >= 0) {
    uffdio_range range{address_, bytes_};
    ioctl(descriptor_, UFFDIO_UNREGISTER, &range);
    ioctl(descriptor_, UFFDIO_WAKE, &range);
    close(descriptor_);
  }
  pthread_sigmask(SIG_SETMASK, &signals_, nullptr);
}

bool WriteStop::stop() const {
  uffdio_api api{};
  api.api = UFFD_API;
  api.features = UFFD_FEATURE_PAGEFAULT_FLAG_WP | UFFD_FEATURE_WP_HUGETLBFS_SHMEM;
  uffdio_register watched{};
  watched.range = {address_, bytes_};
  watched.mode = UFFDIO_REGISTER_MODE_WP;
  if (ioctl(descriptor_, UFFDIO_API, &api) || ioctl(descriptor_, UFFDIO_REGISTER, &watched)) return false;
  // Those at the ends are partly others'.
  touch(address_);
  touch(address_ + bytes_ - kPage);
  uffdio_writeprotect closed{};
  closed.range = {address_, bytes_};
  closed.mode = UFFDIO_WRITEPROTECT_MODE_WP;
  while (ioctl(descriptor_, UFFDIO_WRITEPROTECT, &closed)) {
    if (errno != EAGAIN) return false;
  }
  return true;
}

}  // namespace bandsaw::libcuda
