// Shared segments: memory that the session finds by name, for as long as this virtual GPU may use it.
#include <cerrno>
#include <cstring>

#include "backend/runner/handlers/handlers.h"

namespace bandsaw::runner {
namespace {

CUresult result_of(int error) {
  switch (error) {
    case 0:
      return CUDA_SUCCESS;
    case ENOENT:
      return CUDA_ERROR_NOT_FOUND;
    case EACCES:
    case EPERM:
      return CUDA_ERROR_NOT_PERMITTED;
    case EEXIST:
      return CUDA_ERROR_ALREADY_MAPPED;
    case ENOMEM:
    case ENOSPC:
      return CUDA_ERROR_OUT_OF_MEMORY;
    case EINVAL:
      return CUDA_ERROR_INVALID_VALUE;
    default:  // the owner's session has gone, or its device
      return CUDA_ERROR_DEVICE_UNAVAILABLE;
  }
}

uint32_t access_of(const ExchangeTail& tail) {
  SegmentTail said;
  std::memcpy(&said, tail.payload.data(), sizeof said);
  return said.access;
}

}  // namespace

void Handlers::segment_get(C, uint64_t size, uint32_t flags, std::string_view name, wire::SegmentGetAnswer answer) {
  world_.exchange.ask_segment(RunnerMessageType::kSegmentGet, name, size, flags,
                              [answer](int error, const ExchangeClient::Thing& thing) {
                                answer(result_of(error), thing.bytes, access_of(thing.tail));
                              });
}

void Handlers::segment_attach(C, uint32_t flags, std::string_view name, wire::SegmentAttachAnswer answer) {
  world_.exchange.ask_segment(
      RunnerMessageType::kSegmentAttach, name, 0, flags, [this, answer](int error, const ExchangeClient::Thing& thing) {
        uint64_t handle = 0;
        const uint32_t access = access_of(thing.tail);
        const CUresult result = error == 0 ? take_segment(thing, access, &handle) : result_of(error);
        if (result != CUDA_SUCCESS && error == 0) world_.exchange.detach_segment(thing.tail.key);
        answer(result, handle, thing.bytes, access);
      });
}

CUresult Handlers::take_segment(const ExchangeClient::Thing& thing, uint32_t access, uint64_t* handle) {
  if (!thing.fd || thing.bytes == 0) return CUDA_ERROR_UNKNOWN;
  MemoryRef object;
  CUresult result = device_.memory_borrow(thing.fd.get(), thing.bytes, &object);
  if (result != CUDA_SUCCESS) return result;
  object->borrowed = true;
  object->read_only = access != VGPU_SEGMENT_ACCESS_WRITE;
  std::lock_guard lock(published_mutex_);
  borrowed_[thing.tail.key] = {object};
  result = give(wire::HandleKind::kMemory, object, 0, handle);
  if (result == CUDA_SUCCESS) {
    attached_[*handle] = thing.tail.key;
  } else {
    borrowed_.erase(thing.tail.key);
  }
  return result;
}

// Nothing of it stays mapped, wherever the guest has mapped it, before its owner hears that it is not used any more.
CUresult Handlers::segment_detach(C, R<Memory> memory) {
  std::unique_lock lock(published_mutex_);
  const auto attached = attached_.extract(memory.handle);
  if (attached.empty()) return CUDA_ERROR_INVALID_VALUE;
  borrowed_.erase(attached.mapped());
  lock.unlock();
  device_.memory_revoke(memory);
  table().remove(wire::HandleKind::kMemory, memory.handle);
  world_.exchange.detach_segment(attached.mapped());
  return CUDA_SUCCESS;
}

void Handlers::segment_remove(C, std::string_view name, wire::Answer answer) {
  world_.exchange.ask_segment(RunnerMessageType::kSegmentRemove, name, 0, 0,
                              [answer](int error, const ExchangeClient::Thing&) { answer(result_of(error)); });
}

}  // namespace bandsaw::runner
