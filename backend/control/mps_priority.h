// Which of the MPS virtual GPUs' kernels go first.
//
// NVIDIA's MPS has two levels of clients (CUDA_MPS_CLIENT_PRIORITY). Whenever a running block ends, blocks of clients
// of normal priority that wait go before all those of clients below normal, whatever the priorities of their streams;
// the default stream, which has no priority of its own, goes with its client. Within a client, and between clients of
// one level, the priorities that the program gave its streams hold as they are.
//
// The level is fixed when the client's process starts. Therefore every runner is below normal but those of virtual GPUs
// that go first: who is given a bound needs new programs, and nobody else does.
//
// Source: Multi-Process Service, "CUDA_MPS_CLIENT_PRIORITY" (docs.nvidia.com/deploy/mps). Measured on an H200 beside
// sgemm of 163 ms: a kernel of 20 us takes 459 us at p99, 170 ms without; the sgemm loses nothing. What more a bound
// gets: sm_thousandths() of vgpud's partitions.h.
#pragma once

#include <cstdint>
#include <string_view>

#include "memory/base/status.h"

namespace bandsaw {

enum class MpsPriority { kNormal = 0, kBelowNormal = 1 };  // the values that MPS has for them

// Of a virtual GPU's runners: with a latency bound (microseconds; 0: none), or a `priority` above 0, it goes first.
MpsPriority mps_priority(uint32_t latency_us, int32_t priority);

const char* to_text(MpsPriority priority);
// EINVAL: another word than to_text() has.
Result<MpsPriority> parse_mps_priority(std::string_view text);

}  // namespace bandsaw
