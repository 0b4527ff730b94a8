// The compute channel groups of one runner, and the hardware's time slices of them.
//
// The driver believes a call by the open /dev/nvidiactl that it comes through: the runner's own serves any process that
// was handed it, and no other one does. A call takes 0.2 to 0.35 ms (driver 580.159.04), longer while the driver frees
// a context, and ever so long when the GPU hangs.
//
// Ownership: as long as the descriptor is held, the memory of the runner's contexts stays allocated. The last one to
// close it may wait for the driver to free all that. Threads: any, several at once too. Source:
// backend/control/nvidia_calls.h.
#pragma once

#include <chrono>
#include <cstdint>
#include <memory>
#include <string>

#include "backend/control/channel_groups.h"
#include "backend/vgpud/arbiter/living_groups.h"
#include "memory/base/status.h"
#include "memory/base/unique_fd.h"

namespace bandsaw {

// The time slice of one slot's runner is to have this length from now on. `check`: it was set to it before, and is only
// to be put right if somebody else has made it longer.
struct TimeSliceOrder {
  std::string vgpu;
  uint32_t slot = 0;
  uint32_t microseconds = 0;
  bool check = false;

  bool operator==(const TimeSliceOrder&) const = default;
};

// What has time slices that can be set.
class TimeSliced {
 public:
  virtual ~TimeSliced() = default;
  // ESRCH: the driver knows no such group (any more). EIO: it refuses, with the driver's own result.
  virtual Status set_time_slice(std::chrono::microseconds length) const = 0;
  // As the driver has it now; the longest, if there are several. Errors as above.
  virtual Result<std::chrono::microseconds> time_slice() const = 0;
};

class ChannelGroups final : public TimeSliced {
 public:
  // EINVAL: `descriptor` is not /dev/nvidiactl, or the list is empty or too long. It stays the caller's then.
  static Result<std::unique_ptr<ChannelGroups>> adopt(UniqueFd&& descriptor, const ChannelGroupList& list);
  ChannelGroups(const ChannelGroups&) = delete;

  // Of all groups that there still are; the first failure is returned, after all were tried.
  Status set_time_slice(std::chrono::microseconds length) const override;
  Result<std::chrono::microseconds> time_slice() const override;
  uint32_t count() const { return count_; }

 private:
  ChannelGroups(UniqueFd descriptor, const ChannelGroupList& list)
      : descriptor_(std::move(descriptor)), client_(list.client), count_(list.count), groups_(list) {}
  Status control(uint32_t group, uint32_t command, uint64_t* microseconds) const;

  const UniqueFd descriptor_;
  const uint32_t client_, count_;
  const LivingGroups groups_;
};

}  // namespace bandsaw
