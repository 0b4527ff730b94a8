// Records that wait because one before them waits at a closed gate: in order, and only so many.
//
// A guest does not feel the gate in calls that have nothing to do with what waits: those that ask after events recorded
// before, or for what a device is, go past. All others keep their order.
#pragma once

#include <deque>
#include <unordered_set>

#include "backend/runner/lane.h"

namespace bandsaw::runner {

// For one thread.
class Parked {
 public:
  struct Entry {
    LaneRef lane;
    std::vector<std::byte> bytes;  // `record` points into them
    wire::CheckedRecord record;
  };

  bool empty() const { return entries_.empty(); }
  // No more is to be taken out of the lanes: what waits there waits as well.
  bool full() const { return entries_.size() >= kMost || bytes_ >= kMostBytes; }
  bool holds(const Lane& lane) const;
  // Whether the record may be executed now, although those here have not been.
  bool lets_past(const wire::CheckedRecord& record) const;

  void push(const LaneRef& lane, const wire::CheckedRecord& record, std::vector<std::byte> bytes);
  Entry& front() { return entries_.front(); }
  Entry pop();

 private:
  static constexpr size_t kMost = 1024, kMostBytes = 16 << 20;

  std::deque<Entry> entries_;
  size_t bytes_ = 0;
  std::unordered_multiset<uint64_t> recorded_;  // events that records here will record
  size_t graphs_ = 0;                           // launches of graphs, which may record any event
};

}  // namespace bandsaw::runner
