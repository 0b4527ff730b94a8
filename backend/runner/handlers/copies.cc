#include "backend/runner/handlers/copies.h"

#include "guest-driver/uapi/vgpu_control.h"
#include "memory/base/log.h"

namespace bandsaw::runner {
namespace {

// a * b + c, or false.
bool multiply_add(uint64_t a, uint64_t b, uint64_t c, uint64_t* result) {
  uint64_t product = 0;
  return !__builtin_mul_overflow(a, b, &product) && !__builtin_add_overflow(product, c, result);
}

// From the first byte of a box to behind its last.
bool box_extent(uint64_t width, uint64_t height, uint64_t depth, uint64_t pitch, uint64_t plane_rows, uint64_t* bytes) {
  uint64_t plane = 0, rows = 0;
  if (depth > 1 && __builtin_mul_overflow(pitch, plane_rows, &plane)) return false;
  return multiply_add(height - 1, height > 1 ? pitch : 0, width, &rows) && multiply_add(depth - 1, plane, rows, bytes);
}

CUresult resolve_array(const HandleTable& handles, const vgpu_copy_end& from, CopyEnd* end) {
  end->array = std::static_pointer_cast<Array>(handles.find(HandleKind::kArray, from.address));
  end->x_bytes = from.x_bytes;
  end->y = from.y;
  end->z = from.z;
  return end->array ? CUDA_SUCCESS : CUDA_ERROR_INVALID_HANDLE;
}

CUresult resolve_end(const HandleTable& handles, const GuestMemory& memory, const vgpu_copy& copy,
                     const vgpu_copy_end& from, Access access, CopyEnd* end, RegionRef* hold) {
  if (from.kind == VGPU_MEMORY_ARRAY) return resolve_array(handles, from, end);
  uint64_t bytes = 0, offset = 0, planes = 0;
  if (copy.height > 1 && from.pitch < copy.width_bytes) return CUDA_ERROR_INVALID_VALUE;
  if (copy.depth > 1 && from.height < copy.height) return CUDA_ERROR_INVALID_VALUE;
  if (!box_extent(copy.width_bytes, copy.height, copy.depth, from.pitch, from.height, &bytes) ||
      !multiply_add(from.z, from.height, from.y, &planes) || !multiply_add(planes, from.pitch, from.x_bytes, &offset)) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  uint64_t address = 0;
  if (__builtin_add_overflow(from.address, offset, &address)) return CUDA_ERROR_INVALID_VALUE;
  end->pitch = from.pitch;
  end->height = from.height;
  switch (from.kind) {
    case VGPU_MEMORY_DEVICE:
      return resolve_device(memory, address, bytes, access, end, hold);
    case VGPU_MEMORY_HOST: {
      GuestSpan span = memory.find(address, bytes, access);
      if (!span) return CUDA_ERROR_INVALID_VALUE;
      end->address = reinterpret_cast<uint64_t>(span.data);
      end->host = true;
      *hold = std::move(span.region);
      return CUDA_SUCCESS;
    }
    default:
      return CUDA_ERROR_INVALID_VALUE;
  }
}

vgpu_copy_end describe_end(const HandleTable& handles, const GuestMemory& memory, const Copy& copy,
                           const CopyEnd& end) {
  vgpu_copy_end out{};
  if (end.array) {
    out.kind = VGPU_MEMORY_ARRAY;
    out.address = handles.handle_of(end.array.get());  // 0: destroyed since
    out.x_bytes = end.x_bytes;
    out.y = end.y;
    out.z = end.z;
    return out;
  }
  out.kind = end.host ? VGPU_MEMORY_HOST : VGPU_MEMORY_DEVICE;
  out.address = end.address;
  out.pitch = end.pitch;
  out.height = end.height;
  if (!end.host) return out;
  uint64_t bytes = 0;
  const GuestSpan span = copy_extent(copy, end, &bytes) ? memory.find_pointer(end.address, bytes) : GuestSpan{};
  // The region may have been dropped since; no pointer of this process is told.
  out.address = span ? span.region->va() + static_cast<uint64_t>(span.data - span.region->host()) : 0;
  return out;
}

}  // namespace

CUresult resolve_device(const GuestMemory& memory, uint64_t address, uint64_t bytes, Access access, CopyEnd* end,
                        RegionRef* hold) {
  const Reservation& window = memory.window();
  const bool in_devices_half = window.contains(address, bytes) && address >= window.base() + VGPU_WINDOW_DEVICE_OFFSET;
  GuestSpan span;
  if (!in_devices_half) span = memory.find(address, bytes, access, true);
  // No region: if it is memory at all, then the device's, which knows best (variables lie where a driver put them).
  end->address = span ? reinterpret_cast<uint64_t>(span.data) : address;
  end->host = static_cast<bool>(span);
  *hold = std::move(span.region);
  return CUDA_SUCCESS;
}

CUresult resolve_copy(const HandleTable& handles, const GuestMemory& memory, const vgpu_copy& copy, Copy* out,
                      CopyHolds* holds) {
  out->width_bytes = copy.width_bytes;
  out->height = copy.height;
  out->depth = copy.depth;
  if (copy.width_bytes == 0 || copy.height == 0 || copy.depth == 0) return CUDA_SUCCESS;
  const CUresult result =
      resolve_end(handles, memory, copy, copy.destination, Access::kWrite, &out->destination, &holds->destination);
  if (result != CUDA_SUCCESS) return result;
  return resolve_end(handles, memory, copy, copy.source, Access::kRead, &out->source, &holds->source);
}

bool copy_extent(const Copy& copy, const CopyEnd& end, uint64_t* bytes) {
  *bytes = 0;
  if (copy.width_bytes == 0 || copy.height == 0 || copy.depth == 0) return true;
  return box_extent(copy.width_bytes, copy.height, copy.depth, end.pitch, end.height, bytes);
}

vgpu_copy describe_copy(const HandleTable& handles, const GuestMemory& memory, const Copy& copy) {
  vgpu_copy out{};
  out.destination = describe_end(handles, memory, copy, copy.destination);
  out.source = describe_end(handles, memory, copy, copy.source);
  out.width_bytes = copy.width_bytes;
  out.height = copy.height;
  out.depth = copy.depth;
  return out;
}

CUresult resolve_fill(const GuestMemory& memory, const vgpu_fill& fill, RegionRef* hold) {
  if (fill.element_bytes != 1 && fill.element_bytes != 2 && fill.element_bytes != 4) return CUDA_ERROR_INVALID_VALUE;
  if (fill.address % fill.element_bytes != 0 || fill.pitch % fill.element_bytes != 0) return CUDA_ERROR_INVALID_VALUE;
  if (fill.width == 0 || fill.height == 0) return CUDA_SUCCESS;
  uint64_t row = 0, bytes = 0;
  if (__builtin_mul_overflow(fill.width, uint64_t{fill.element_bytes}, &row) || (fill.height > 1 && fill.pitch < row) ||
      !box_extent(row, fill.height, 1, fill.pitch, 0, &bytes)) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  CopyEnd end;
  return resolve_device(memory, fill.address, bytes, Access::kWrite, &end, hold);
}

}  // namespace bandsaw::runner
