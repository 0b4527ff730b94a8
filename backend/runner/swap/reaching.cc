#include "backend/runner/swap/reaching.h"

#include <algorithm>
#include <cstring>
#include <optional>

#include "memory/base/log.h"

namespace bandsaw::runner {
namespace {

using wire::Opcode;

// Whether what the call does, now or later, uses no memory by its address.
bool uses_no_address(Opcode opcode) {
  switch (opcode) {
    case Opcode::kCallIds:
    case Opcode::kDeviceInfo:
    case Opcode::kMemoryInfo:
    case Opcode::kFetchOutput:
    case Opcode::kNextCallback:
    case Opcode::kContextCreate:
    case Opcode::kContextDestroy:
    case Opcode::kContextReset:
    case Opcode::kContextSynchronize:
    case Opcode::kContextGetLimit:
    case Opcode::kContextSetLimit:
    case Opcode::kContextResetL2:
    case Opcode::kLibraryLoad:
    case Opcode::kLibraryUnload:
    case Opcode::kLibraryKernels:
    case Opcode::kLibraryKernel:
    case Opcode::kLibraryGlobal:
    case Opcode::kLibraryManaged:
    case Opcode::kLibraryBindManaged:
    case Opcode::kKernelFunction:
    case Opcode::kModuleLoad:
    case Opcode::kModuleUnload:
    case Opcode::kModuleFunction:
    case Opcode::kModuleFunctions:
    case Opcode::kModuleGlobal:
    case Opcode::kFunctionSetAttribute:
    case Opcode::kMemoryAlloc:
    case Opcode::kMemoryFree:
    case Opcode::kSettle:
    case Opcode::kPoolCreate:
    case Opcode::kPoolDefault:
    case Opcode::kPoolDestroy:
    case Opcode::kPoolTrim:
    case Opcode::kPoolGetAttribute:
    case Opcode::kPoolSetAttribute:
    case Opcode::kMemoryAllocAsync:
    case Opcode::kStreamCreate:
    case Opcode::kStreamCreatePart:
    case Opcode::kStreamDestroy:
    case Opcode::kStreamSynchronize:
    case Opcode::kStreamQuery:
    case Opcode::kStreamWaitEvent:
    case Opcode::kStreamCallback:
    case Opcode::kStreamHold:
    case Opcode::kEventCreate:
    case Opcode::kEventDestroy:
    case Opcode::kEventRecord:
    case Opcode::kEventQuery:
    case Opcode::kEventSynchronize:
    case Opcode::kEventElapsed:
    case Opcode::kOccupancy:
    case Opcode::kOccupancyClusters:
    case Opcode::kCaptureInfo:
    case Opcode::kLinkCreate:
    case Opcode::kLinkAdd:
    case Opcode::kLinkComplete:
    case Opcode::kLinkImage:
    case Opcode::kLinkDestroy:
    // Memory that is no chunk.
    case Opcode::kManagedAdd:
    case Opcode::kManagedRemove:
    case Opcode::kArrayCreate:
    case Opcode::kArrayDestroy:
    case Opcode::kArrayPlane:
    case Opcode::kMipmapCreate:
    case Opcode::kMipmapLevel:
    case Opcode::kMipmapDestroy:
    case Opcode::kTextureLinearWidth:
    case Opcode::kSurfaceCreate:
    case Opcode::kSurfaceDestroy:
    case Opcode::kMemoryGranularity:
    case Opcode::kMemoryCreate:
    case Opcode::kMemoryRelease:
    case Opcode::kAddressReserve:
    case Opcode::kAddressFree:
    case Opcode::kMemoryMap:
    case Opcode::kMemoryUnmap:
    case Opcode::kMemorySetAccess:
    case Opcode::kMemoryGetAccess:
    case Opcode::kMemoryImport:
    case Opcode::kMemoryBorrow:
    case Opcode::kEventExport:
    case Opcode::kEventImport:
    case Opcode::kAddressAdopt:
    case Opcode::kSegmentGet:
    case Opcode::kSegmentAttach:
    case Opcode::kSegmentDetach:
    case Opcode::kSegmentRemove:
    // Only told what it will be used for.
    case Opcode::kTensorMapEncode:
    case Opcode::kTensorMapMove:
      return true;
    default:
      return false;
  }
}

// Bytes from the end's address to behind the last one that is copied; nothing: it is no size.
std::optional<uint64_t> span_of(const vgpu_copy& copy, const vgpu_copy_end& end) {
  if (copy.width_bytes == 0 || copy.height == 0 || copy.depth == 0) return 0;
  uint64_t row = 0, bytes = 0, planes = 0;
  if (__builtin_add_overflow(end.z, copy.depth - 1, &planes) || __builtin_mul_overflow(planes, end.height, &row) ||
      __builtin_add_overflow(row, end.y, &row) || __builtin_add_overflow(row, copy.height - 1, &row) ||
      __builtin_mul_overflow(row, end.pitch, &bytes) || __builtin_add_overflow(bytes, end.x_bytes, &bytes) ||
      __builtin_add_overflow(bytes, copy.width_bytes, &bytes)) {
    return std::nullopt;
  }
  return bytes;
}

std::optional<uint64_t> span_of(const vgpu_fill& fill) {
  if (fill.width == 0 || fill.height == 0) return 0;
  uint64_t rows = 0, bytes = 0;
  if (__builtin_mul_overflow(fill.height - 1, fill.pitch, &rows) ||
      __builtin_mul_overflow(fill.width, uint64_t{fill.element_bytes}, &bytes) ||
      __builtin_add_overflow(bytes, rows, &bytes)) {
    return std::nullopt;
  }
  return bytes;
}

std::optional<uint64_t> word_at(std::span<const std::byte> parameters, size_t at) {
  uint64_t word = 0;
  if (at > parameters.size() || parameters.size() - at < sizeof word) return std::nullopt;
  std::memcpy(&word, parameters.data() + at, sizeof word);
  return word;
}

}  // namespace

void Reaching::open(const wire::CheckedRecord& record, bool node) {
  const bool apart = book_.with_chunks([](const swap::Chunks& chunks) { return chunks.any_apart(); });
  if (!apart && (unknown_ || any_time_)) return;
  reached_.clear();
  const Reach reach = node ? Reach::kAnyTime : reach_of(record);
  known_ |= reach == Reach::kSome && record.opcode == Opcode::kLaunch;
  unknown_ |= reach == Reach::kAny;
  any_time_ |= reach == Reach::kAnyTime;
  if (!apart || reach == Reach::kNothing) return;
  const bool all = reach != Reach::kSome;
  const std::vector<uint64_t> wanted =
      book_.with_chunks([&](const swap::Chunks& chunks) { return all ? chunks.apart() : chunks.apart(reached_); });
  if (wanted.empty()) return;
  log::debug("{} chunks that had left the device may be reached by {}: mapped them", wanted.size(), record.info->name);
  map(wanted);
}

// Where it fails, what needs them faults: there is no other place for them.
void Reaching::map(const std::vector<uint64_t>& chunks) {
  const CUresult result = device_->chunks_reach(chunks);
  if (result == CUDA_SUCCESS) return book_.reached(chunks);
  log::error("memory that had left the device cannot be mapped: error {}", static_cast<int>(result));
}

Reaching::Reach Reaching::reach_of(const wire::CheckedRecord& record) {
  if (uses_no_address(record.opcode)) return Reach::kNothing;
  if (record.opcode == Opcode::kLaunch) return reach_of_launch(record);
  if (const auto args = wire::read_args<wire::CopyArgs>(record)) return reach_of_copy(args->copy);
  if (const auto args = wire::read_args<wire::FillArgs>(record)) {
    const auto bytes = span_of(args->fill);
    return bytes ? range(args->fill.address, *bytes) : Reach::kAny;
  }
  if (const auto args = wire::read_args<wire::CopyInArgs>(record)) return range(args->destination, record.tail.size());
  if (const auto args = wire::read_args<wire::CopyOutArgs>(record)) return range(args->source, args->size);
  if (const auto args = wire::read_args<wire::MemoryFreeAsyncArgs>(record)) return range(args->address, 1);
  if (const auto args = wire::read_args<wire::StreamWriteValueArgs>(record)) return range(args->address, args->bytes);
  if (const auto args = wire::read_args<wire::StreamWaitValueArgs>(record)) return range(args->address, args->bytes);
  // Graphs, textures, exports and what is not known here: somebody keeps the address.
  return Reach::kAnyTime;
}

// What an address in an allocation says of the rest of it is not looked at: a copy may cross its end.
Reaching::Reach Reaching::range(uint64_t address, uint64_t bytes) {
  if (address + bytes < address) return Reach::kAny;
  book_.with_chunks([&](const swap::Chunks& chunks) {
    chunks.reach_range(address, bytes, &reached_);
    chunks.reach_allocation(address, &reached_);
  });
  return Reach::kSome;
}

Reaching::Reach Reaching::reach_of_copy(const vgpu_copy& copy) {
  for (const vgpu_copy_end& end : {copy.destination, copy.source}) {
    if (end.kind != VGPU_MEMORY_DEVICE) continue;
    const auto bytes = span_of(copy, end);
    if (!bytes || range(end.address, *bytes) == Reach::kAny) return Reach::kAny;
  }
  return Reach::kSome;
}

// All of a launch's parameters count, not only those that are pointers by the kernel's text.
Reaching::Reach Reaching::reach_of_launch(const wire::CheckedRecord& launch) {
  const ptx::PointerParameters* const pointers = find_pointers_ ? find_pointers_(launch) : nullptr;
  if (!pointers || !pointers->why_not.empty()) return Reach::kAny;
  const bool known = book_.with_chunks([&](const swap::Chunks& chunks) {
    for (size_t at = 0; const auto word = word_at(launch.tail, at); at += sizeof *word) {
      chunks.reach_allocation(*word, &reached_);
    }
    return std::all_of(pointers->pointers.begin(), pointers->pointers.end(), [&](const auto& pointer) {
      const auto word = word_at(launch.tail, pointer.at);
      return word && ((*word == 0 && pointer.declared) || points_into_memory(chunks, *word));
    });
  });
  return known ? Reach::kSome : Reach::kAny;
}

// A pointer may be just past the end of what it is of, or before its beginning: what lies near to it counts then.
bool Reaching::points_into_memory(const swap::Chunks& chunks, uint64_t pointer) {
  if (pointer < window_base_ || pointer - window_base_ >= window_bytes_) return false;
  const size_t before = reached_.size();
  chunks.reach_allocation(pointer, &reached_);
  if (reached_.size() != before) return true;
  std::vector<uint64_t> near;
  chunks.reach_range(pointer - kMapUnit, 2 * kMapUnit, &near);
  for (const uint64_t chunk : near) chunks.reach_allocation(chunk, &reached_);
  return true;
}

}  // namespace bandsaw::runner
