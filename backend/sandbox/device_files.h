// NVIDIA's device files: which of them one GPU needs.
#pragma once

#include <string>
#include <vector>

namespace bandsaw {

// Names below the folder of device files ("nvidiactl", "nvidia-caps/nvidia-cap1"), of all that are there.
std::vector<std::string> nvidia_files(const std::string& devices = "/dev");

// Those of them that programs on one GPU use. `gpu`: its UUID, or a MIG instance's; where the driver does not say which
// number that GPU has, those of all GPUs. `peers`: those of all GPUs in any case, because NVIDIA's driver library maps
// memory of those alone that it can open. `driver`: what the driver says of itself.
std::vector<std::string> files_of_gpu(const std::string& gpu, bool peers, const std::string& devices = "/dev",
                                      const std::string& driver = "/proc/driver/nvidia");

}  // namespace bandsaw
