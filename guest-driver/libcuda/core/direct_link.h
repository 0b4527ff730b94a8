// Direct mode's way to a session: its Unix socket, on which this process is one guest process. When the session ends
// while all that the process had is in a file, the link waits for another session, and tells it what the first one
// knew.
#pragma once

#include <atomic>
#include <cstdint>
#include <map>
#include <mutex>
#include <string>
#include <utility>

#include "guest-driver/libcuda/core/transport.h"
#include "guest-driver/uapi/vgpu_control.h"
#include "guest-driver/uapi/vgpu_ring.h"

namespace bandsaw::libcuda {

// Thread-safe. Functions that return int return 0 or an errno; EPIPE: the session is gone, and nothing comes back.
class DirectLink {
 public:
  // `space` outlives it.
  DirectLink(GuestSpace* space, uint32_t part) : space_(space), part_(part) {}
  ~DirectLink() { forget_in_child(); }
  DirectLink(const DirectLink&) = delete;

  // False: `failure` says why. The session's schema, and a session's arena where `space` has none yet.
  bool open(const std::string& path, vgpu_schema* host, TransportFailure* failure);
  // VGPU_CTL_ADD_RING or VGPU_CTL_ADD_REGION. `file`: whose pages they are; -1: the arena's.
  int announce(uint32_t type, uint32_t id, uint32_t flags, uint64_t va, uint64_t offset, uint64_t bytes, int file = -1);
  int drop(uint32_t type, uint32_t id);
  void kick() const;
  // The program may be reniced while it runs: tells the session, at most ten times a second.
  void look_at_nice();
  // Whether the session is there. Waits for another one if this one has ended and the process may come back.
  bool alive();
  // In the child of a fork.
  void forget_in_child();

 private:
  struct Announced {
    uint32_t flags = 0;
    uint64_t va = 0, offset = 0, bytes = 0;
  };
  using Descriptors = int[2];

  bool connect_to(TransportFailure* failure);
  bool hello(vgpu_schema* host, TransportFailure* failure);
  vgpu_ctl_create_process who_asks(uint32_t type) const;
  void send_nice(int socket);
  // These are called with mutex_ held.
  int ask(const void* request, size_t bytes, vgpu_ctl_reply* reply, int sent = -1);
  bool may_come_back() const;
  bool come_back();
  // Empty: it has come back. Else why not, and another attempt may come.
  std::string try_to_come_back();
  std::string tell_again(int socket);

  GuestSpace* const space_;
  const uint32_t part_;
  std::string path_;
  std::atomic<int> nice_{0};              // as the session knows it
  std::atomic<int64_t> next_look_ms_{0};  // when to look whether it is still that
  std::mutex mutex_;                      // one request at a time on the socket
  int socket_ = -1, kick_ = -1;           // which keep their numbers
  vgpu_schema host_{};
  uint64_t window_base_ = 0;
  __u8 key_[VGPU_RETURN_KEY_BYTES] = {};                          // zeros: the session has given none
  std::map<std::pair<uint32_t, uint32_t>, Announced> announced_;  // guarded by mutex_, by type and id
};

}  // namespace bandsaw::libcuda
