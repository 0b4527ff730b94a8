// The tables of functions behind cuGetExportTable that the CUDA runtime, cuBLAS and cuFFT ask for. Undocumented: slots
// and meanings were found by running those libraries. Slots nobody was seen to call return CUDA_ERROR_NOT_SUPPORTED.
#pragma once

#include <cuda.h>

#include <cstdint>

namespace bandsaw::libcuda {

// Addresses that the integrity answer covers.
struct IntegrityAddresses {
  const void *cudart_table, *integrity_table, *check_function;
};

// The answer to TOOLS_INTEGRITY_CHECK: see integrity.cc.
CUresult answer_integrity(uint32_t version, uint64_t unix_seconds, const IntegrityAddresses& addresses,
                          uint64_t out[2]);

}  // namespace bandsaw::libcuda
