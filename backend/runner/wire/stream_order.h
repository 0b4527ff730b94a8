// What a record's execution hangs on: the order of its stream, an event, or nothing that other records could change. So
// it is known which records may be executed before others that wait.
//
// All asynchronous calls are in the order of a stream; what a waiting synchronous call will do, no other thread of the
// guest can know of yet. The legacy stream is in the order of every other that was not made to be apart from it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <unordered_map>
#include <unordered_set>

#include "backend/runner/wire/command_ring.h"

namespace bandsaw::runner {

struct RecordUse {
  wire::Order order = wire::Order::kAll;
  uint64_t stream = 0;  // key of it; 0: none
  uint64_t event = 0, other_event = 0;
  bool query = false;                   // an answer is wanted at once: not yet is one
  bool records = false, waits = false;  // the stream records the event, or waits for it
  bool waits_word = false;              // the stream waits for a word that any work may write
  bool in_graphs = true;                // graphs may record an event of these, or wait for it
};

// `ring`: whose default stream is meant. Nothing in the record is trusted but its size.
RecordUse use_of(const wire::CheckedRecord& record, uint32_t ring);
// A stream's handle as the guest gave it, so that equal ones are equal streams. Never 0.
uint64_t stream_key(uint64_t handle, uint32_t ring);

// Streams that the legacy stream does not wait for, nor they for it (CU_STREAM_NON_BLOCKING).
class ApartStreams {
 public:
  void add(uint64_t key) {
    if (keys_.size() < kMost) keys_.insert(key);  // others are taken to be as most are, which is only slower
  }
  void remove(uint64_t key) { keys_.erase(key); }
  bool contains(uint64_t key) const { return keys_.contains(key); }

 private:
  static constexpr size_t kMost = 1 << 16;  // those that went with their context stay here
  std::unordered_set<uint64_t> keys_;
};

// Streams with work that waits to be issued.
class StreamOrder {
 public:
  // `apart` outlives this; null: there are none.
  explicit StreamOrder(const ApartStreams* apart = nullptr) : apart_(apart) {}

  void add(uint64_t key) { ++(is_apart(key) ? apart_waiting_ : waiting_)[key]; }
  void remove(uint64_t key);
  bool empty() const { return waiting_.empty() && apart_waiting_.empty(); }
  size_t streams() const { return waiting_.size() + apart_waiting_.size(); }
  bool may_work(uint64_t key) const;
  bool may_ask(uint64_t key) const;

 private:
  bool is_apart(uint64_t key) const { return apart_ && apart_->contains(key); }
  bool contains(uint64_t key) const { return waiting_.contains(key) || apart_waiting_.contains(key); }

  const ApartStreams* apart_;
  std::unordered_map<uint64_t, size_t> waiting_, apart_waiting_;  // by key: how much
};

// What records that wait will do.
class WaitingUses {
 public:
  explicit WaitingUses(const ApartStreams* apart = nullptr) : streams_(apart) {}
  void add(const RecordUse& use);
  void remove(const RecordUse& use);
  size_t streams() const { return streams_.streams(); }
  // Whether a record of this use may be executed now, although those here, and what is `under_way`, have not been.
  bool lets_past(const RecordUse& use, const StreamOrder& under_way) const;
  // What a query that is not let past asks after has not even been issued.
  bool is_pending(const RecordUse& use) const;

 private:
  StreamOrder streams_;
  // Events that records here will record, have streams wait for, or ask after.
  std::unordered_multiset<uint64_t> recorded_, awaited_, asked_;
  size_t graphs_ = 0;
};

}  // namespace bandsaw::runner
