#include "backend/runner/wire/waiting_records.h"

#include <algorithm>

namespace bandsaw::runner {

bool WaitingRecords::has(const CommandRing& ring, uint64_t seq) const {
  return std::any_of(entries_.begin(), entries_.end(),
                     [&](const Entry& entry) { return entry.ring.get() == &ring && entry.record.seq == seq; });
}

bool WaitingRecords::any_but(uint64_t stream_key) const {
  return std::any_of(entries_.begin(), entries_.end(),
                     [&](const Entry& entry) { return entry.use.stream != stream_key; });
}

void WaitingRecords::push(Entry entry) {
  uses_.add(entry.use);
  ++entry.ring->waiting;
  bytes_ += entry.bytes.size();
  if (entry.engine) ++of_engine_[index_of(*entry.engine)];
  asks_ += entry.asks();
  holds_ += entry.holds();
  entries_.push_back(std::move(entry));  // the bytes keep their place
}

WaitingRecords::Entry WaitingRecords::take(size_t at) {
  Entry entry = std::move(entries_[at]);
  entries_.erase(entries_.begin() + static_cast<std::ptrdiff_t>(at));
  --entry.ring->waiting;
  bytes_ -= entry.bytes.size();
  if (entry.engine) --of_engine_[index_of(*entry.engine)];
  asks_ -= entry.asks();
  holds_ -= entry.holds();
  uses_.remove(entry.use);
  return entry;
}

}  // namespace bandsaw::runner
