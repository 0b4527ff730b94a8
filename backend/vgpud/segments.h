// Shared segments as an administrator has made them: whose memory each is, and which other virtual GPUs may use it.
// Kept with the registry; sessions are told, and keep the memory.
#pragma once

#include <cstdint>
#include <map>
#include <nlohmann/json_fwd.hpp>
#include <span>
#include <string>
#include <vector>

#include "backend/control/vgpu_spec.h"
#include "memory/base/status.h"

namespace bandsaw {

struct SegmentSpec {
  uint64_t id = 0;  // never used twice on this host
  std::string name;
  std::string vgpu;                      // that owns it, and is charged for it
  uint64_t bytes = 0;                    // a multiple of kSegmentUnit
  std::map<std::string, bool> grants{};  // other virtual GPUs by name; true: may write
};

inline constexpr size_t kSegmentsMost = 256;  // of a host
inline constexpr size_t kGrantsMost = 64;     // of a segment

nlohmann::json to_json(const SegmentSpec& segment);
// EINVAL: it is none.
Result<SegmentSpec> segment_from_json(const nlohmann::json& object);

// What the session of `vgpu` is told: its own, and those that it may use of virtual GPUs on its device.
nlohmann::json segments_for(const VgpuSpec& vgpu, std::span<const SegmentSpec> segments,
                            std::span<const VgpuSpec> vgpus);

}  // namespace bandsaw
