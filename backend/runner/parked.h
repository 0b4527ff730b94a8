// Records that wait because one before them waits at a closed gate, or for slices of a launch: in order, and only so
// many.
//
// A guest does not feel it in calls that have nothing to do with what waits (stream_order.h): those go past.
#pragma once

#include <deque>
#include <unordered_set>

#include "backend/runner/lane.h"
#include "backend/runner/stream_order.h"

namespace bandsaw::runner {

// For one thread.
class Parked {
 public:
  struct Entry {
    LaneRef lane;
    std::vector<std::byte> bytes;  // `record` points into them
    wire::CheckedRecord record;
    RecordUse use;
  };

  // `order` has the streams of what is under way too, and outlives this.
  explicit Parked(StreamOrder* order) : order_(order) {}

  bool empty() const { return entries_.empty(); }
  // No more is to be taken out of the lanes: what waits there waits as well.
  bool full() const { return entries_.size() >= kMost || bytes_ >= kMostBytes; }
  bool holds(const Lane& lane) const;
  // Whether a record of this use may be executed now, although those here have not been.
  bool lets_past(const RecordUse& use) const;

  // What a query that is not let past asks after has not even been issued.
  bool is_pending(const RecordUse& use) const;

  void push(const LaneRef& lane, const wire::CheckedRecord& record, const RecordUse& use, std::vector<std::byte> bytes);
  Entry& front() { return entries_.front(); }
  Entry pop();

 private:
  static constexpr size_t kMost = 1024, kMostBytes = 16 << 20;

  StreamOrder* const order_;
  std::deque<Entry> entries_;
  size_t bytes_ = 0;
  std::unordered_multiset<uint64_t> recorded_, awaited_;  // events that records here will record, or wait for
  size_t graphs_ = 0;
};

}  // namespace bandsaw::runner
