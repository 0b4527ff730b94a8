#include "backend/vgpud/arbiter/memory_lending.h"

#include <algorithm>

namespace bandsaw {
namespace {

// Between two looks at all pages.
constexpr sched::Time kSoonest = 300'000;

}  // namespace

// Who is alone lends nothing, so its runners make no host memory ready for it.
uint64_t MemoryLending::host_room(const MemoryTerms& terms) const { return lending_.may_change() ? terms.lendable : 0; }

void MemoryLending::note_others(bool before) {
  if (lending_.may_change() != before) lending_.repeat_orders();
}

void MemoryLending::set(const std::string& vgpu, const std::optional<MemoryTerms>& terms) {
  changed_ = true;
  const bool before = lending_.may_change();
  Vgpu& its = vgpus_[vgpu];
  const bool begins = terms && !its.terms;
  if (its.terms && !terms && its.page) leave(vgpu, *its.terms, its.page->beyond);
  its.terms = terms;
  if (terms) {
    lending_.set(vgpu, {terms->share, terms->reserved, terms->lendable});
    if (begins && its.page) attach(vgpu, its.page);
  } else {
    lending_.remove(vgpu);
  }
  note_others(before);
}

// What it has borrowed it is to give up; what it has lent is a debt of the others.
void MemoryLending::leave(const std::string& vgpu, const MemoryTerms& terms, int64_t beyond) {
  const int64_t lent = std::min<int64_t>(beyond, 0);
  last_orders_.emplace_back(vgpu, MemoryOrder{lent, lent, terms.lendable});
}

void MemoryLending::remove(const std::string& vgpu) {
  changed_ = true;
  const bool before = lending_.may_change();
  vgpus_.erase(vgpu);
  lending_.remove(vgpu);
  note_others(before);
}

// The session may have had an earlier arbiter, whose order it has kept.
void MemoryLending::attach(const std::string& vgpu, const UsagePage* page) {
  changed_ = true;
  Vgpu& its = vgpus_[vgpu];
  its.page = page;
  if (!its.terms) return;
  const auto most = static_cast<int64_t>(std::min<uint64_t>(its.terms->share, INT64_MAX));
  const auto reserved = static_cast<int64_t>(std::min<uint64_t>(its.terms->reserved, INT64_MAX));
  lending_.attach(vgpu, std::clamp<int64_t>(page->beyond, -reserved, most));
}

void MemoryLending::detach(const std::string& vgpu) {
  const auto found = vgpus_.find(vgpu);
  if (found == vgpus_.end()) return;
  changed_ = true;
  found->second.page = nullptr;
  lending_.detach(vgpu);
}

// What an order has made less was written before it is read what there is (UsagePageView::charge).
swap::Lending::Seen MemoryLending::look(const Vgpu& vgpu, bool works, sched::Time now) const {
  const auto share = static_cast<int64_t>(std::min<uint64_t>(vgpu.terms->share, INT64_MAX));
  swap::Lending::Seen seen;
  seen.in_force = std::clamp<int64_t>(vgpu.page->beyond, -share, share);
  const int64_t swapped = vgpu.page->swapped, used = vgpu.page->memory_used;
  seen.used = static_cast<uint64_t>(std::clamp<int64_t>(used, 0, share));
  seen.on_device = static_cast<uint64_t>(std::clamp<int64_t>(used - std::max<int64_t>(swapped, 0), 0, share));
  seen.works = works;
  seen.worked_at = std::clamp<int64_t>(vgpu.page->worked_at, 0, now);
  seen.short_at = std::clamp<int64_t>(vgpu.page->short_at, 0, now);
  return seen;
}

sched::Time MemoryLending::review(const std::function<bool(const std::string& vgpu)>& works, sched::Time now) {
  if (!changed_ && now < next_) {
    if (!is_called()) return next_;
    if (now - reviewed_at_ < kSoonest) return std::min(next_, reviewed_at_ + kSoonest);
  }
  changed_ = false;
  reviewed_at_ = now;
  for (auto& [name, vgpu] : vgpus_) {
    if (!vgpu.terms || !vgpu.page) continue;
    vgpu.worked_at = vgpu.page->worked_at;
    vgpu.short_at = vgpu.page->short_at;
    lending_.see(name, look(vgpu, works(name), now));
  }
  next_ = lending_.review(now);
  return next_;
}

// One finds no room, or one that lends works again.
bool MemoryLending::is_called() const {
  for (const auto& [name, vgpu] : vgpus_) {
    if (!vgpu.terms || !vgpu.page || !lending_.may_change()) continue;
    if (vgpu.page->short_at != vgpu.short_at) return true;
    if (vgpu.page->worked_at != vgpu.worked_at && lending_.beyond(name) < 0) return true;
  }
  return false;
}

std::vector<std::pair<std::string, MemoryOrder>> MemoryLending::take_orders() {
  std::vector<std::pair<std::string, MemoryOrder>> orders = std::exchange(last_orders_, {});
  for (const auto& [name, order] : lending_.take_orders()) {
    orders.emplace_back(name, MemoryOrder{order.beyond, order.coming, host_room(*vgpus_[name].terms)});
  }
  return orders;
}

}  // namespace bandsaw
