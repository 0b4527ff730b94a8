#include "memory/managed/advice.h"

#include <algorithm>
#include <iterator>

namespace bandsaw::managed {

// A stretch begins there then; the end: none does.
AdviceTable::Stretches::iterator AdviceTable::cut(uint64_t offset) {
  if (offset >= bytes_) return stretches_.end();
  const Advice before = std::prev(stretches_.upper_bound(offset))->second;
  return stretches_.try_emplace(offset, before).first;
}

void AdviceTable::change(Run run, const std::function<void(Advice&)>& change) {
  const uint64_t begin = run.offset / page_ * page_, end = (run.end() + page_ - 1) / page_ * page_;
  cut(begin);
  const auto last = cut(end);
  for (auto next = stretches_.find(begin); next != last; ++next) change(next->second);
  for (auto next = std::next(stretches_.begin()); next != stretches_.end();) {
    next = next->second == std::prev(next)->second ? stretches_.erase(next) : std::next(next);
  }
}

Advice AdviceTable::of(Run run) const {
  auto next = std::prev(stretches_.upper_bound(run.offset));
  Advice all = next->second;
  for (++next; next != stretches_.end() && next->first < run.end(); ++next) {
    const Advice& one = next->second;
    all.read_mostly &= one.read_mostly;
    all.accessed_by_host &= one.accessed_by_host;
    all.accessed_by_device &= one.accessed_by_device;
    if (all.preferred != one.preferred) all.preferred = {};
    if (all.prefetched != one.prefetched) all.prefetched = {};
  }
  return all;
}

}  // namespace bandsaw::managed
