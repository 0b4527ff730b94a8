// Copies and fills on streams. Registered host memory is read and written by the GPU's copy engines; the few bytes that
// come inside a record go with the command, and those that leave in a reply go through a registered slot.
#include <cstring>

#include "backend/device/cuda/cuda_device.h"
#include "memory/base/log.h"

namespace bandsaw::cuda {
namespace {

bool is_linear(const Copy& copy) {
  return copy.height <= 1 && copy.depth <= 1 && !copy.destination.array && !copy.source.array;
}

constexpr uint64_t kSoonMost = 32u << 20;  // longer ones take longer than anybody waits on this thread

uint64_t extent(const Copy& copy, const CopyEnd& end) {
  return ((copy.depth - 1) * end.height + copy.height - 1) * end.pitch + copy.width_bytes;
}

CUmemorytype type_of(const CopyEnd& end) {
  if (end.array) return CU_MEMORYTYPE_ARRAY;
  return end.host ? CU_MEMORYTYPE_HOST : CU_MEMORYTYPE_DEVICE;
}

}  // namespace

CUDA_MEMCPY3D to_driver(const Copy& copy) {
  CUDA_MEMCPY3D box{};
  const CopyEnd &to = copy.destination, &from = copy.source;
  box.srcMemoryType = type_of(from);
  box.srcHost = reinterpret_cast<const void*>(from.address);
  box.srcDevice = from.address;
  box.srcArray = from.array ? as(from.array).handle : nullptr;
  box.srcXInBytes = from.x_bytes;
  box.srcY = from.y;
  box.srcZ = from.z;
  box.srcPitch = from.pitch;
  box.srcHeight = from.height;
  box.dstMemoryType = type_of(to);
  box.dstHost = reinterpret_cast<void*>(to.address);
  box.dstDevice = to.address;
  box.dstArray = to.array ? as(to.array).handle : nullptr;
  box.dstXInBytes = to.x_bytes;
  box.dstY = to.y;
  box.dstZ = to.z;
  box.dstPitch = to.pitch;
  box.dstHeight = to.height;
  box.WidthInBytes = copy.width_bytes;
  box.Height = copy.height;
  box.Depth = copy.depth;
  // The driver wants a pitch and a height even where one row needs none.
  for (size_t* pitch : {&box.srcPitch, &box.dstPitch}) *pitch = *pitch ? *pitch : copy.width_bytes;
  for (size_t* height : {&box.srcHeight, &box.dstHeight}) *height = *height ? *height : copy.height;
  return box;
}

// What the driver tells of a copy node, its arrays among them.
Copy CudaDevice::copy_of(const CUDA_MEMCPY3D& box) {
  const auto end = [this](CUmemorytype type, const void* host, CUdeviceptr device, CUarray array, size_t x, size_t y,
                          size_t z, size_t pitch, size_t height) {
    CopyEnd made;
    if (type == CU_MEMORYTYPE_ARRAY) {
      made.array = known_array(array);
      made.x_bytes = x;
      made.y = y;
      made.z = z;
      return made;
    }
    made.host = type == CU_MEMORYTYPE_HOST;
    made.pitch = pitch;
    made.height = height;
    made.address = (made.host ? reinterpret_cast<uint64_t>(host) : device) + (z * height + y) * pitch + x;
    return made;
  };
  Copy copy;
  copy.source = end(box.srcMemoryType, box.srcHost, box.srcDevice, box.srcArray, box.srcXInBytes, box.srcY, box.srcZ,
                    box.srcPitch, box.srcHeight);
  copy.destination = end(box.dstMemoryType, box.dstHost, box.dstDevice, box.dstArray, box.dstXInBytes, box.dstY,
                         box.dstZ, box.dstPitch, box.dstHeight);
  copy.width_bytes = box.WidthInBytes;
  copy.height = box.Height;
  copy.depth = box.Depth;
  return copy;
}

// The driver knows its own allocations. Of the heap's addresses it knows that they are reserved, and would find only
// while it copies that there is no memory behind them, which ends the process's contexts.
bool CudaDevice::is_there(uint64_t address, uint64_t bytes) const {
  return !heap_->reserves(address) || heap_->covers(address, bytes) || reservations_->covers(address, bytes);
}

CUresult CudaDevice::start_copy(CUstream stream, const Copy& copy) {
  if (!is_linear(copy)) {
    const CUDA_MEMCPY3D made = to_driver(copy);
    return driver_->cuMemcpy3DAsync(&made, stream);
  }
  const CopyEnd &to = copy.destination, &from = copy.source;
  const uint64_t bytes = copy.width_bytes;
  if (to.host && from.host) return driver_->cuMemcpyAsync(to.address, from.address, bytes, stream);
  if (to.host) return driver_->cuMemcpyDtoHAsync(reinterpret_cast<void*>(to.address), from.address, bytes, stream);
  if (from.host) {
    return driver_->cuMemcpyHtoDAsync(to.address, reinterpret_cast<const void*>(from.address), bytes, stream);
  }
  return driver_->cuMemcpyDtoDAsync(to.address, from.address, bytes, stream);
}

// From bytes of the runner's own: the driver has read them when it returns.
CUresult CudaDevice::copy_inline(const StreamRef& stream, const Copy& copy, const Done& done) {
  const CUresult result = check(start_copy(as(stream).handle, copy));
  if (result == CUDA_SUCCESS && done) done(CUDA_SUCCESS);
  return result;
}

// Somebody waits for this copy and for nothing else. Bytes for a reply, which is no registered memory, land in a slot
// first.
CUresult CudaDevice::copy_awaited(const StreamRef& stream, const Copy& copy, bool to_reply, Done done) {
  std::byte* const slot = to_reply && copy.width_bytes <= Pinned::kSlotBytes ? pinned_->take_slot() : nullptr;
  if (to_reply && !slot) return copy_blocking(stream, copy, std::move(done));
  Copy first = copy;
  if (slot) first.destination.address = reinterpret_cast<uint64_t>(slot);
  keep_behind();  // the compute engine has nothing while this is copied
  if (const CUresult result = check(start_copy(as(stream).handle, first))) {
    if (slot) pinned_->give_slot(slot);
    return result;
  }
  auto synchronize = [this, stream] { return driver_->cuStreamSynchronize(as(stream).handle); };
  if (slot) {
    done = [this, slot, copy, done = std::move(done)](CUresult outcome) {
      if (outcome == CUDA_SUCCESS) {
        std::memcpy(reinterpret_cast<void*>(copy.destination.address), slot, copy.width_bytes);
      }
      pinned_->give_slot(slot);
      if (done) done(outcome);
    };
  }
  if (copy.width_bytes * copy.height * copy.depth > kSoonMost) {
    wait(as(stream).context, synchronize, std::move(done));
  } else {
    wait_streams_soon(as(stream).context, {as(stream).handle}, synchronize, std::move(done));
  }
  return CUDA_SUCCESS;
}

CUresult CudaDevice::copy_unregistered(const StreamRef& stream, const Copy& copy) {
  const CopyEnd &to = copy.destination, &from = copy.source;
  CUresult result = CUDA_ERROR_OUT_OF_MEMORY;
  if (is_linear(copy) && from.host && !to.host) {
    result = split_->to_device(std::static_pointer_cast<CudaStream>(stream), to.address,
                               reinterpret_cast<const std::byte*>(from.address), copy.width_bytes);
  }
  if (result != CUDA_ERROR_OUT_OF_MEMORY) return result;
  // The driver stages the rest, also what there is no memory of our own for.
  result = start_copy(as(stream).handle, copy);
  return result == CUDA_SUCCESS ? driver_->cuStreamSynchronize(as(stream).handle) : result;
}

// From or to memory that could not be registered: only a waiter has the time for that. The guest's thread waits for it,
// so nothing overtakes it.
CUresult CudaDevice::copy_blocking(const StreamRef& stream, const Copy& copy, Done done) {
  auto held = time_slices_->hold(index_of(engine_of(copy)), 0);
  auto call = [this, stream, copy, held = std::move(held)] { return copy_unregistered(stream, copy); };
  wait(as(stream).context, std::move(call), std::move(done));
  return CUDA_SUCCESS;
}

CUresult CudaDevice::copy(const StreamRef& stream, const Copy& copy, Done done) {
  if (const CUresult result = enter(stream)) return result;
  CUresult error = CUDA_SUCCESS;
  const bool capturing = is_capturing(as(stream).handle, &error);
  if (error != CUDA_SUCCESS) return check(error);
  if (capturing) return copy_inline(stream, copy, done);
  work_ends(stream);
  for (const CopyEnd* end : {&copy.destination, &copy.source}) {
    if (!end->host && !end->array && !is_there(end->address, extent(copy, *end))) return CUDA_ERROR_INVALID_VALUE;
  }
  const auto registered = [&](const CopyEnd& end) {
    return !end.host || pinned_->holds(end.address, extent(copy, end));
  };
  const bool to_reply = !registered(copy.destination), from_record = !registered(copy.source);
  const uint64_t bytes = copy.width_bytes * copy.height * copy.depth;
  measure(index_of(engine_of(copy)), stream, bytes, is_linear(copy));
  if (bytes > Pinned::kSlotBytes && (to_reply || (from_record && copy.awaited))) {
    return copy_blocking(stream, copy, std::move(done));
  }
  if ((copy.awaited && !copy.more) || to_reply) return copy_awaited(stream, copy, to_reply, std::move(done));
  if (from_record) return copy_inline(stream, copy, done);
  if (const CUresult result = check(start_copy(as(stream).handle, copy))) return result;
  return done ? when_done(stream, std::move(done)) : CUDA_SUCCESS;
}

CUresult CudaDevice::start_fill(CUstream stream, const vgpu_fill& fill) {
  const Driver& driver = *driver_;
  const auto value8 = static_cast<unsigned char>(fill.value);
  const auto value16 = static_cast<unsigned short>(fill.value);
  if (fill.height <= 1) {
    switch (fill.element_bytes) {
      case 1:
        return driver.cuMemsetD8Async(fill.address, value8, fill.width, stream);
      case 2:
        return driver.cuMemsetD16Async(fill.address, value16, fill.width, stream);
      default:
        return driver.cuMemsetD32Async(fill.address, fill.value, fill.width, stream);
    }
  }
  switch (fill.element_bytes) {
    case 1:
      return driver.cuMemsetD2D8Async(fill.address, fill.pitch, value8, fill.width, fill.height, stream);
    case 2:
      return driver.cuMemsetD2D16Async(fill.address, fill.pitch, value16, fill.width, fill.height, stream);
    default:
      return driver.cuMemsetD2D32Async(fill.address, fill.pitch, fill.value, fill.width, fill.height, stream);
  }
}

CUresult CudaDevice::fill(const StreamRef& stream, const vgpu_fill& fill, Done done) {
  if (const CUresult result = enter(stream)) return result;
  const uint64_t row = fill.width * fill.element_bytes;
  if (!is_there(fill.address, (fill.height - 1) * fill.pitch + row)) return CUDA_ERROR_INVALID_VALUE;
  measure(kCompute, stream, row * fill.height);
  if (const CUresult result = check(start_fill(as(stream).handle, fill))) return result;
  if (!done) return CUDA_SUCCESS;
  CUresult error = CUDA_SUCCESS;
  if (is_capturing(as(stream).handle, &error)) {
    done(CUDA_SUCCESS);
    return CUDA_SUCCESS;
  }
  return when_done(stream, std::move(done));
}

}  // namespace bandsaw::cuda
