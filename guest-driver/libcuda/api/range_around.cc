#include <sys/mman.h>
#include <unistd.h>

#include "guest-driver/libcuda/api/address_map.h"
#include "guest-driver/libcuda/api/stream.h"
#include "guest-driver/libcuda/core/call.h"
#include "guest-driver/libcuda/wire_client.h"

namespace bandsaw::libcuda {
namespace {

bool is_mapped_here(uint64_t address) {
  static const auto page = static_cast<uint64_t>(sysconf(_SC_PAGESIZE));
  unsigned char resident = 0;
  return mincore(reinterpret_cast<void*>(address & ~(page - 1)), 1, &resident) == 0;
}

}  // namespace

std::optional<Range> range_around(uint64_t address) {
  if (const auto known = AddressMap::get().find(address)) return known;
  const bool of_process = !gpu_of_address(address) && is_mapped_here(address);
  if (address == 0 || of_process || check_may_wait() != CUDA_SUCCESS) return std::nullopt;
  Call call;
  Range range{.kind = RangeKind::kGlobal, .context = call.context()};
  if (call.failed() || call.context() == 0 ||
      wire::variable_around(call, address, &range.base, &range.bytes) != CUDA_SUCCESS || !range.holds(address, 1)) {
    return std::nullopt;
  }
  range.id = range.base;
  return range;
}

}  // namespace bandsaw::libcuda
