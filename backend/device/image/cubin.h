// What a CUDA ELF ("cubin") says about its kernels. The software device cannot run machine code, but the parameter
// layouts are needed wherever a launch's arguments must be packed. Pure functions of untrusted bytes.
//
// Layout: ELF64 with machine 190; `.nv.info.<kernel>` is not documented by NVIDIA and was read from nvcc's output.
#pragma once

#include <cuda.h>

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

namespace bandsaw::image {

struct CubinKernel {
  struct Parameter {
    uint32_t offset = 0, bytes = 0;
  };
  std::string name;
  std::vector<Parameter> parameters;  // by ordinal
  uint32_t parameter_bytes = 0;       // all of them, packed
};

// 90 for sm_90; nothing if this is not a CUDA ELF.
std::optional<uint32_t> cubin_architecture(std::span<const std::byte> elf);

// Every kernel (entry point), not device functions. CUDA_ERROR_INVALID_IMAGE with the reason in `log`.
CUresult list_kernels(std::span<const std::byte> elf, std::vector<CubinKernel>* kernels, std::string* log);

}  // namespace bandsaw::image
