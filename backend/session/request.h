// A control request, taken apart and checked as far as it can be without knowing the process it is about.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "guest-driver/uapi/vgpu_control.h"
#include "memory/base/status.h"

namespace bandsaw {

inline constexpr uint64_t kPageBytes = 4096;
constexpr uint64_t round_to_pages(uint64_t bytes) { return (bytes + kPageBytes - 1) / kPageBytes * kPageBytes; }
inline constexpr int32_t kNiceLeast = -20, kNiceMost = 19;
inline constexpr uint64_t kGuestAddressEnd = uint64_t{1} << 56;  // user half of x86-64 with five-level tables

// By which a guest process that comes back is known. Who says it gets what the process had.
using ReturnKey = std::array<uint8_t, VGPU_RETURN_KEY_BYTES>;

// Only the members that `type` names are filled.
struct Request {
  vgpu_ctl_type type{};
  uint32_t process = 0;
  vgpu_ctl_create_process create{};  // of RETURN_PROCESS too
  uint32_t taken_bases = 0;          // where its address window cannot lie, as VGPU_WINDOW_TAKEN_MASK
  ReturnKey key{};                   // of RETURN_PROCESS, not zeros
  uint64_t window_base = 0;          // the same
  vgpu_ctl_add_region add{};
  std::vector<vgpu_segment> segments;
  uint32_t drop_id = 0;
  vgpu_ctl_query query{};
  int32_t nice = 0;
};

// `bytes` must be a private copy. EINVAL says what is wrong.
Result<Request> parse_request(std::span<const std::byte> bytes);

// Checks shape and sums of an ADD_RING or ADD_REGION: lengths, alignment, overflow, flags, addresses.
Status check_mapping(const Request& request);

// Printable text of a guest's bytes up to the first NUL; anything else becomes '?'.
std::string printable(std::span<const unsigned char> bytes);

}  // namespace bandsaw
