// The hardware's time slices: whose channel groups are known, and what is ordered for them.

#include <utility>

#include "backend/vgpud/arbiter/arbiter_core.h"

namespace bandsaw {

void ArbiterCore::set_channel_groups(const std::string& name, uint32_t slot, uint32_t count, Time) {
  if (Vgpu* vgpu = find(name)) vgpu->channel_groups[slot] = count;
}

void ArbiterCore::forget_channel_groups(const std::string& name, uint32_t slot, Time) {
  if (Vgpu* vgpu = find(name)) vgpu->channel_groups.erase(slot);
}

void ArbiterCore::time_slice_failed(const std::string& name, uint32_t slot, const Status& error, Time) {
  if (Vgpu* vgpu = find(name)) vgpu->failed_time_slices[slot] = error.code();
}

std::vector<TimeSliceOrder> ArbiterCore::take_time_slices() { return std::exchange(time_slice_orders_, {}); }

}  // namespace bandsaw
