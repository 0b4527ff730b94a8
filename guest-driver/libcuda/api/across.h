// Work that concerns several devices. Each has a runner of its own. What one reaches of another's memory (peer.h) it
// copies itself; the rest moves through host memory in pieces. The calling thread waits for that, also in asynchronous
// calls: work that stood in a stream and waited for another device would keep its turn on the engine, for which the
// other may wait. A stream that waits for another device's event does so in its runner, before its work has a turn.
#pragma once

#include <cuda.h>

#include <cstdint>
#include <functional>

#include "guest-driver/libcuda/api/transfer.h"
#include "guest-driver/libcuda/core/call.h"

namespace bandsaw::libcuda {

// `stream`, of the call's device, gets its next work after an event of another one (across_wait.cc). The caller does
// not wait, unless the host is of an older release.
CUresult wait_across(Call& call, uint64_t stream, uint64_t event);
// Whether work of several devices may be put on the stream: not while it captures.
CUresult check_across(uint64_t stream);

// Does work of another device in the order of `stream`, which is of the call's: `work` gets a call to that device and
// the stream there.
using WorkThere = std::function<CUresult(Call& there, uint64_t stream)>;
CUresult do_across(Call& call, uint64_t stream, VirtualGpu& gpu, const WorkThere& work);

// Whether an end of the copy is memory that the call's device does not reach. If so, it is done, with this result.
bool transfer_across(Call& call, const vgpu_copy& copy, Side destination, Side source, uint64_t stream,
                     CUresult* result);

}  // namespace bandsaw::libcuda
