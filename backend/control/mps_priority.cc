#include "backend/control/mps_priority.h"

#include <cerrno>
#include <string>

namespace bandsaw {

MpsPriority mps_priority(uint32_t latency_us, int32_t priority) {
  return latency_us > 0 || priority > 0 ? MpsPriority::kNormal : MpsPriority::kBelowNormal;
}

const char* to_text(MpsPriority priority) { return priority == MpsPriority::kNormal ? "normal" : "below-normal"; }

Result<MpsPriority> parse_mps_priority(std::string_view text) {
  for (const MpsPriority one : {MpsPriority::kNormal, MpsPriority::kBelowNormal}) {
    if (text == to_text(one)) return one;
  }
  return Status::error(EINVAL, "no MPS priority '{}'; there are normal, below-normal", std::string(text).substr(0, 64));
}

}  // namespace bandsaw
