// What `bandsaw-runner --sensors` writes to its session, again and again: what a GPU measures, and which other GPUs of
// this host its kernels reach, and how. The session turns PCI addresses, which are the host's alone, into numbers.
#pragma once

#include <cstdint>

#include "guest-driver/uapi/vgpu_control.h"

namespace bandsaw {

// One number for a PCI address, function 0; 0 is none.
constexpr uint64_t pci_address(uint32_t domain, uint32_t bus, uint32_t device) {
  return static_cast<uint64_t>(domain) << 16 | (bus & 0xff) << 8 | (device & 0xff);
}

struct GpuLinks {
  uint32_t divided = 0;                // 1: into MIG instances, which reach nothing and have no links
  uint32_t active = 0, to_switch = 0;  // as of vgpu_answer_links, the following too
  uint32_t version = 0, speed_mbps = 0;
  uint32_t reserved = 0;
  uint64_t remotes[VGPU_NVLINKS_MAX] = {};  // what a link that ends at no switch leads to
  uint64_t peers[VGPU_PEER_GPUS_MAX] = {};  // GPUs whose memory this one's kernels read and write
};

struct GpuReport {
  vgpu_answer_sensors sensors{};
  GpuLinks links;
};

}  // namespace bandsaw
