#include "guest-driver/libcuda/api/transfer.h"

#include <cstring>
#include <optional>

#include "guest-driver/libcuda/api/across.h"
#include "guest-driver/libcuda/api/address_map.h"
#include "guest-driver/libcuda/api/array.h"
#include "guest-driver/libcuda/api/graph_copy.h"
#include "guest-driver/libcuda/api/managed_space.h"
#include "guest-driver/libcuda/api/staging.h"
#include "guest-driver/libcuda/api/stream.h"
#include "guest-driver/libcuda/core/process.h"
#include "guest-driver/libcuda/wire_client.h"

namespace bandsaw::libcuda {
namespace {

// Computes the bytes from an end's first byte to its last. False: the sum overflows.
bool span_of(const Extent& extent, const vgpu_copy_end& end, uint64_t* span) {
  uint64_t rows = 0, planes = 0, plane = 0;
  return !__builtin_mul_overflow(extent.height - 1, end.pitch, &rows) &&
         !__builtin_mul_overflow(end.pitch, end.height, &plane) &&
         !__builtin_mul_overflow(extent.depth - 1, plane, &planes) && !__builtin_add_overflow(rows, planes, span) &&
         !__builtin_add_overflow(*span, extent.width_bytes, span);
}

bool fold_offsets(vgpu_copy_end* end) {
  uint64_t rows = 0, offset = 0;
  const bool fits =
      !__builtin_mul_overflow(end->z, end->height, &rows) && !__builtin_add_overflow(rows, end->y, &rows) &&
      !__builtin_mul_overflow(rows, end->pitch, &offset) && !__builtin_add_overflow(offset, end->x_bytes, &offset) &&
      !__builtin_add_overflow(end->address, offset, &end->address);
  end->x_bytes = end->y = end->z = 0;
  return fits;
}

// Makes one long row of rows that follow each other without a gap on both sides.
void flatten(vgpu_copy* copy) {
  auto& [to, from, width, height, depth] = *copy;
  if (to.kind == VGPU_MEMORY_ARRAY || from.kind == VGPU_MEMORY_ARRAY) return;
  if (height > 1 && to.pitch == width && from.pitch == width) {
    const bool planes = depth == 1 || (to.height == height && from.height == height);
    if (planes) {
      width *= height * depth;
      height = depth = 1;
    }
  }
}

// A copy whose two ends the runner can reach.
CUresult direct_copy(Call& call, const vgpu_copy& copy, uint64_t stream, bool wait) {
  if (!wait) return wire::copy(call, copy, stream, vgpu_done{});
  CUresult result = check_may_wait();
  if (result != CUDA_SUCCESS) return result;
  Bounce completion;
  result = call.completion(&completion);
  const vgpu_done awaited{completion.done.slot | VGPU_DONE_AWAITED, completion.done.token};
  if (result == CUDA_SUCCESS) result = wire::copy(call, copy, stream, awaited);
  if (result != CUDA_SUCCESS) return result;
  call.bounce_used(completion);
  return call.wait_done(completion);
}

// A copy between two ranges of the program's own memory, in stream order.
CUresult host_copy(Call& call, const vgpu_copy& copy, uint64_t stream) {
  CUresult result = check_may_wait();
  if (result == CUDA_SUCCESS) result = wire::stream_synchronize(call, stream);
  if (result != CUDA_SUCCESS) return result;
  const auto& [to, from, width, height, depth] = copy;
  for (uint64_t z = 0; z < depth; ++z) {
    for (uint64_t y = 0; y < height; ++y) {
      std::memmove(reinterpret_cast<void*>(to.address + (z * to.height + y) * to.pitch),
                   reinterpret_cast<const void*>(from.address + (z * from.height + y) * from.pitch), width);
    }
  }
  return CUDA_SUCCESS;
}

CUresult pageable_copy(Call& call, const vgpu_copy& copy, bool to_program, uint64_t stream, bool judged) {
  const bool array = (to_program ? copy.source : copy.destination).kind == VGPU_MEMORY_ARRAY;
  const bool small = !array && copy.height == 1 && copy.depth == 1 && copy.width_bytes <= VGPU_INLINE_BYTES_MAX;
  if (to_program) {
    const CUresult result = check_may_wait();
    if (result != CUDA_SUCCESS) return result;
    return small ? wire::copy_out(call, copy.source.address, copy.width_bytes, stream,
                                  BytesOut(reinterpret_cast<void*>(copy.destination.address), copy.width_bytes))
                 : copy_to_program(call, copy, stream, judged);
  }
  const auto* const data = reinterpret_cast<const std::byte*>(copy.source.address);
  return small && !judged ? wire::copy_in(call, copy.destination.address, stream, {data, copy.width_bytes})
                          : copy_from_program(call, copy, stream, judged);
}

// Whether the address lies in a device's part of the window, where nobody else allocates.
bool in_device_window(uint64_t address) { return gpu_of_address(address) != nullptr; }

}  // namespace

CUresult resolve_end(const Extent& extent, Side side, vgpu_copy_end* end, Place* place) {
  if (side == Side::kArray) {
    end->kind = VGPU_MEMORY_ARRAY;
    *place = Place::kDevice;
    return check_array_box(*end, extent);
  }
  uint64_t span = 0;
  if (!fold_offsets(end) || !span_of(extent, *end, &span) || !end->address) return CUDA_ERROR_INVALID_VALUE;
  const auto range = AddressMap::get().find(end->address);
  if (!range) {
    const bool device = side == Side::kDevice || in_device_window(end->address);
    *place = device ? Place::kUnknown : Place::kPageable;
  } else {
    if (!AddressMap::get().covers(*range, end->address, span)) return CUDA_ERROR_INVALID_VALUE;
    const bool host = range->kind == RangeKind::kHost || range->kind == RangeKind::kRegistered;
    *place = range->in_pieces                     ? Place::kPieces
             : host                               ? Place::kShared
             : range->kind == RangeKind::kManaged ? Place::kManaged
                                                  : Place::kDevice;
  }
  const bool device = *place != Place::kShared && !is_pageable(*place);
  end->kind = device ? VGPU_MEMORY_DEVICE : VGPU_MEMORY_HOST;
  return CUDA_SUCCESS;
}

CUresult transfer(Call& call, vgpu_copy copy, Side destination, Side source, uint64_t stream, bool wait) {
  if (!copy.width_bytes || !copy.height || !copy.depth) return CUDA_SUCCESS;
  if (!call.route(stream)) return call.status();
  CUresult across = CUDA_SUCCESS;
  if (gpu_count() > 1 && transfer_across(call, copy, destination, source, stream, &across)) return across;
  const vgpu_copy asked = copy;
  const Extent extent{copy.width_bytes, copy.height, copy.depth};
  Place to, from;
  CUresult result = resolve_end(extent, destination, &copy.destination, &to);
  if (result == CUDA_SUCCESS) result = resolve_end(extent, source, &copy.source, &from);
  if (result != CUDA_SUCCESS) return result;
  std::optional<DeviceWork> work;
  if (to == Place::kManaged || from == Place::kManaged) {
    const auto reached = [&](const vgpu_copy_end& end, Place place, bool reads) {
      ManagedSpan span{end.address, 0, reads};
      if (place != Place::kManaged || !span_of(extent, end, &span.bytes)) span.address = 0;
      return span;
    };
    // What is only read first: where the two meet, it is written.
    work.emplace(call, stream,
                 std::initializer_list{reached(copy.source, from, true), reached(copy.destination, to, false)});
    if (work->status() != CUDA_SUCCESS) return work->status();
  }
  const bool judged = to == Place::kUnknown || from == Place::kUnknown;
  if (!is_pageable(to) && !is_pageable(from)) {
    return direct_copy(call, copy, stream, judged || (wait && (to != Place::kDevice || from != Place::kDevice)));
  }
  bool capturing = false;
  result = is_capturing(stream, &capturing);
  if (result != CUDA_SUCCESS) return result;
  if (capturing) return capture_pageable_copy(call, asked, destination, source, stream);
  flatten(&copy);
  if (is_pageable(to) && is_pageable(from)) return host_copy(call, copy, stream);
  if (from == Place::kPieces) result = wire::stream_synchronize(call, stream);  // kernels write there
  if (result != CUDA_SUCCESS) return result;
  result = pageable_copy(call, copy, is_pageable(to), stream, judged);
  // A copy from pageable memory may return once the source has been read. But the program can read managed memory, so
  // there the bytes must have arrived.
  if (result == CUDA_SUCCESS && wait && to == Place::kManaged) result = wire::stream_synchronize(call, stream);
  return result;
}

vgpu_copy linear_copy(uint64_t destination, uint64_t source, uint64_t bytes) {
  vgpu_copy copy{};
  copy.destination.address = destination;
  copy.source.address = source;
  copy.width_bytes = bytes;
  copy.height = copy.depth = 1;
  return copy;
}

}  // namespace bandsaw::libcuda
