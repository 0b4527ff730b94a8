// What cuGetProcAddress finds; the table is generated from calls/driver.toml.
#pragma once

#include <cuda.h>

#include <cstddef>

namespace bandsaw::libcuda {

struct ProcEntry {
  const char* name;
  int since;        // first version of the API with this symbol
  bool per_thread;  // the _ptds or _ptsz variant
  bool is_found;    // by cuGetProcAddress: implemented, or of graphics
  void* address;
};
extern const ProcEntry kProcEntries[];
extern const size_t kProcEntryCount;

// The newest symbol of that name which `version` knows; of the per-thread kind if `per_thread` and the name has one.
// nullptr, with the reason in `status`, if there is none or it is not to be found.
const ProcEntry* find_proc(const char* name, int version, bool per_thread, CUdriverProcAddressQueryResult* status);

}  // namespace bandsaw::libcuda
