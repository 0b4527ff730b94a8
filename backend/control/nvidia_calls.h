// The calls of NVIDIA's kernel driver that runners watch and that vgpud makes: ioctls of /dev/nvidiactl with magic 'F'.
// Sources: the published kernel modules (NVIDIA/open-gpu-kernel-modules, nvos.h, ctrl/ctrla06c.h, class/cla06c.h);
// measured with driver 580.159.04. A driver whose structures have other sizes is not understood, and left alone.
#pragma once

#include <sys/ioctl.h>

#include <cstdint>

namespace bandsaw::nvidia {

// The device number of /dev/nvidiactl.
inline constexpr unsigned kMajor = 195, kControlMinor = 255;

inline constexpr unsigned kMagic = 'F';
inline constexpr unsigned kFree = 0x29, kControl = 0x2a, kAlloc = 0x2b;

inline constexpr uint32_t kChannelGroupClass = 0xa06c;
// Engines that run graphics and compute: GR0 and, of a GPU cut into instances, its siblings.
inline constexpr uint32_t kFirstComputeEngine = 1, kLastComputeEngine = 8;

inline constexpr uint32_t kSetTimeSlice = 0xa06c0103, kGetTimeSlice = 0xa06c0104;
// Results that mean that there is no such client or group (any more).
inline constexpr uint32_t kInvalidClient = 0x23, kInvalidObject = 0x33, kObjectNotFound = 0x57;

struct AllocCall {
  uint32_t client, parent, object, object_class;
  uint64_t parameters;  // an address; what is there depends on the class
  uint32_t parameters_bytes;
  uint32_t result;
};
// The other form of the same call; its size tells them apart.
struct AllocCallWithRights {
  uint32_t client, parent, object, object_class;
  uint64_t parameters;
  uint64_t rights;  // an address
  uint32_t parameters_bytes;
  uint32_t flags;
  uint32_t result;
};
struct FreeCall {
  uint32_t client, parent, object;
  uint32_t result;
};
struct ControlCall {
  uint32_t client, object;
  uint32_t command;
  uint32_t flags;
  uint64_t parameters;  // an address
  uint32_t parameters_bytes;
  uint32_t result;
};
static_assert(sizeof(AllocCall) == 32 && sizeof(AllocCallWithRights) == 48);
static_assert(sizeof(FreeCall) == 16 && sizeof(ControlCall) == 32);

// How the parameters of a channel group begin.
struct ChannelGroupParameters {
  uint32_t error_object, ecc_error_object, address_space;
  uint32_t engine;
};
struct TimeSliceParameters {
  uint64_t microseconds;
};

template <typename Call>
constexpr uint32_t request(unsigned number) {
  return _IOC(_IOC_READ | _IOC_WRITE, kMagic, number, sizeof(Call));
}

}  // namespace bandsaw::nvidia
