// Streams as the guest keeps them.
#pragma once

#include <cuda.h>

#include <atomic>
#include <cstdint>
#include <map>
#include <mutex>
#include <vector>

#include "guest-driver/libcuda/api/handle_table.h"
#include "guest-driver/libcuda/core/context.h"
#include "guest-driver/libcuda/core/thread.h"

namespace bandsaw::libcuda {

struct StreamRecord {
  uint64_t handle = 0;
  uint64_t id = 0;  // cuStreamGetId
  Context* context = nullptr;
  unsigned flags = 0;
  int priority = 0;
  std::atomic<bool> capturing{false};  // between begin and end of a capture that began on it

  std::mutex mutex;
  std::map<int, CUstreamAttrValue> attributes;  // that the program set
};

HandleTable<StreamRecord>& streams();

// The handle for the wire, after a look whether there is such a stream: INVALID_HANDLE otherwise. No lock.
inline CUresult check_stream(CUstream stream, uint64_t* wire) {
  *wire = wire_stream(stream);
  if (*wire <= VGPU_STREAM_PER_THREAD || streams().find(*wire)) return CUDA_SUCCESS;
  return CUDA_ERROR_INVALID_HANDLE;
}

// How many captures this process has begun and not ended. Zero: nobody captures, and copies need not ask.
extern std::atomic<int> active_captures;

// Whether work on this stream goes into a graph instead of being done. Costs a round trip while anybody captures.
CUresult is_capturing(uint64_t wire_stream, bool* capturing);

// Waiting inside a host function would wait for itself: CUDA_ERROR_NOT_PERMITTED there.
CUresult check_may_wait();

// Starts the thread that runs host functions and stream callbacks; cheap once it runs.
CUresult start_callback_thread();

}  // namespace bandsaw::libcuda
