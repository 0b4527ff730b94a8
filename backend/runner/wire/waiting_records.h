// Records that wait because one before them waits at a closed gate, or for grid slices of a launch or pieces of a copy:
// in order, and only so many.
//
// A guest does not feel it in calls that have nothing to do with what waits (stream_order.h): those go past.
#pragma once

#include <array>
#include <deque>

#include "backend/runner/wire/command_ring.h"
#include "backend/runner/wire/stream_order.h"

namespace bandsaw::runner {

// For one thread.
class WaitingRecords {
 public:
  struct Entry {
    CommandRingRef ring;
    std::vector<std::byte> bytes;  // `record` points into them
    wire::CheckedRecord record;
    RecordUse use;
    std::optional<Engine> engine;  // whose gate it has to pass

    bool holds() const { return record.opcode == wire::Opcode::kStreamHold; }
    bool asks() const {
      using wire::Order;
      return use.order == Order::kStreamDone || use.order == Order::kEventDone || use.order == Order::kEventEnd;
    }
  };

  // `under_way` has the streams of launches and copies that have not been issued as a whole; it and
  // `apart` outlive this.
  WaitingRecords(const StreamOrder* under_way, const ApartStreams* apart) : under_way_(under_way), uses_(apart) {}

  bool empty() const { return entries_.empty(); }
  size_t size() const { return entries_.size(); }
  // Whose records these are is to issue no more than its ring holds.
  bool full() const { return entries_.size() >= kMost || bytes_ >= kMostBytes; }
  // No more is to be taken out of the rings: a guest with all the rings that it may have.
  bool at_limit() const { return entries_.size() >= kLimit || bytes_ >= kLimitBytes; }
  // This record of the ring.
  bool has(const CommandRing& ring, uint64_t seq) const;
  // Some wait for this engine.
  bool any_of(unsigned engine) const { return of_engine_[engine] != 0; }
  // So many streams have some.
  size_t streams() const { return uses_.streams(); }
  // Some are not of this stream.
  bool any_but(uint64_t stream_key) const;
  // Some ask whether work is done, or wait for that, or end what tells it.
  bool any_asks() const { return asks_ != 0; }
  // Some have their streams wait for a word of the guest's.
  bool any_holds() const { return holds_ != 0; }
  // Whether a record of this use may be executed now, although those here have not been.
  bool lets_past(const RecordUse& use) const { return uses_.lets_past(use, *under_way_); }
  // As lets_past, of one of these and what is ahead of it.
  bool lets_past(const Entry& entry, const WaitingUses& ahead) const { return ahead.lets_past(entry.use, *under_way_); }
  // What a query that is not let past asks after has not even been issued.
  bool is_pending(const RecordUse& use) const { return uses_.is_pending(use); }

  void push(Entry entry);
  const Entry& operator[](size_t at) const { return entries_[at]; }
  Entry take(size_t at);

 private:
  static constexpr size_t kMost = 1024, kMostBytes = 16 << 20;
  static constexpr size_t kLimit = 32 * kMost, kLimitBytes = 2 * kMostBytes;

  const StreamOrder* const under_way_;
  std::deque<Entry> entries_;
  size_t bytes_ = 0;
  std::array<size_t, kEngines> of_engine_{};
  size_t asks_ = 0, holds_ = 0;
  WaitingUses uses_;
};

}  // namespace bandsaw::runner
