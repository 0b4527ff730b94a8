// gate.sock: where the arbiter gets the memory of this virtual GPU's gates and the channel groups of its runners, and
// where it says which runner has gone too far. The arbiter counts as gone when its connection ends: while there is
// none, every gate stands open.
#pragma once

#include <map>
#include <set>

#include "backend/control/event_ptr.h"
#include "backend/session/runner_slots.h"
#include "backend/session/usage_page_owner.h"
#include "memory/base/unique_fd.h"

namespace bandsaw {

class GateFrontend : public RunnerSlots {
 public:
  // `listener` is a listening SOCK_SEQPACKET socket; only the host's administrator may reach it. `usage_page` outlives
  // this.
  GateFrontend(event_base* base, UniqueFd listener, UsagePageOwner* usage_page);
  GateFrontend(const GateFrontend&) = delete;

  void taken(uint32_t slot, Runner* runner) override;
  void left(uint32_t slot) override;

 private:
  struct Holder {
    Runner* runner = nullptr;
    UniqueFd process;  // a pidfd
    int64_t since_ns = 0;
  };

  void on_arbiter();
  void on_readable();
  void end_runner(const RunnerEndOrder& order);
  void tell(uint32_t slot);
  void flush();
  Status send(uint32_t slot);

  event_base* const base_;
  UniqueFd listener_, arbiter_;
  UsagePageOwner* const usage_page_;
  std::map<uint32_t, Holder> holders_;  // by slot
  std::set<uint32_t> untold_;           // slots of which the arbiter does not know the latest
  std::set<uint32_t> told_;             // slots of whose runners the arbiter has channel groups
  EventPtr accept_, readable_, writable_;
};

}  // namespace bandsaw
