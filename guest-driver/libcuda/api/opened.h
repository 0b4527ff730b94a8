// Memory that came from elsewhere, mapped into this process: of cuIpcOpenMemHandle, of a shared pool, of
// cuImportExternalMemory.
#pragma once

#include <cuda.h>

#include <cstdint>

#include "guest-driver/libcuda/api/address_map.h"
#include "guest-driver/libcuda/api/vmm.h"
#include "guest-driver/libcuda/core/call.h"

namespace bandsaw::libcuda {

// Where the memory lies in this process, whole.
struct OpenedMemory {
  uint64_t base = 0, bytes = 0;
};

// Maps `bytes` of memory. Nothing is left behind when it fails.
CUresult map_opened(Call& call, uint64_t memory, uint64_t bytes, OpenedMemory* opened,
                    uint32_t access = CU_MEM_ACCESS_FLAGS_PROT_READWRITE);
// Imports and maps the memory that a token names. INVALID_VALUE: the token's allocation does not lie in it.
CUresult import_opened(Call& call, const SharedMemoryToken& token, OpenedMemory* opened);
// Waits for the context's work, then unmaps.
CUresult unmap_opened(Call& call, const OpenedMemory& opened);

// For memory that the program gives back by cuMemFree: `range` is known from now on.
void note_opened(const Range& range, const OpenedMemory& opened);
// False: there is no such memory at this range's base. Else *result is what came of giving it back.
bool free_opened(Call& call, const Range& range, CUresult* result);

}  // namespace bandsaw::libcuda
