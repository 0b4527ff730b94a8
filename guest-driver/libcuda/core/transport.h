// How this process reaches its session: a Unix socket (direct mode) or /dev/vgpu0 (in a VM).
#pragma once

#include <cerrno>
#include <cstdint>
#include <memory>
#include <mutex>
#include <string>

#include "guest-driver/libcuda/core/page_guard.h"
#include "guest-driver/libcuda/core/shared_memory.h"
#include "guest-driver/libcuda/core/window.h"
#include "guest-driver/uapi/vgpu_control.h"
#include "guest-driver/uapi/vgpu_ring.h"

namespace bandsaw::libcuda {

// What the transports of a process share, so that its memory lies at one address for all of its runners.
struct GuestSpace {
  Window window;
  int arena = -1;  // of direct mode: the first session's; never closed
};

// Thread-safe. Functions that return int return 0 or an errno; EPIPE: the host side is gone.
class Transport {
 public:
  virtual ~Transport() = default;

  virtual uint64_t window_base() const = 0;

  // What the host was built from.
  const vgpu_schema& host() const { return host_; }

  // Makes and maps a command ring; it lives as long as the process.
  virtual int add_ring(vgpu_ring_header** ring) = 0;

  virtual int allocate(uint64_t bytes, uint32_t flags, SharedBlock* block) = 0;
  virtual int release(const SharedBlock& block) = 0;
  virtual int pin(void* address, uint64_t bytes, uint32_t flags, SharedBlock* block) = 0;
  virtual int unpin(const SharedBlock& block) = 0;
  // As pin(), and watches the addresses: they mean the pinned pages while `*word` is block->region.
  // VGPU_REGION_READ_ONLY in `flags` says that reading is enough; block->flags says how the pages were pinned. ENOTSUP:
  // this transport cannot watch.
  virtual int pin_watched(void* /*address*/, uint64_t /*bytes*/, uint32_t /*flags*/, SharedBlock* /*block*/,
                          const uint32_t** /*word*/) {
    return ENOTSUP;
  }
  // Makes a block of another transport of this process known to this one's host too, at its address, until
  // unpin(again).
  virtual int also(const SharedBlock& block, SharedBlock* again) = 0;
  // For transports that cannot pin. The program has mapped all of `block`, which came from allocate(), at `address`
  // too. Kernels may use it there until unpin(again).
  virtual int share_at(const SharedBlock&, void* /*address*/, uint32_t /*flags*/, SharedBlock* /*again*/) {
    return ENOTSUP;
  }

  // For transports that cannot pin. The program has mapped `bytes` of `file` from `offset` on at `address`; whole
  // pages, of a file in memory (tmpfs). Kernels may use them there until unpin(block). The file may be closed
  // afterwards.
  virtual int share_file(int /*file*/, uint64_t /*offset*/, uint64_t /*bytes*/, void* /*address*/, uint32_t /*flags*/,
                         SharedBlock* /*block*/) {
    return ENOTSUP;
  }

  // Memory of this process at `address`, in pages that nothing lies in (a device's part of the window): zeros, which
  // the runner sees for copies at this address. Until unback().
  virtual int back(uint64_t /*address*/, uint64_t /*bytes*/, SharedBlock* /*block*/) { return ENOTSUP; }
  virtual int unback(const SharedBlock&) { return ENOTSUP; }
  // Of memory from back(): whether none of these pages was ever written.
  virtual bool untouched(uint64_t /*address*/, uint64_t /*bytes*/) { return false; }
  // Who notices touches of memory from back(); the transport's. nullptr: nobody can, and `*why` tells people.
  PageGuard* page_guard(const char** why);

  // Wakes a runner that sleeps. Cheap: one system call.
  virtual void kick() = 0;

  // Sleeps until the host wakes this process or this ring, or until `timeout_ms` has passed; may return early. `seen`
  // is the last wake-up that the caller knows of; snapshot() gives the first one. EPIPE: the host side is gone.
  virtual int wait(vgpu_ring_header* ring, uint64_t* seen, uint32_t timeout_ms) = 0;
  // A value for `seen`. Take it before checking whether the answer has come, so that no wake-up is missed.
  virtual uint64_t snapshot(vgpu_ring_header* ring) = 0;

  // Whether the host side is still there.
  virtual bool alive() = 0;

  // In the child of a fork: closes the descriptors, so that the host sees the parent's end. Makes system calls only.
  virtual void forget_in_child() = 0;

 protected:
  vgpu_schema host_{};

 private:
  std::once_flag guard_opened_;
  std::unique_ptr<PageGuard> guard_;
  const char* no_guard_ = "";
};

// Why there is no transport: `error` for the program, `message` for people.
struct TransportFailure {
  int error = 0;  // a CUresult
  std::string message;
};

// Connects to the virtual GPU at `path`. Its device memory will lie in this part of the window. `space` outlives the
// transport. nullptr: `failure` has the reason.
std::unique_ptr<Transport> open_direct(const std::string& path, uint32_t part, GuestSpace* space,
                                       TransportFailure* failure);
std::unique_ptr<Transport> open_device(const std::string& path, uint32_t part, GuestSpace* space,
                                       TransportFailure* failure);

// Fills `failure` for a library and a host whose releases lie too far apart; it names both.
void release_mismatch(const vgpu_schema& host, TransportFailure* failure);
// What a process asks for this part of the window with: also where the window cannot lie.
__le16 part_to_ask(const Window& window, uint32_t part);
// Takes over what the host has answered: the window, and that it serves this part of it. False: `failure` says why not.
bool agree(Window* window, uint64_t base, uint32_t part, vgpu_schema* host, TransportFailure* failure);

}  // namespace bandsaw::libcuda
