// Streams as the guest keeps them.
#pragma once

#include <cuda.h>

#include <atomic>
#include <cstdint>
#include <map>
#include <mutex>
#include <vector>

#include "guest-driver/libcuda/api/handle_table.h"
#include "guest-driver/libcuda/core/call.h"
#include "guest-driver/libcuda/core/context.h"
#include "guest-driver/libcuda/core/thread.h"

namespace bandsaw::libcuda {

// Of launches and streams alike.
inline bool is_sync_domain(CUlaunchMemSyncDomain domain) { return domain <= CU_LAUNCH_MEM_SYNC_DOMAIN_REMOTE; }
inline bool are_sync_domains(const CUlaunchMemSyncDomainMap& map) {
  const int domains = current_gpu().info.attributes[CU_DEVICE_ATTRIBUTE_MEM_SYNC_DOMAIN_COUNT];
  return map.default_ < domains && map.remote < domains;
}

using StreamAttributes = std::map<int, CUstreamAttrValue>;  // those that the program set

struct StreamRecord {
  uint64_t handle = 0;
  uint64_t id = 0;  // cuStreamGetId
  Context* context = nullptr;
  unsigned flags = 0;
  int priority = 0;

  std::mutex mutex;
  StreamAttributes attributes;
};

HandleTable<StreamRecord>& streams();

// Gives the handle for the wire. INVALID_HANDLE: there is no such stream. Takes no lock.
inline CUresult check_stream(CUstream stream, uint64_t* wire) {
  *wire = wire_stream(stream);
  if (*wire <= VGPU_STREAM_PER_THREAD || streams().find(*wire)) return CUDA_SUCCESS;
  return CUDA_ERROR_INVALID_HANDLE;
}

// What cuStreamGetId calls the stream with this handle on the wire.
uint64_t stream_id(uint64_t wire_stream);

// The same for a call, which from then on goes to the stream's device.
inline CUresult check_stream(Call& call, CUstream stream, uint64_t* wire) {
  const CUresult result = check_stream(stream, wire);
  return result != CUDA_SUCCESS || call.route(*wire) ? result : call.status();
}

// For calls on a stream: one that the program made brings its context along where the thread has none current, as
// with NVIDIA's driver; the other streams mean nothing then. False: as Call::require_context.
bool require_context(Call& call, CUstream stream);

// How many captures this process has begun and not ended. Zero: nobody captures, and copies need not ask.
extern std::atomic<int> active_captures;

// For calls that put work on a stream: check_stream and, while anybody captures, whether the stream may take work.
// STREAM_CAPTURE_INVALIDATED, or on the legacy stream STREAM_CAPTURE_IMPLICIT, which also invalidates the captures
// concerned.
CUresult check_captured(uint64_t wire_stream);
inline CUresult check_work_stream(CUstream stream, uint64_t* wire) {
  const CUresult result = check_stream(stream, wire);
  if (result != CUDA_SUCCESS || active_captures.load(std::memory_order_relaxed) == 0) return result;
  return check_captured(*wire);
}
inline CUresult check_work_stream(Call& call, CUstream stream, uint64_t* wire) {
  const CUresult result = check_work_stream(stream, wire);
  return result != CUDA_SUCCESS || call.route(*wire) ? result : call.status();
}

// For calls that CUDA calls potentially unsafe (cuThreadExchangeStreamCaptureMode). STREAM_CAPTURE_UNSUPPORTED: a
// capture forbids them to this thread; that capture is then invalid.
CUresult check_unsafe(Call& call);
// The same for a call about an event. CAPTURED_EVENT: it belongs to a capture.
CUresult check_unsafe_for(Call& call, CUevent event);

// Makes the capture that `wire_stream` is part of invalid; returns STREAM_CAPTURE_UNSUPPORTED.
CUresult invalidate_capture(Call& call, uint64_t wire_stream);

// For calls that no stream takes while it captures: makes its capture invalid. STREAM_CAPTURE_UNSUPPORTED then.
CUresult refuse_captured(Call& call, uint64_t wire_stream);
// External event records and waits are for captures only: ILLEGAL_STATE elsewhere.
CUresult check_external(uint64_t wire_stream);

// The stream is gone, and with it a capture that began on it.
void forget_capture(uint64_t wire_stream);

// Whether work on this stream goes into a graph instead of being done. Costs a round trip while anybody captures.
CUresult is_capturing(uint64_t wire_stream, bool* capturing);

// CUDA_ERROR_NOT_PERMITTED inside a host function: a wait there could wait for the function itself.
CUresult check_may_wait();

// Starts the thread that runs the device's host functions and stream callbacks; cheap once it runs.
CUresult start_callback_thread(VirtualGpu& gpu);
// Puts a host function or stream callback (`kind`, as vgpu_callback's) on a stream, with the thread that runs it.
CUresult put_host_function(Call& call, uint64_t stream, uint64_t function, void* data, uint32_t kind);

}  // namespace bandsaw::libcuda
