#include "backend/runner/parked.h"

#include <algorithm>

namespace bandsaw::runner {

bool Parked::holds(const Lane& lane) const {
  return std::any_of(entries_.begin(), entries_.end(), [&](const Entry& entry) { return entry.lane.get() == &lane; });
}

bool Parked::lets_past(const RecordUse& use) const {
  switch (use.kind) {
    case RecordUse::Kind::kFree:
      return true;
    case RecordUse::Kind::kEvent:
      return graphs_ == 0 && !recorded_.contains(use.event) && !recorded_.contains(use.other_event);
    case RecordUse::Kind::kAsk:
      return order_->may_ask(use.stream);
    case RecordUse::Kind::kWork:
      if (use.event != 0 && (graphs_ != 0 || recorded_.contains(use.event))) return false;
      if (use.records && awaited_.contains(use.event)) return false;
      return order_->may_work(use.stream);
    default:
      return false;
  }
}

bool Parked::is_pending(const RecordUse& use) const {
  return use.kind == RecordUse::Kind::kAsk || recorded_.contains(use.event) || recorded_.contains(use.other_event);
}

void Parked::push(const LaneRef& lane, const wire::CheckedRecord& record, const RecordUse& use,
                  std::vector<std::byte> bytes) {
  if (use.records) recorded_.insert(use.event);
  if (use.waits) awaited_.insert(use.event);
  if (use.stream) order_->add(use.stream);
  graphs_ += use.graph;
  bytes_ += bytes.size();
  entries_.push_back({lane, std::move(bytes), record, use});  // the bytes keep their place
}

Parked::Entry Parked::pop() {
  Entry entry = std::move(entries_.front());
  entries_.pop_front();
  bytes_ -= entry.bytes.size();
  if (entry.use.records) recorded_.erase(recorded_.find(entry.use.event));
  if (entry.use.waits) awaited_.erase(awaited_.find(entry.use.event));
  if (entry.use.stream) order_->remove(entry.use.stream);
  graphs_ -= entry.use.graph;
  return entry;
}

}  // namespace bandsaw::runner
