// The backend's side of the ring that a Xen domain shares (guest-driver/uapi/vgpu_xen.h).
//
// The pages are hostile: an index or an entry is read once into a private copy, which is then checked. A Status that is
// not ok means that the frontend broke the protocol: the backend ends the connection.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "guest-driver/uapi/vgpu_xen.h"
#include "memory/base/status.h"

namespace bandsaw::xen {

struct RingRequest {
  uint32_t tag = 0;
  uint32_t list = 0;   // a grant, if `pages`
  uint32_t pages = 0;  // at most VGPU_XEN_PAGES_MAX
  std::vector<uint8_t> body;
};

class Ring {
 public:
  // `shared` stays mapped and writable for the ring's life.
  explicit Ring(vgpu_xen_ring* shared) : shared_(shared) {}

  // The next request; nothing when there is none, or as many wait for an answer as may.
  Status take(std::optional<RingRequest>& request);
  // Answers one that was taken.
  void answer(uint32_t tag, const vgpu_ctl_reply& reply);
  // False: the frontend has not taken enough of the earlier ones.
  Status put(const vgpu_event& event, bool& done);
  uint32_t unanswered() const { return requests_ - replies_; }

 private:
  vgpu_xen_ring* shared_;
  uint32_t requests_ = 0, replies_ = 0, events_ = 0;
};

}  // namespace bandsaw::xen
