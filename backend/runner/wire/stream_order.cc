#include "backend/runner/wire/stream_order.h"

namespace bandsaw::runner {
namespace {

using wire::Order;

constexpr uint64_t kLegacy = VGPU_STREAM_LEGACY, kPerThread = uint64_t{1} << 63;

}  // namespace

uint64_t stream_key(uint64_t handle, uint32_t ring) {
  if (handle == VGPU_STREAM_PER_THREAD) return kPerThread | ring;
  return handle <= VGPU_STREAM_LEGACY ? kLegacy : handle;
}

RecordUse use_of(const wire::CheckedRecord& record, uint32_t ring) {
  const wire::CallInfo& info = *record.info;
  const bool asks = info.order == Order::kStreamDone || info.order == Order::kEventDone;
  RecordUse use;
  use.order = info.order;
  if (info.stream >= 0) use.stream = stream_key(wire::handle_at(record, info.stream), ring);
  use.event = wire::handle_at(record, info.event);
  use.other_event = wire::handle_at(record, info.other_event);
  use.query = asks && !info.reply_later;
  use.records = info.event_use == wire::EventUse::kRecords;
  use.waits = info.event_use == wire::EventUse::kWaits;
  use.waits_word = record.opcode == wire::Opcode::kStreamWaitValue;
  return use;
}

// It may have been made, or have gone, since it was added.
void StreamOrder::remove(uint64_t key) {
  auto& those = waiting_.contains(key) ? waiting_ : apart_waiting_;
  const auto found = those.find(key);
  if (--found->second == 0) those.erase(found);
}

bool StreamOrder::may_work(uint64_t key) const {
  if (empty()) return true;
  if (contains(key)) return false;
  if (key == kLegacy) return waiting_.empty();
  return !waiting_.contains(kLegacy) || is_apart(key);
}

// What others wait to do after it changes nothing about what the stream has been given.
bool StreamOrder::may_ask(uint64_t key) const { return !contains(key) && (key != kLegacy || waiting_.empty()); }

void WaitingUses::add(const RecordUse& use) {
  if (use.records) recorded_.insert(use.event);
  if (use.waits) awaited_.insert(use.event);
  if (use.order == Order::kEventDone) asked_.insert({use.event, use.other_event});
  if (use.stream) streams_.add(use.stream);
  graphs_ += use.order == Order::kGraph;
}

void WaitingUses::remove(const RecordUse& use) {
  if (use.records) recorded_.erase(recorded_.find(use.event));
  if (use.waits) awaited_.erase(awaited_.find(use.event));
  if (use.order == Order::kEventDone) {
    asked_.erase(asked_.find(use.event));
    asked_.erase(asked_.find(use.other_event));
  }
  if (use.stream) streams_.remove(use.stream);
  graphs_ -= use.order == Order::kGraph;
}

bool WaitingUses::lets_past(const RecordUse& use, const StreamOrder& under_way) const {
  const bool in_graph = use.in_graphs && graphs_ != 0;
  switch (use.order) {
    case Order::kNone:
      return true;
    case Order::kEventDone:
      return !in_graph && !recorded_.contains(use.event) && !recorded_.contains(use.other_event);
    case Order::kEventEnd:
      return !in_graph && !recorded_.contains(use.event) && !awaited_.contains(use.event) &&
             !asked_.contains(use.event);
    case Order::kStreamDone:
      return streams_.may_ask(use.stream) && under_way.may_ask(use.stream);
    case Order::kStream:
      if (use.event != 0 && (in_graph || recorded_.contains(use.event))) return false;
      if (use.records && awaited_.contains(use.event)) return false;
      // What writes the word may be among these: work behind the wait would have taken its place at the gate.
      if (use.waits_word && !(streams_.empty() && under_way.empty())) return false;
      return streams_.may_work(use.stream) && under_way.may_work(use.stream);
    default:
      return false;
  }
}

bool WaitingUses::is_pending(const RecordUse& use) const {
  return use.order == Order::kStreamDone || recorded_.contains(use.event) || recorded_.contains(use.other_event);
}

}  // namespace bandsaw::runner
