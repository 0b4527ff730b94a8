// What a record's execution hangs on: the order of its stream, an event, or nothing that other records could change. So
// it is known which records may be executed before others that wait.
//
// All asynchronous calls are in the order of a stream; what a waiting synchronous call will do, no other thread of the
// guest can know of yet. The legacy stream is taken to be in the order of every other.
#pragma once

#include <cstddef>
#include <cstdint>
#include <unordered_set>

#include "backend/runner/wire/command_ring.h"

namespace bandsaw::runner {

struct RecordUse {
  wire::Order order = wire::Order::kAll;
  uint64_t stream = 0;  // key of it; 0: none
  uint64_t event = 0, other_event = 0;
  bool query = false;                   // an answer is wanted at once: not yet is one
  bool records = false, waits = false;  // the stream records the event, or waits for it
};

// `ring`: whose default stream is meant. Nothing in the record is trusted but its size.
RecordUse use_of(const wire::CheckedRecord& record, uint32_t ring);
// A stream's handle as the guest gave it, so that equal ones are equal streams. Never 0.
uint64_t stream_key(uint64_t handle, uint32_t ring);

// Streams with work that waits to be issued.
class StreamOrder {
 public:
  void add(uint64_t key) { waiting_.insert(key); }
  void remove(uint64_t key) { waiting_.erase(waiting_.find(key)); }
  bool may_work(uint64_t key) const;
  bool may_ask(uint64_t key) const;

 private:
  std::unordered_multiset<uint64_t> waiting_;
};

// What records that wait will do.
class WaitingUses {
 public:
  void add(const RecordUse& use);
  void remove(const RecordUse& use);
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
