// What a job asks of its virtual GPUs, as `--vgpu=memory=8G,compute=30` has it.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "backend/control/vgpu_spec.h"
#include "memory/base/status.h"

namespace bandsaw::slurm {

inline constexpr const char* kOption = "vgpu";            // of srun, sbatch, salloc
inline constexpr const char* kVariable = "BANDSAW_VGPU";  // SPANK_BANDSAW_VGPU in prologs has the request as text
inline constexpr const char* kWords = "memory=SIZE[,compute=PERCENT,copy=PERCENT,cap=PERCENT,latency-us=N,sharing=mps]";
inline constexpr uint32_t kCountMost = 16;  // virtual GPUs of one job on one node

struct Request {
  VgpuSpec each;       // memory and shares of one virtual GPU
  uint32_t count = 0;  // virtual GPUs on each node; 0: not yet known, which only slurmctld may say
};

// EINVAL: a word that is not known, is there twice or is out of its range, or no memory. `admitted`: also has count,
// as slurmctld writes it.
Result<Request> parse_request(std::string_view text, bool admitted);
// What parse_request() reads back as the same.
std::string to_text(const Request& request);

}  // namespace bandsaw::slurm
