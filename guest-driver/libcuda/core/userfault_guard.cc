// PageGuard by userfaultfd(2), for shared mappings of a memory file whose pages another process writes.
//
// Needs Linux 5.19, and the right to hear of the kernel's own touches: else read(2) into pages that are away would fail
// with EFAULT instead of waiting.
#include <linux/userfaultfd.h>
#include <poll.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <iterator>
#include <map>
#include <mutex>

#include "guest-driver/libcuda/core/page_guard.h"
#include "guest-driver/libcuda/core/userfault.h"
#include "guest-driver/libcuda/core/window.h"

namespace bandsaw::libcuda {
namespace {

#ifndef UFFDIO_CONTINUE_MODE_WP
#define UFFDIO_CONTINUE_MODE_WP (1ull << 1)
#endif

constexpr uint64_t kFeatures = UFFD_FEATURE_MISSING_SHMEM | UFFD_FEATURE_MINOR_SHMEM | UFFD_FEATURE_PAGEFAULT_FLAG_WP |
                               UFFD_FEATURE_WP_HUGETLBFS_SHMEM | UFFD_FEATURE_THREAD_ID;

class UserfaultGuard final : public PageGuard {
 public:
  explicit UserfaultGuard(int descriptor) : descriptor_(descriptor) {}
  ~UserfaultGuard() override { close(descriptor_); }

  int take(uint64_t address, uint64_t bytes) override {
    if (const int error = watch(address, address + bytes)) return error;
    // The pages stay in the file; only this mapping of them goes.
    return madvise(reinterpret_cast<void*>(address), bytes, MADV_DONTNEED) ? errno : 0;
  }

  int give(uint64_t address, uint64_t bytes, bool* writable) override {
    if (!*writable) {
      const int error = resume(address, bytes, UFFDIO_CONTINUE_MODE_WP);
      if (error != EINVAL) return error;
      *writable = true;  // a kernel without this mode
    }
    return resume(address, bytes, 0);
  }

  int protect(uint64_t address, uint64_t bytes) override {
    if (const int error = watch(address, address + bytes)) return error;
    return write_protect(address, bytes, UFFDIO_WRITEPROTECT_MODE_WP);
  }

  int unlock(uint64_t address, uint64_t bytes) override { return write_protect(address, bytes, 0); }

  void forget(uint64_t address, uint64_t bytes) override {
    std::lock_guard lock(mutex_);
    unwatched(address, address + bytes);
    uffdio_range range{address, bytes};
    ioctl(descriptor_, UFFDIO_UNREGISTER, &range);
  }

  void retry(uint64_t address, uint64_t bytes) override {
    uffdio_range range{address, bytes};
    ioctl(descriptor_, UFFDIO_WAKE, &range);
  }

  bool next(PageTouch* touch) override {
    for (;;) {
      pollfd entry{descriptor_, POLLIN, 0};
      if (poll(&entry, 1, -1) < 0 && errno != EINTR) return false;
      uffd_msg message;
      const ssize_t got = read(descriptor_, &message, sizeof(message));
      if (got < 0 && (errno == EAGAIN || errno == EINTR)) continue;  // another thread has it
      if (got != sizeof(message)) return false;
      if (message.event != UFFD_EVENT_PAGEFAULT) continue;
      const uint64_t flags = message.arg.pagefault.flags;
      *touch = {message.arg.pagefault.address, (flags & (UFFD_PAGEFAULT_FLAG_WRITE | UFFD_PAGEFAULT_FLAG_WP)) != 0,
                message.arg.pagefault.feat.ptid};
      return true;
    }
  }

 private:
  // Registering takes the address space's lock against all page faults of the process, so once is enough.
  int watch(uint64_t begin, uint64_t end) {
    std::lock_guard lock(mutex_);
    auto next = watched_.upper_bound(begin);
    if (next != watched_.begin() && std::prev(next)->second >= end) return 0;
    uffdio_register request{};
    request.range = {begin, end - begin};
    request.mode = UFFDIO_REGISTER_MODE_MISSING | UFFDIO_REGISTER_MODE_MINOR | UFFDIO_REGISTER_MODE_WP;
    if (ioctl(descriptor_, UFFDIO_REGISTER, &request)) return errno;
    if (next != watched_.begin() && std::prev(next)->second >= begin) begin = std::prev(next)->first;
    while (next != watched_.end() && next->first <= end) {
      end = std::max(end, next->second);
      next = watched_.erase(next);
    }
    watched_[begin] = end;
    return 0;
  }

  // With mutex_.
  void unwatched(uint64_t begin, uint64_t end) {
    auto next = watched_.upper_bound(begin);
    if (next != watched_.begin()) --next;
    while (next != watched_.end() && next->first < end) {
      const auto [first, last] = *next;
      next = last > begin ? watched_.erase(next) : std::next(next);
      if (first < begin && last > begin) watched_[first] = begin;
      if (last > end) watched_[end] = last;
    }
  }

  int write_protect(uint64_t address, uint64_t bytes, uint64_t mode) {
    uffdio_writeprotect request{};
    request.range = {address, bytes};
    request.mode = mode;
    while (ioctl(descriptor_, UFFDIO_WRITEPROTECT, &request)) {
      if (errno != EAGAIN) return errno;
    }
    return 0;
  }

  int resume(uint64_t address, uint64_t bytes, uint64_t mode) {
    const uint64_t end = address + bytes;
    while (address < end) {
      uffdio_continue request{};
      request.range = {address, end - address};
      request.mode = mode;
      if (ioctl(descriptor_, UFFDIO_CONTINUE, &request) == 0) return 0;
      const int error = errno;
      if (request.mapped > 0) {
        address += static_cast<uint64_t>(request.mapped);
      } else if (error == EEXIST) {  // there already
        retry(address, kPage);
        address += kPage;
      } else if (error == EFAULT && !mode) {  // nobody has ever written this page
        uffdio_zeropage hole{};
        hole.range = {address, kPage};
        if (ioctl(descriptor_, UFFDIO_ZEROPAGE, &hole) && errno != EEXIST && errno != EAGAIN) return errno;
      } else if (error != EAGAIN) {
        return error;
      }
    }
    return 0;
  }

  const int descriptor_;
  std::mutex mutex_;
  std::map<uint64_t, uint64_t> watched_;  // guarded by mutex_: registered addresses, beginning -> end, never adjacent
};

}  // namespace

std::unique_ptr<PageGuard> open_userfault_guard(const char** why) {
  const int descriptor = open_userfault();
  if (descriptor < 0) {
    *why =
        "this process may not use userfaultfd: allow it to open /dev/userfaultfd, or set "
        "vm.unprivileged_userfaultfd to 1";
    return nullptr;
  }
  uffdio_api api{};
  api.api = UFFD_API;
  api.features = kFeatures;
  if (ioctl(descriptor, UFFDIO_API, &api)) {
    close(descriptor);
    *why = "this kernel's userfaultfd is too old (Linux 5.19 is needed)";
    return nullptr;
  }
  return std::make_unique<UserfaultGuard>(descriptor);
}

}  // namespace bandsaw::libcuda
