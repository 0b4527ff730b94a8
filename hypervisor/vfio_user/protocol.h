// The vfio-user wire format, host byte order (QEMU's docs/interop/vfio-user, sections named at each structure; what
// the regions, interrupts and flags mean is in linux/vfio.h).
#pragma once

#include <linux/vfio.h>

#include <cstdint>

namespace bandsaw::vfio_user {

enum Command : uint16_t {
  kVersion = 1,
  kDmaMap = 2,
  kDmaUnmap = 3,
  kDeviceGetInfo = 4,
  kDeviceGetRegionInfo = 5,
  kDeviceGetRegionIoFds = 6,
  kDeviceGetIrqInfo = 7,
  kDeviceSetIrqs = 8,
  kRegionRead = 9,
  kRegionWrite = 10,
  kDmaRead = 11,
  kDmaWrite = 12,
  kDeviceReset = 13,
  kRegionWriteMulti = 15,
  kDeviceFeature = 16,
  kMigDataRead = 17,
  kMigDataWrite = 18,
};

// "Header". `bytes` includes it.
struct Header {
  uint16_t id;
  uint16_t command;
  uint32_t bytes;
  uint32_t flags;
  uint32_t error;  // an errno, in replies with kFlagError
};
static_assert(sizeof(Header) == 16);

inline constexpr uint32_t kTypeMask = 0xf;
inline constexpr uint32_t kTypeCommand = 0;
inline constexpr uint32_t kTypeReply = 1;
inline constexpr uint32_t kFlagNoReply = 1u << 4;
inline constexpr uint32_t kFlagError = 1u << 5;

inline constexpr uint16_t kMajor = 0;
inline constexpr uint16_t kMinor = 1;
inline constexpr uint32_t kTransferMax = 1u << 20;  // bytes in one region access
inline constexpr uint32_t kFdsMax = 8;              // in one message
inline constexpr uint32_t kPayloadMax = kTransferMax + 64;

struct Version {
  uint16_t major, minor;
  // Capabilities as JSON, NUL terminated, may follow.
};

struct DmaMap {
  uint32_t argsz, flags;
  uint64_t offset, address, size;
};
static_assert(sizeof(DmaMap) == 32);
inline constexpr uint32_t kDmaReadable = 1, kDmaWritable = 2;

struct DmaUnmap {
  uint32_t argsz, flags;
  uint64_t address, size;
};
static_assert(sizeof(DmaUnmap) == 24);
inline constexpr uint32_t kUnmapAll = 2;  // VFIO_DMA_UNMAP_FLAG_ALL, as QEMU sends it

struct DeviceInfo {
  uint32_t argsz, flags, regions, irqs;
};
static_assert(sizeof(DeviceInfo) == 16);

struct RegionInfo {
  uint32_t argsz, flags, index, cap_offset;
  uint64_t size, offset;
};
static_assert(sizeof(RegionInfo) == 32);

struct IrqInfo {
  uint32_t argsz, flags, index, count;
};
static_assert(sizeof(IrqInfo) == 16);

struct IrqSet {
  uint32_t argsz, flags, index, start, count;
  // A byte per interrupt follows with VFIO_IRQ_SET_DATA_BOOL.
};
static_assert(sizeof(IrqSet) == 20);

struct RegionAccess {
  uint64_t offset;
  uint32_t region, count;
  // `count` bytes follow in write requests and read replies.
};
static_assert(sizeof(RegionAccess) == 16);

struct RegionWrite8 {
  RegionAccess access;
  uint8_t data[8];
};
static_assert(sizeof(RegionWrite8) == 24);

}  // namespace bandsaw::vfio_user
