#include "backend/vgpud/arbiter/channel_groups.h"

#include <sys/stat.h>
#include <sys/sysmacros.h>

#include <algorithm>

#include "backend/control/nvidia_calls.h"

namespace bandsaw {

Result<std::unique_ptr<ChannelGroups>> ChannelGroups::adopt(UniqueFd&& descriptor, const ChannelGroupList& list) {
  if (list.count == 0 || list.count > kChannelGroupsMax) return Status::error(EINVAL, "{} channel groups", list.count);
  struct stat info{};
  if (::fstat(descriptor.get(), &info) != 0) return Status::system("a runner's descriptor of the driver");
  if (!S_ISCHR(info.st_mode) || info.st_rdev != makedev(nvidia::kMajor, nvidia::kControlMinor))
    return Status::error(EINVAL, "a runner's descriptor is not /dev/nvidiactl");
  return std::unique_ptr<ChannelGroups>(new ChannelGroups(std::move(descriptor), list));
}

Status ChannelGroups::control(uint32_t group, uint32_t command, uint64_t* microseconds) const {
  nvidia::TimeSliceParameters parameters{*microseconds};
  nvidia::ControlCall call{};
  call.client = client_;
  call.object = group;
  call.command = command;
  call.parameters = reinterpret_cast<uint64_t>(&parameters);
  call.parameters_bytes = sizeof parameters;
  int done;
  do {
    done = ::ioctl(descriptor_.get(), nvidia::request<nvidia::ControlCall>(nvidia::kControl), &call);
  } while (done < 0 && errno == EINTR);
  if (done < 0) return Status::system("control {:#x} of channel group {:#x}", command, group);
  const bool gone = call.result == nvidia::kInvalidClient || call.result == nvidia::kInvalidObject ||
                    call.result == nvidia::kObjectNotFound;
  if (call.result != 0) {
    return Status::error(gone ? ESRCH : EIO, "control {:#x} of channel group {:#x}: the driver's result is {:#x}",
                         command, group, call.result);
  }
  *microseconds = parameters.microseconds;
  return {};
}

Status ChannelGroups::set_time_slice(std::chrono::microseconds length) const {
  return groups_.for_each([&](uint32_t group) {
    auto microseconds = static_cast<uint64_t>(std::max<int64_t>(1, length.count()));
    return control(group, nvidia::kSetTimeSlice, &microseconds);
  });
}

Result<std::chrono::microseconds> ChannelGroups::time_slice() const {
  uint64_t longest = 0;
  Status status = groups_.for_each([&](uint32_t group) {
    uint64_t microseconds = 0;
    Status read = control(group, nvidia::kGetTimeSlice, &microseconds);
    longest = std::max(longest, microseconds);
    return read;
  });
  if (!status.ok()) return status;
  return std::chrono::microseconds(longest);
}

}  // namespace bandsaw
