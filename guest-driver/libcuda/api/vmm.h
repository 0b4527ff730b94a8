// Physical memory as the guest keeps it, and how it is handed to other processes.
#pragma once

#include <cuda.h>

#include <cstdint>
#include <optional>

#include "guest-driver/libcuda/api/address_map.h"
#include "guest-driver/libcuda/core/call.h"
#include "guest-driver/libcuda/core/device.h"
#include "guest-driver/uapi/vgpu_wire.h"

namespace bandsaw::libcuda {

// Whether the device lets other processes have its memory at all.
inline bool can_share_memory() {
  return device_attribute(CU_DEVICE_ATTRIBUTE_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR_SUPPORTED) != 0;
}

// Takes note of memory that the host has made, as cuMemCreate does. The caller has one reference.
CUresult adopt_memory(uint64_t handle, const CUmemAllocationProp& prop);
bool is_memory(uint64_t handle);
// Another handle for the program to the same memory.
bool retain_memory(uint64_t handle);
struct Reservation {
  uint64_t base = 0, bytes = 0;
};
// The addresses of a device, given out by one cuMemAddressReserve, that hold this one.
std::optional<Reservation> reservation_around(uint64_t address);
// Whether that device, which does not have the memory of this mapping, may access it.
bool is_mapped_on(const VirtualGpu& gpu, const Range& range);

// What a program passes on when it shares memory: the content of a CUipcMemHandle, or of a shareable descriptor's file.
struct SharedMemoryToken {
  static constexpr uint64_t kMagic = 0x316d656d77617362;  // "bsawmem1"
  uint64_t magic = kMagic;
  vgpu_exchange_key key{};
  uint64_t bytes = 0;               // of the memory
  uint64_t offset = 0, length = 0;  // the allocation in it
};
static_assert(sizeof(SharedMemoryToken) <= CU_IPC_HANDLE_SIZE);

}  // namespace bandsaw::libcuda
