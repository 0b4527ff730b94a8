#include "vgpu-sched/slice/queues.h"

#include <algorithm>

namespace bandsaw::slice {

Error Queues::arrival(const Call& call, Time now) {
  if (call.blocks == 0) return Error::kNoBlocks;
  if (calls_.contains(call.id)) return Error::kKnownKernel;
  if (calls_.size() >= kMaxCalls) return Error::kFull;
  calls_[call.id].call = call;
  streams_[call.stream].push_back(call.id);
  release(call.stream, now);
  return Error::kNone;
}

Error Queues::copies_done(KernelId id, Time now) {
  const auto found = calls_.find(id);
  if (found == calls_.end()) return Error::kUnknownKernel;
  found->second.call.copied = true;
  release(found->second.call.stream, now);
  return Error::kNone;
}

Error Queues::progress(KernelId id, Blocks done) {
  ReadyKernel* ready = ready_of(id);
  if (ready == nullptr) return Error::kUnknownKernel;
  ready->done = std::clamp(done, ready->done, ready->blocks - ready->left);
  return Error::kNone;
}

Error Queues::grid_slice_done(KernelId id, Blocks first, Time now, bool* over, Blocks* blocks) {
  if (over != nullptr) *over = false;
  const auto found = calls_.find(id);
  if (found == calls_.end()) return Error::kUnknownKernel;
  Record& record = found->second;
  const auto slice = std::find_if(record.in_flight.begin(), record.in_flight.end(),
                                  [first](const Range& range) { return range.first == first; });
  if (slice == record.in_flight.end()) return Error::kUnknownGridSlice;
  record.done_in_slices += slice->blocks;
  if (blocks != nullptr) *blocks = slice->blocks;
  record.in_flight.erase(slice);
  ReadyKernel& ready = *ready_of(id);
  --ready.in_flight;
  ready.done = std::max(ready.done, record.done_in_slices);
  if (record.done_in_slices < record.call.blocks) return Error::kNone;
  if (over != nullptr) *over = true;
  erase(id, now);
  return Error::kNone;
}

Error Queues::departure(KernelId id, Time now) {
  if (!calls_.contains(id)) return Error::kUnknownKernel;
  erase(id, now);
  return Error::kNone;
}

Range Queues::take(KernelId id, Blocks most) {
  ReadyKernel* ready = ready_of(id);
  if (ready == nullptr || ready->left == 0 || most == 0) return {};
  const Range range{.first = ready->blocks - ready->left, .blocks = std::min(most, ready->left)};
  ready->left -= range.blocks;
  ++ready->in_flight;
  calls_.at(id).in_flight.push_back(range);
  if (ready->left == 0) ++changes_;
  return range;
}

void Queues::set_resident(KernelId id, int resident) {
  const auto found = calls_.find(id);
  if (found != calls_.end()) found->second.resident = resident;
}

int Queues::resident(KernelId id) const {
  const auto found = calls_.find(id);
  return found == calls_.end() ? 0 : found->second.resident;
}

const ReadyKernel* Queues::find_ready(KernelId id) const {
  const auto found = std::find_if(ready_.begin(), ready_.end(), [id](const ReadyKernel& one) { return one.id == id; });
  return found == ready_.end() ? nullptr : &*found;
}

ReadyKernel* Queues::ready_of(KernelId id) { return const_cast<ReadyKernel*>(find_ready(id)); }

// The first call of the stream becomes ready when its copies are done.
void Queues::release(StreamId stream, Time now) {
  const auto found = streams_.find(stream);
  if (found == streams_.end()) return;
  Record& record = calls_.at(found->second.front());
  if (record.ready || !record.call.copied) return;
  record.ready = true;
  const Call& call = record.call;
  ready_.push_back({.id = call.id,
                    .shape = call.shape,
                    .blocks = call.blocks,
                    .left = call.blocks,
                    .done = 0,
                    .minimum = call.minimum,
                    .in_flight = 0,
                    .ready_since = now,
                    .alone = call.alone});
  ++changes_;
}

void Queues::erase(KernelId id, Time now) {
  const StreamId stream = calls_.at(id).call.stream;
  const bool ready = calls_.at(id).ready;
  if (ready) {
    std::erase_if(ready_, [id](const ReadyKernel& one) { return one.id == id; });
    ++changes_;
  }
  calls_.erase(id);
  std::deque<KernelId>& calls = streams_.at(stream);
  std::erase(calls, id);
  if (calls.empty()) {
    streams_.erase(stream);
  } else {
    release(stream, now);
  }
}

}  // namespace bandsaw::slice
