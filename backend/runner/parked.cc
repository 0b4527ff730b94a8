#include "backend/runner/parked.h"

#include <algorithm>
#include <cstring>

namespace bandsaw::runner {
namespace {

using wire::Opcode;

// The event is the first argument of all calls on one event.
uint64_t event_of(const wire::CheckedRecord& record) {
  uint64_t event = 0;
  std::memcpy(&event, record.args, sizeof(event));
  return event;
}
static_assert(offsetof(wire::EventRecordArgs, event) == 0 && offsetof(wire::EventQueryArgs, event) == 0 &&
              offsetof(wire::EventSynchronizeArgs, event) == 0);

}  // namespace

bool Parked::holds(const Lane& lane) const {
  return std::any_of(entries_.begin(), entries_.end(), [&](const Entry& entry) { return entry.lane.get() == &lane; });
}

bool Parked::lets_past(const wire::CheckedRecord& record) const {
  switch (record.opcode) {
    case Opcode::kDeviceInfo:
    case Opcode::kMemoryInfo:
    case Opcode::kNextCallback:
    case Opcode::kFetchOutput:
      return true;
    case Opcode::kEventQuery:
    case Opcode::kEventSynchronize:
      return graphs_ == 0 && !recorded_.contains(event_of(record));
    default:
      return false;
  }
}

void Parked::push(const LaneRef& lane, const wire::CheckedRecord& record, std::vector<std::byte> bytes) {
  if (record.opcode == Opcode::kEventRecord) recorded_.insert(event_of(record));
  if (record.opcode == Opcode::kExecLaunch) ++graphs_;
  bytes_ += bytes.size();
  entries_.push_back({lane, std::move(bytes), record});  // the bytes keep their place
}

Parked::Entry Parked::pop() {
  Entry entry = std::move(entries_.front());
  entries_.pop_front();
  bytes_ -= entry.bytes.size();
  if (entry.record.opcode == Opcode::kEventRecord) recorded_.erase(recorded_.find(event_of(entry.record)));
  if (entry.record.opcode == Opcode::kExecLaunch) --graphs_;
  return entry;
}

}  // namespace bandsaw::runner
