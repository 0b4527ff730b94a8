#include "backend/runner/wire/stream_order.h"

#include <cstddef>
#include <cstring>

namespace bandsaw::runner {
namespace {

using Kind = RecordUse::Kind;
using wire::Opcode;

constexpr uint64_t kLegacy = VGPU_STREAM_LEGACY, kPerThread = uint64_t{1} << 63;

template <typename T>
T read_at(const wire::CheckedRecord& record, size_t offset) {
  T value{};
  std::memcpy(&value, record.args + offset, sizeof value);
  return value;
}

// Where a call's stream stands in its arguments; -1: it is in the order of none.
int stream_offset(Opcode opcode) {
  switch (opcode) {
    case Opcode::kMemoryAllocAsync:
      return offsetof(wire::MemoryAllocAsyncArgs, stream);
    case Opcode::kMemoryFreeAsync:
      return offsetof(wire::MemoryFreeAsyncArgs, stream);
    case Opcode::kCopy:
      return offsetof(wire::CopyArgs, stream);
    case Opcode::kCopyIn:
      return offsetof(wire::CopyInArgs, stream);
    case Opcode::kCopyOut:
      return offsetof(wire::CopyOutArgs, stream);
    case Opcode::kFill:
      return offsetof(wire::FillArgs, stream);
    case Opcode::kStreamSynchronize:
      return offsetof(wire::StreamSynchronizeArgs, stream);
    case Opcode::kStreamQuery:
      return offsetof(wire::StreamQueryArgs, stream);
    case Opcode::kStreamWaitEvent:
      return offsetof(wire::StreamWaitEventArgs, stream);
    case Opcode::kStreamCallback:
      return offsetof(wire::StreamCallbackArgs, stream);
    case Opcode::kStreamWriteValue:
      return offsetof(wire::StreamWriteValueArgs, stream);
    case Opcode::kStreamWaitValue:
      return offsetof(wire::StreamWaitValueArgs, stream);
    case Opcode::kEventRecord:
      return offsetof(wire::EventRecordArgs, stream);
    case Opcode::kLaunch:
      return offsetof(wire::LaunchArgs, launch) + offsetof(vgpu_launch, stream);
    case Opcode::kExecLaunch:
      return offsetof(wire::ExecLaunchArgs, stream);
    default:
      return -1;
  }
}

// Calls that make or describe something: what waits has no part in it.
bool is_free(Opcode opcode) {
  switch (opcode) {
    case Opcode::kDeviceInfo:
    case Opcode::kMemoryInfo:
    case Opcode::kNextCallback:
    case Opcode::kFetchOutput:
    case Opcode::kLibraryLoad:
    case Opcode::kLibraryKernels:
    case Opcode::kLibraryKernel:
    case Opcode::kLibraryManaged:
    case Opcode::kLibraryGlobal:
    case Opcode::kKernelFunction:
    case Opcode::kModuleLoad:
    case Opcode::kModuleFunction:
    case Opcode::kModuleFunctions:
    case Opcode::kModuleGlobal:
    case Opcode::kMemoryAlloc:
    case Opcode::kStreamCreate:
    case Opcode::kEventCreate:
    case Opcode::kOccupancy:
    case Opcode::kTensorMapEncode:
    case Opcode::kTensorMapMove:
      return true;
    default:
      return false;
  }
}

}  // namespace

uint64_t stream_key(uint64_t handle, uint32_t ring) {
  if (handle == VGPU_STREAM_PER_THREAD) return kPerThread | ring;
  return handle <= VGPU_STREAM_LEGACY ? kLegacy : handle;
}

RecordUse use_of(const wire::CheckedRecord& record, uint32_t ring) {
  RecordUse use;
  if (const int offset = stream_offset(record.opcode); offset >= 0) {
    use.stream = stream_key(read_at<uint64_t>(record, static_cast<size_t>(offset)), ring);
    use.kind = Kind::kWork;
  } else if (is_free(record.opcode)) {
    use.kind = Kind::kFree;
  }
  switch (record.opcode) {
    case Opcode::kStreamSynchronize:
      use.kind = Kind::kAsk;
      break;
    case Opcode::kStreamQuery:
      use.kind = Kind::kAsk;
      use.query = true;
      break;
    case Opcode::kEventRecord:
      use.records = true;
      use.event = read_at<uint64_t>(record, offsetof(wire::EventRecordArgs, event));
      break;
    case Opcode::kStreamWaitEvent:
      use.waits = true;
      use.event = read_at<uint64_t>(record, offsetof(wire::StreamWaitEventArgs, event));
      break;
    case Opcode::kEventElapsed:
      use.kind = Kind::kEvent;
      use.query = true;
      use.event = read_at<uint64_t>(record, offsetof(wire::EventElapsedArgs, start));
      use.other_event = read_at<uint64_t>(record, offsetof(wire::EventElapsedArgs, end));
      break;
    case Opcode::kEventQuery:
      use.kind = Kind::kEvent;
      use.query = true;
      use.event = read_at<uint64_t>(record, offsetof(wire::EventQueryArgs, event));
      break;
    case Opcode::kEventSynchronize:
      use.kind = Kind::kEvent;
      use.event = read_at<uint64_t>(record, offsetof(wire::EventSynchronizeArgs, event));
      break;
    case Opcode::kEventDestroy:
      use.kind = Kind::kEnd;
      use.event = read_at<uint64_t>(record, offsetof(wire::EventDestroyArgs, event));
      break;
    case Opcode::kExecLaunch:
      use.graph = true;
      use.kind = Kind::kOrdered;
      break;
    default:
      break;
  }
  return use;
}

bool StreamOrder::may_work(uint64_t key) const {
  if (waiting_.empty()) return true;
  return key != kLegacy && !waiting_.contains(kLegacy) && !waiting_.contains(key);
}

// What others wait to do after it changes nothing about what the stream has been given.
bool StreamOrder::may_ask(uint64_t key) const {
  return waiting_.empty() || (key != kLegacy && !waiting_.contains(key));
}

void WaitingUses::add(const RecordUse& use) {
  if (use.records) recorded_.insert(use.event);
  if (use.waits) awaited_.insert(use.event);
  if (use.kind == Kind::kEvent) asked_.insert({use.event, use.other_event});
  if (use.stream) streams_.add(use.stream);
  graphs_ += use.graph;
}

void WaitingUses::remove(const RecordUse& use) {
  if (use.records) recorded_.erase(recorded_.find(use.event));
  if (use.waits) awaited_.erase(awaited_.find(use.event));
  if (use.kind == Kind::kEvent) {
    asked_.erase(asked_.find(use.event));
    asked_.erase(asked_.find(use.other_event));
  }
  if (use.stream) streams_.remove(use.stream);
  graphs_ -= use.graph;
}

bool WaitingUses::lets_past(const RecordUse& use, const StreamOrder& under_way) const {
  switch (use.kind) {
    case RecordUse::Kind::kFree:
      return true;
    case RecordUse::Kind::kEvent:
      return graphs_ == 0 && !recorded_.contains(use.event) && !recorded_.contains(use.other_event);
    case RecordUse::Kind::kEnd:
      return graphs_ == 0 && !recorded_.contains(use.event) && !awaited_.contains(use.event) &&
             !asked_.contains(use.event);
    case RecordUse::Kind::kAsk:
      return streams_.may_ask(use.stream) && under_way.may_ask(use.stream);
    case RecordUse::Kind::kWork:
      if (use.event != 0 && (graphs_ != 0 || recorded_.contains(use.event))) return false;
      if (use.records && awaited_.contains(use.event)) return false;
      return streams_.may_work(use.stream) && under_way.may_work(use.stream);
    default:
      return false;
  }
}

bool WaitingUses::is_pending(const RecordUse& use) const {
  return use.kind == RecordUse::Kind::kAsk || recorded_.contains(use.event) || recorded_.contains(use.other_event);
}

}  // namespace bandsaw::runner
