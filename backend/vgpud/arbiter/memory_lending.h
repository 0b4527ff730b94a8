// Which virtual GPUs of one GPU hold how much of its memory (memory/swap/lending.h), by what their usage pages say.
//
// A runner may write anything there: what it says of memory that it does not hold harms those that it lends to or
// borrows from as much as memory that it holds would, so nothing is believed beyond its share.
#pragma once

#include <functional>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "backend/control/runner_link.h"
#include "backend/vgpud/arbiter/arbiter.h"
#include "memory/swap/lending.h"

namespace bandsaw {

class MemoryLending {
 public:
  // Nothing: the virtual GPU neither lends nor borrows.
  void set(const std::string& vgpu, const std::optional<MemoryTerms>& terms);
  void remove(const std::string& vgpu);
  // `page` stays until detach().
  void attach(const std::string& vgpu, const UsagePage* page);
  void detach(const std::string& vgpu);
  // Looks at the pages if that is due, or one calls. Returns when to be called again, at the latest.
  sched::Time review(const std::function<bool(const std::string& vgpu)>& works, sched::Time now);
  // What sessions are to be told.
  std::vector<std::pair<std::string, MemoryOrder>> take_orders();
  uint64_t debt() const { return lending_.debt(); }

 private:
  struct Vgpu {
    std::optional<MemoryTerms> terms;
    const UsagePage* page = nullptr;      // null: its session has none
    int64_t worked_at = 0, short_at = 0;  // as the page said last
  };
  bool is_called() const;
  uint64_t host_room(const MemoryTerms& terms) const;
  void note_others(bool before);
  swap::Lending::Seen look(const Vgpu& vgpu, bool works, sched::Time now) const;
  void leave(const std::string& vgpu, const MemoryTerms& terms, int64_t beyond);
  std::map<std::string, Vgpu> vgpus_;
  std::vector<std::pair<std::string, MemoryOrder>> last_orders_;  // of those that do so no more
  swap::Lending lending_;
  bool changed_ = false;  // what is known of them, but for what their pages say
  sched::Time reviewed_at_ = 0, next_ = 0;
};

}  // namespace bandsaw
