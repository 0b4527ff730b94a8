// The tables of functions behind cuGetExportTable that the CUDA runtime, cuBLAS and cuFFT ask for. Undocumented: slots
// and meanings were found by running those libraries. Slots nobody was seen to call say so: see private_table.h.
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

// Loads an image as the runtime's old interface asks: a module, but its __managed__ variables are the program's own
// memory as in a library. In api/module.cc.
CUresult load_managed_module(CUmodule* module, const void* image);

}  // namespace bandsaw::libcuda
