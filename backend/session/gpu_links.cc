#include "backend/session/gpu_links.h"

namespace bandsaw {
namespace {

constexpr uint64_t kFnvBasis = 0xcbf29ce484222325ull, kFnvPrime = 0x100000001b3ull;
constexpr uint64_t kSoftware = ~0ull;  // no PCI address

// The place of `pci_address` among the peers, from 1 on; 0: it is none.
uint8_t place_of(const GpuLinks& links, uint64_t pci_address) {
  for (unsigned i = 0; i < VGPU_PEER_GPUS_MAX; ++i) {
    if (links.peers[i] == pci_address) return static_cast<uint8_t>(i + 1);
  }
  return 0;
}

}  // namespace

uint32_t physical_number(std::string_view host, uint64_t pci_address) {
  uint64_t hash = kFnvBasis;
  for (const char c : host) hash = (hash ^ static_cast<uint8_t>(c)) * kFnvPrime;
  for (int shift = 0; shift < 64; shift += 8) hash = (hash ^ (pci_address >> shift & 0xff)) * kFnvPrime;
  const auto number = static_cast<uint32_t>(hash ^ hash >> 32);
  return number ? number : 1;
}

vgpu_answer_links links_of_gpu(std::string_view host, uint64_t own, const GpuLinks& links) {
  vgpu_answer_links answer{};
  if (links.divided) return answer;
  answer.physical = physical_number(host, own);
  for (unsigned i = 0; i < VGPU_PEER_GPUS_MAX && links.peers[i]; ++i) {
    answer.peers[i] = physical_number(host, links.peers[i]);
  }
  if (!answer.peers[0]) return answer;
  uint32_t active = 0;
  for (unsigned link = 0; link < VGPU_NVLINKS_MAX; ++link) {
    const uint32_t bit = 1u << link;
    if (!(links.active & bit)) continue;
    if (!(links.to_switch & bit)) answer.remotes[link] = place_of(links, links.remotes[link]);
    if (links.to_switch & bit || answer.remotes[link]) active |= bit;
  }
  answer.active = active;
  answer.to_switch = links.to_switch & active;
  if (active) {
    answer.version = links.version;
    answer.speed_mbps = links.speed_mbps;
  }
  return answer;
}

vgpu_answer_links links_of_software(std::string_view host) {
  vgpu_answer_links answer{};
  answer.physical = physical_number(host, kSoftware);
  return answer;
}

}  // namespace bandsaw
