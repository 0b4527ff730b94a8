// Events of a whole context (cuCtxRecordEvent, cuCtxWaitEvent).
#pragma once

#include "guest-driver/libcuda/core/call.h"

namespace bandsaw::libcuda {

// A stream that was just made waits for the events that its context waits for. Cheap where there are none.
CUresult wait_as_context_does(Call& call, const Context* context, uint64_t stream);

}  // namespace bandsaw::libcuda
