// gate.sock: where the arbiter gets the memory of this virtual GPU's gates. The arbiter counts as gone when its
// connection ends: while there is none, every gate stands open.
#pragma once

#include "backend/control/event_ptr.h"
#include "backend/session/usage_page_owner.h"
#include "memory/base/unique_fd.h"

namespace bandsaw {

class GateFrontend {
 public:
  // `listener` is a listening SOCK_SEQPACKET socket; only the host's administrator may reach it. `usage_page` outlives
  // this.
  GateFrontend(event_base* base, UniqueFd listener, UsagePageOwner* usage_page);
  GateFrontend(const GateFrontend&) = delete;

 private:
  void on_arbiter();
  void on_readable();

  event_base* const base_;
  UniqueFd listener_, arbiter_;
  UsagePageOwner* const usage_page_;
  EventPtr accept_, readable_;
};

}  // namespace bandsaw
