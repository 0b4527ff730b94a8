// Events as the guest keeps them.
#pragma once

#include <cuda.h>

#include <cstdint>

#include "guest-driver/libcuda/api/handle_table.h"
#include "guest-driver/libcuda/core/call.h"

namespace bandsaw::libcuda {

struct EventRecord {
  uint64_t handle = 0;
  uint64_t context = 0;
  unsigned flags = 0;
};

HandleTable<EventRecord>& events();

// The error of an earlier call of this thread that had no answer, if there is one; no later call tells it.
CUresult take_late_error(Call& call);

// cuEventRecordWithFlags without its prologue.
CUresult record_event(Call& call, CUevent event, CUstream stream, unsigned flags);

}  // namespace bandsaw::libcuda
