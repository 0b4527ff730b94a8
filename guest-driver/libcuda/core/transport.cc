#include "guest-driver/libcuda/core/transport.h"

#include <cstring>
#include <utility>

#include "guest-driver/uapi/wire.h"

namespace bandsaw::libcuda {

PageGuard* Transport::page_guard(const char** why) {
  std::call_once(guard_opened_, [this] { guard_ = open_userfault_guard(&no_guard_); });
  *why = no_guard_;
  return guard_.get();
}

void release_mismatch(const vgpu_schema& host, TransportFailure* failure) {
  failure->error = CUDA_ERROR_SYSTEM_DRIVER_MISMATCH;
  failure->message = std::string("this libcuda.so.1 is of release ") + wire::kRelease + ", the host of " +
                     wire::release_of(host) + ": install the host's guest package";
}

// With no place left any answer is as good, and agree() says why it fails.
__le16 part_to_ask(const Window& window, uint32_t part) {
  const uint32_t taken = window.taken();
  return static_cast<__le16>(taken == VGPU_WINDOW_TAKEN_MASK ? part : part | taken << VGPU_WINDOW_TAKEN_SHIFT);
}

bool agree(Window* window, uint64_t base, uint32_t part, vgpu_schema* host, TransportFailure* failure) {
  const uint32_t agreed = std::exchange(host->part, 0);
  if (agreed != part) {
    failure->message = "the host, of release " + wire::release_of(*host) +
                       ", cannot serve a process that uses several virtual GPUs: update it, or use one virtual GPU";
    return false;
  }
  const int error = window->reserve(base);
  if (error == EXDEV) {
    failure->message = "the runners of two virtual GPUs reserved different addresses: start the program again";
  } else if (error) {
    failure->message = std::string("cannot reserve the addresses that the GPU uses (") + std::strerror(error) +
                       "): an address space limit (ulimit -v), or something is mapped there";
  }
  return error == 0;
}

}  // namespace bandsaw::libcuda
