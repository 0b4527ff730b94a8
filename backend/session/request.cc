#include "backend/session/request.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <iterator>
#include <type_traits>

#include "backend/control/window_bases.h"
#include "guest-driver/uapi/vgpu_ring.h"

namespace bandsaw {
namespace {

// The exact length of each request, but for the segments of the two that have some.
struct Shape {
  size_t bytes;
  bool segments;
};

Shape shape_of(uint32_t type) {
  switch (type) {
    case VGPU_CTL_CREATE_PROCESS:
      return {sizeof(vgpu_ctl_create_process), false};
    case VGPU_CTL_DESTROY_PROCESS:
    case VGPU_CTL_KICK:
    case VGPU_CTL_PING:
    case VGPU_CTL_ALL_ANNOUNCED:
    case VGPU_CTL_LEAVE_PROCESS:
      return {sizeof(vgpu_ctl_header), false};
    case VGPU_CTL_RETURN_PROCESS:
      return {sizeof(vgpu_ctl_return_process), false};
    case VGPU_CTL_ADD_RING:
    case VGPU_CTL_ADD_REGION:
      return {sizeof(vgpu_ctl_add_region), true};
    case VGPU_CTL_DROP_RING:
    case VGPU_CTL_DROP_REGION:
      return {sizeof(vgpu_ctl_drop), false};
    case VGPU_CTL_QUERY:
      return {sizeof(vgpu_ctl_query), false};
    case VGPU_CTL_PRIORITY:
      return {sizeof(vgpu_ctl_priority), false};
    default:
      return {0, false};
  }
}

template <typename T>
T read(std::span<const std::byte> bytes) {
  static_assert(std::is_trivially_copyable_v<T>);
  T value;
  std::memcpy(&value, bytes.data(), sizeof value);
  return value;
}

Status read_segments(std::span<const std::byte> tail, Request* request) {
  const uint32_t count = request->add.segments;
  if (count == 0 || count > VGPU_SEGMENTS_MAX) {
    return Status::error(EINVAL, "{} segments, allowed are 1 to {}", count, VGPU_SEGMENTS_MAX);
  }
  if (tail.size() != uint64_t{count} * sizeof(vgpu_segment)) {
    return Status::error(EINVAL, "{} segments announced, {} bytes of them sent", count, tail.size());
  }
  request->segments.resize(count);
  std::memcpy(request->segments.data(), tail.data(), tail.size());
  return {};
}

Status check_address(const Request& request) {
  const bool is_ring = request.type == VGPU_CTL_ADD_RING;
  const uint64_t va = request.add.va;
  uint64_t end = 0;
  if (va % kPageBytes || (va == 0 && !is_ring)) return Status::error(EINVAL, "address {:#x} is not a page's", va);
  if (__builtin_add_overflow(va, request.add.bytes, &end) || end > kGuestAddressEnd) {
    return Status::error(EINVAL, "{:#x} bytes at {:#x} leave the address space", request.add.bytes, va);
  }
  return {};
}

Status read_create(std::span<const std::byte> bytes, Request* request) {
  request->create = read<vgpu_ctl_create_process>(bytes);
  const uint32_t asked = request->create.schema.part, part = asked & VGPU_WINDOW_PART_MASK;
  request->taken_bases = asked >> VGPU_WINDOW_TAKEN_SHIFT;
  request->create.schema.part = static_cast<__le16>(part);
  if (request->taken_bases >= VGPU_WINDOW_TAKEN_MASK)
    return Status::error(EINVAL, "an address window that lies nowhere");
  if (part < VGPU_WINDOW_PARTS) return {};
  return Status::error(EINVAL, "the address window has {} parts, no part {}", VGPU_WINDOW_PARTS, part);
}

Status read_return(std::span<const std::byte> bytes, Request* request) {
  const auto asked = read<vgpu_ctl_return_process>(bytes);
  std::copy_n(asked.key, request->key.size(), request->key.begin());
  request->window_base = asked.window_base;
  if (request->key == ReturnKey{}) return Status::error(EINVAL, "a process that comes back needs its key");
  if (bit_of_base(request->window_base) != 0) return read_create(bytes, request);
  return Status::error(EINVAL, "no address window begins at {:#x}", request->window_base);
}

}  // namespace

Result<Request> parse_request(std::span<const std::byte> bytes) {
  if (bytes.size() < sizeof(vgpu_ctl_header)) return Status::error(EINVAL, "request of {} bytes", bytes.size());
  const auto header = read<vgpu_ctl_header>(bytes);
  const Shape shape = shape_of(header.type);
  if (shape.bytes == 0) return Status::error(EINVAL, "unknown request type {}", uint32_t{header.type});
  if (bytes.size() < shape.bytes || (!shape.segments && bytes.size() != shape.bytes)) {
    return Status::error(EINVAL, "request type {} of {} bytes instead of {}", uint32_t{header.type}, bytes.size(),
                         shape.bytes);
  }
  Request request;
  request.type = static_cast<vgpu_ctl_type>(header.type);
  request.process = header.process;
  if (request.type == VGPU_CTL_CREATE_PROCESS) {
    if (Status status = read_create(bytes, &request); !status.ok()) return status;
  }
  if (request.type == VGPU_CTL_RETURN_PROCESS) {
    if (Status status = read_return(bytes, &request); !status.ok()) return status;
  }
  if (request.type == VGPU_CTL_DROP_RING || request.type == VGPU_CTL_DROP_REGION) {
    request.drop_id = read<vgpu_ctl_drop>(bytes).id;
  }
  if (request.type == VGPU_CTL_QUERY) request.query = read<vgpu_ctl_query>(bytes);
  if (request.type == VGPU_CTL_PRIORITY) {
    request.nice = static_cast<int32_t>(read<vgpu_ctl_priority>(bytes).nice);
    if (request.nice < kNiceLeast || request.nice > kNiceMost) {
      return Status::error(EINVAL, "nice values go from {} to {}, not {}", kNiceLeast, kNiceMost, request.nice);
    }
  }
  if (shape.segments) {
    request.add = read<vgpu_ctl_add_region>(bytes);
    if (Status status = read_segments(bytes.subspan(shape.bytes), &request); !status.ok()) return status;
  }
  return request;
}

Status check_mapping(const Request& request) {
  const bool is_ring = request.type == VGPU_CTL_ADD_RING;
  const vgpu_ctl_add_region& add = request.add;
  const uint32_t known = is_ring ? 0 : VGPU_REGION_DEVICE_VISIBLE | VGPU_REGION_READ_ONLY | VGPU_REGION_OF_FILE;
  if (add.flags & ~known) return Status::error(EINVAL, "unknown flags {:#x}", uint32_t{add.flags});
  if (is_ring && add.bytes != VGPU_RING_BYTES) {
    return Status::error(EINVAL, "a ring has {} bytes, not {}", VGPU_RING_BYTES, uint64_t{add.bytes});
  }
  if (Status status = check_address(request); !status.ok()) return status;
  uint64_t sum = 0;
  for (const vgpu_segment& segment : request.segments) {
    if (segment.bytes == 0 || segment.bytes % kPageBytes || segment.address % kPageBytes) {
      return Status::error(EINVAL, "segment {:#x}+{:#x} is not made of pages", uint64_t{segment.address},
                           uint64_t{segment.bytes});
    }
    uint64_t end = 0;
    if (__builtin_add_overflow(uint64_t{segment.address}, uint64_t{segment.bytes}, &end) ||
        __builtin_add_overflow(sum, uint64_t{segment.bytes}, &sum)) {
      return Status::error(EINVAL, "segment lengths overflow");
    }
  }
  if (sum != add.bytes) {
    return Status::error(EINVAL, "segments sum to {:#x}, {:#x} announced", sum, uint64_t{add.bytes});
  }
  return {};
}

std::string printable(std::span<const unsigned char> bytes) {
  const auto end = std::find(bytes.begin(), bytes.end(), 0);
  std::string text;
  std::transform(bytes.begin(), end, std::back_inserter(text),
                 [](unsigned char c) { return c >= 0x20 && c < 0x7f ? static_cast<char>(c) : '?'; });
  return text;
}

}  // namespace bandsaw
