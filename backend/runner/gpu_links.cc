#include "backend/runner/gpu_links.h"

#include <cstddef>

namespace bandsaw::runner {
namespace gpu_links {
namespace {

// As far as it is needed. Functions return 0 or an error.
using Gpu = void*;
using Count = int (*)(unsigned* count);
using ByIndex = int (*)(unsigned index, Gpu* gpu);
using Two = int (*)(Gpu gpu, unsigned* first, unsigned* second);
using Status = int (*)(Gpu gpu, Gpu other, int index, int* status);
using OfLink = int (*)(Gpu gpu, unsigned link, unsigned* value);
using Capability = int (*)(Gpu gpu, unsigned link, int which, unsigned* value);

struct PciInfo {
  char legacy[16];
  unsigned domain, bus, device, ids, subsystem;
  char text[32];
};
using Pci = int (*)(Gpu gpu, PciInfo* info);
using RemotePci = int (*)(Gpu gpu, unsigned link, PciInfo* info);

struct Field {
  unsigned id, scope;
  long long timestamp, latency_us;
  int type, error;
  union {
    unsigned value;
    unsigned long long bytes;
  };
};
using Fields = int (*)(Gpu gpu, int count, Field* fields);

constexpr int kRead = 0, kWrite = 1;             // nvmlGpuP2PCapsIndex_t
constexpr int kGood = 0;                         // NVML_P2P_STATUS_OK
constexpr int kPeerToPeer = 0;                   // NVML_NVLINK_CAP_P2P_SUPPORTED
constexpr unsigned kSwitch = 2, kUnknown = 255;  // nvmlIntNvLinkDeviceType_t
constexpr unsigned kCommonSpeed = 90;            // NVML_FI_DEV_NVLINK_SPEED_MBPS_COMMON

uint64_t address_of(const PciInfo& info) { return pci_address(info.domain, info.bus, info.device); }

class Reader {
 public:
  Reader(const NvmlLibrary& nvml, Gpu gpu) : nvml_(nvml), gpu_(gpu) {}

  GpuLinks read() {
    const auto mode = nvml_.function<Two>("nvmlDeviceGetMigMode");
    unsigned current = 0, pending = 0;
    links_.divided = mode && mode(gpu_, &current, &pending) == 0 && current != 0;
    if (links_.divided) return links_;
    read_peers();
    for (unsigned link = 0; link < VGPU_NVLINKS_MAX; ++link) read_link(link);
    if (links_.active) read_speed();
    return links_;
  }

 private:
  bool reaches(Gpu other) const {
    const auto status = nvml_.function<Status>("nvmlDeviceGetP2PStatus");
    int reads = -1, writes = -1;
    return status && status(gpu_, other, kRead, &reads) == 0 && status(gpu_, other, kWrite, &writes) == 0 &&
           reads == kGood && writes == kGood;
  }

  void read_peers() {
    const auto count_of = nvml_.function<Count>("nvmlDeviceGetCount_v2");
    const auto by_index = nvml_.function<ByIndex>("nvmlDeviceGetHandleByIndex_v2");
    const auto pci = nvml_.function<Pci>("nvmlDeviceGetPciInfo_v3");
    unsigned count = 0, found = 0;
    if (!count_of || !by_index || !pci || count_of(&count) != 0) return;
    for (unsigned i = 0; i < count && found < VGPU_PEER_GPUS_MAX; ++i) {
      Gpu other = nullptr;
      PciInfo info{};
      if (by_index(i, &other) != 0 || other == gpu_ || !reaches(other) || pci(other, &info) != 0) continue;
      links_.peers[found++] = address_of(info);
    }
  }

  void read_link(unsigned link) {
    const auto capability = nvml_.function<Capability>("nvmlDeviceGetNvLinkCapability");
    const auto state = nvml_.function<OfLink>("nvmlDeviceGetNvLinkState");
    unsigned can = 0, up = 0;
    if (!capability || !state || capability(gpu_, link, kPeerToPeer, &can) != 0 || can == 0 ||
        state(gpu_, link, &up) != 0 || up == 0) {
      return;
    }
    const auto type = nvml_.function<OfLink>("nvmlDeviceGetNvLinkRemoteDeviceType");
    unsigned kind = kUnknown;
    if (!type || type(gpu_, link, &kind) != 0) return;
    const auto remote = nvml_.function<RemotePci>("nvmlDeviceGetNvLinkRemotePciInfo_v2");
    PciInfo info{};
    if (kind != kSwitch && (!remote || remote(gpu_, link, &info) != 0)) return;
    links_.active |= 1u << link;
    if (kind == kSwitch) {
      links_.to_switch |= 1u << link;
    } else {
      links_.remotes[link] = address_of(info);
    }
    const auto version = nvml_.function<OfLink>("nvmlDeviceGetNvLinkVersion");
    if (version && links_.version == 0) version(gpu_, link, &links_.version);
  }

  void read_speed() {
    const auto fields = nvml_.function<Fields>("nvmlDeviceGetFieldValues");
    Field field{};
    field.id = kCommonSpeed;
    if (fields && fields(gpu_, 1, &field) == 0 && field.error == 0) links_.speed_mbps = field.value;
  }

  const NvmlLibrary& nvml_;
  const Gpu gpu_;
  GpuLinks links_;
};

}  // namespace
}  // namespace gpu_links

GpuLinks read_links(const NvmlLibrary& nvml, void* gpu) { return gpu_links::Reader(nvml, gpu).read(); }

}  // namespace bandsaw::runner
