// Stream capture.
#include <algorithm>
#include <mutex>

#include "guest-driver/libcuda/api/freed_memory.h"
#include "guest-driver/libcuda/api/graph.h"
#include "guest-driver/libcuda/api/handles.h"
#include "guest-driver/libcuda/api/stream.h"
#include "guest-driver/libcuda/core/call.h"
#include "guest-driver/libcuda/core/log.h"
#include "guest-driver/libcuda/wire_client.h"

namespace bandsaw::libcuda {

constinit std::atomic<int> active_captures{0};

namespace {

// Captures that this process has begun and not ended.
struct Begun {
  uint64_t stream = 0;
  const ThreadState* thread = nullptr;  // which also tells per-thread default streams apart
  CUstreamCaptureMode mode{};
};

struct Captures {
  std::mutex mutex;
  std::vector<Begun> list;

  auto find(uint64_t stream) {
    return std::find_if(list.begin(), list.end(), [stream](const Begun& one) {
      return one.stream == stream && (stream != VGPU_STREAM_PER_THREAD || one.thread == &this_thread());
    });
  }
};

Captures& captures() {
  static Captures& all = *new Captures;
  return all;
}

// Tells the host that a capture is invalid: synchronising a capturing stream is an error that invalidates its capture.
void spoil(Call& call, const std::vector<uint64_t>& streams) {
  for (const uint64_t stream : streams) wire::stream_synchronize(call, stream);
}

std::vector<uint64_t> captures_where(bool (*concerned)(const Begun&)) {
  Captures& all = captures();
  std::lock_guard lock(all.mutex);
  std::vector<uint64_t> found;
  for (const Begun& one : all.list) {
    if (concerned(one)) found.push_back(one.stream);
  }
  return found;
}

CUresult begin(CUstream stream, CUgraph graph, const CUgraphNode* dependencies, size_t count,
               CUstreamCaptureMode mode) {
  Call call;
  if (!require_context(call, stream)) return call.status();
  if (mode < CU_STREAM_CAPTURE_MODE_GLOBAL || mode > CU_STREAM_CAPTURE_MODE_RELAXED) return CUDA_ERROR_INVALID_VALUE;
  uint64_t on = 0;
  CUresult result = check_stream(call, stream, &on);
  if (result != CUDA_SUCCESS) return result;
  if (on <= VGPU_STREAM_LEGACY) {
    result = check_work_stream(stream, &on);
    return result != CUDA_SUCCESS ? result : CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
  }
  // Counted first: a copy on another thread must not miss a capture that the host has begun.
  active_captures.fetch_add(1);
  give_back_freed();
  result = wire::capture_begin(call, on, mode, to_wire(graph), as_bytes(dependencies, count));
  if (result != CUDA_SUCCESS) {
    active_captures.fetch_sub(1);
    return result;
  }
  Captures& all = captures();
  std::lock_guard lock(all.mutex);
  all.list.push_back({on, &this_thread(), mode});
  return CUDA_SUCCESS;
}

struct Capture {
  vgpu_capture_info info{};
  std::vector<std::byte> dependencies;
};

CUresult ask(CUstream stream, Capture* capture) {
  Call call;
  if (!require_context(call, stream)) return call.status();
  uint64_t on = 0;
  const CUresult result = check_stream(call, stream, &on);
  if (result != CUDA_SUCCESS) return result;
  if (active_captures.load(std::memory_order_relaxed) == 0) return CUDA_SUCCESS;  // NONE
  return wire::capture_info(call, on, &capture->info, &capture->dependencies);
}

// What cuStreamGetCaptureInfo hands out lives until the thread asks again.
CUresult get_info(CUstream stream, CUstreamCaptureStatus* status, cuuint64_t* id, CUgraph* graph,
                  const CUgraphNode** dependencies, size_t* count) {
  if (!status) return CUDA_ERROR_INVALID_VALUE;
  Capture capture;
  const CUresult result = ask(stream, &capture);
  if (result != CUDA_SUCCESS) return result;
  *status = static_cast<CUstreamCaptureStatus>(capture.info.status);
  if (*status != CU_STREAM_CAPTURE_STATUS_ACTIVE) return CUDA_SUCCESS;
  // The program may ask the graph for its nodes, and add to it, while the capture goes on.
  if (!adopt_graph(capture.info.graph)) return CUDA_ERROR_UNKNOWN;
  static thread_local std::vector<std::byte>* const kept = new std::vector<std::byte>;
  *kept = std::move(capture.dependencies);
  if (id) *id = capture.info.id;
  if (graph) *graph = from_wire<CUgraph>(capture.info.graph);
  if (dependencies) *dependencies = reinterpret_cast<const CUgraphNode*>(kept->data());
  if (count) *count = kept->size() / sizeof(CUgraphNode);
  return CUDA_SUCCESS;
}

CUresult update(CUstream stream, CUgraphNode* dependencies, size_t count, unsigned flags) {
  Call call;
  if (!require_context(call, stream)) return call.status();
  if ((count && !dependencies) || flags > CU_STREAM_SET_CAPTURE_DEPENDENCIES) return CUDA_ERROR_INVALID_VALUE;
  uint64_t on = 0;
  const CUresult result = check_stream(call, stream, &on);
  if (result != CUDA_SUCCESS) return result;
  return wire::capture_update(call, on, flags, as_bytes(dependencies, count));
}

CUresult ask_host(Call& call, uint64_t wire_stream, vgpu_capture_info* info) {
  if (!require_context(call, from_wire<CUstream>(wire_stream))) return call.status();
  return wire::capture_info(call, wire_stream, info, nullptr);
}

// Only a capture of mode RELAXED may end on another thread than the one that began it.
CUresult check_thread(uint64_t stream) {
  Captures& all = captures();
  std::lock_guard lock(all.mutex);
  const auto found = all.find(stream);
  if (found == all.list.end() || found->mode == CU_STREAM_CAPTURE_MODE_RELAXED) return CUDA_SUCCESS;
  return found->thread == &this_thread() ? CUDA_SUCCESS : CUDA_ERROR_STREAM_CAPTURE_WRONG_THREAD;
}

}  // namespace

void forget_capture(uint64_t wire_stream) {
  Captures& all = captures();
  std::lock_guard lock(all.mutex);
  const auto found = all.find(wire_stream);
  if (found == all.list.end()) return;
  all.list.erase(found);
  active_captures.fetch_sub(1);
}

CUresult check_captured(uint64_t wire_stream) {
  if (active_captures.load(std::memory_order_relaxed) == 0) return CUDA_SUCCESS;
  Call call;
  vgpu_capture_info info{};
  const CUresult result = ask_host(call, wire_stream, &info);
  if (result == CUDA_ERROR_STREAM_CAPTURE_IMPLICIT) {
    spoil(call, captures_where([](const Begun& one) {
            const StreamRecord* const stream = streams().find(one.stream);
            return stream && !(stream->flags & CU_STREAM_NON_BLOCKING);
          }));
  }
  if (result != CUDA_SUCCESS) return result;
  return info.status == CU_STREAM_CAPTURE_STATUS_INVALIDATED ? CUDA_ERROR_STREAM_CAPTURE_INVALIDATED : CUDA_SUCCESS;
}

CUresult check_unsafe(Call& call) {
  if (active_captures.load(std::memory_order_relaxed) == 0) return CUDA_SUCCESS;
  if (this_thread().capture_mode == CU_STREAM_CAPTURE_MODE_RELAXED) return CUDA_SUCCESS;
  const auto forbidding = captures_where([](const Begun& one) {
    if (one.mode == CU_STREAM_CAPTURE_MODE_RELAXED) return false;
    const bool everywhere =
        one.mode == CU_STREAM_CAPTURE_MODE_GLOBAL && this_thread().capture_mode == CU_STREAM_CAPTURE_MODE_GLOBAL;
    return one.thread == &this_thread() || everywhere;
  });
  if (forbidding.empty()) return CUDA_SUCCESS;
  spoil(call, forbidding);
  return CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
}

CUresult check_unsafe_for(Call& call, CUevent event) {
  if (active_captures.load(std::memory_order_relaxed) == 0) return CUDA_SUCCESS;
  const bool captured = wire::event_query(call, to_wire(event)) == CUDA_ERROR_CAPTURED_EVENT;
  const CUresult allowed = check_unsafe(call);  // either way: it spoils captures
  return captured ? CUDA_ERROR_CAPTURED_EVENT : allowed;
}

CUresult invalidate_capture(Call& call, uint64_t wire_stream) {
  spoil(call, {wire_stream});
  return CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
}

CUresult refuse_captured(Call& call, uint64_t wire_stream) {
  bool capturing = false;
  const CUresult result = is_capturing(wire_stream, &capturing);
  return result == CUDA_SUCCESS && capturing ? invalidate_capture(call, wire_stream) : result;
}

CUresult check_external(uint64_t wire_stream) {
  bool capturing = false;
  const CUresult result = is_capturing(wire_stream, &capturing);
  if (result != CUDA_SUCCESS) return result;
  return capturing ? CUDA_SUCCESS : CUDA_ERROR_ILLEGAL_STATE;
}

CUresult is_capturing(uint64_t wire_stream, bool* capturing) {
  *capturing = false;
  if (active_captures.load(std::memory_order_relaxed) == 0) return CUDA_SUCCESS;
  Call call;
  vgpu_capture_info info{};
  const CUresult result = ask_host(call, wire_stream, &info);
  if (result != CUDA_SUCCESS) return result;
  if (info.status == CU_STREAM_CAPTURE_STATUS_INVALIDATED) return CUDA_ERROR_STREAM_CAPTURE_INVALIDATED;
  *capturing = info.status == CU_STREAM_CAPTURE_STATUS_ACTIVE;
  return CUDA_SUCCESS;
}

}  // namespace bandsaw::libcuda

using namespace bandsaw::libcuda;  // NOLINT: entry points below
namespace wire = bandsaw::wire;

extern "C" {

CUresult cuStreamBeginCapture_v2(CUstream stream, CUstreamCaptureMode mode) {
  return begin(stream, nullptr, nullptr, 0, mode);
}

CUresult cuStreamBeginCaptureToGraph(CUstream stream, CUgraph graph, const CUgraphNode* dependencies,
                                     const CUgraphEdgeData* edges, size_t count, CUstreamCaptureMode mode) {
  if (!find_graph(graph) || (count && !dependencies)) return CUDA_ERROR_INVALID_VALUE;
  const CUresult result = check_edges(edges, count);
  return result != CUDA_SUCCESS ? result : begin(stream, graph, dependencies, count, mode);
}

CUresult cuStreamEndCapture(CUstream stream, CUgraph* graph) {
  Call call;
  if (!require_context(call, stream)) return call.status();
  if (graph) *graph = nullptr;
  uint64_t on = 0;
  CUresult result = check_stream(call, stream, &on);
  if (result != CUDA_SUCCESS) return result;
  if (active_captures.load() == 0) return CUDA_ERROR_ILLEGAL_STATE;
  result = check_thread(on);
  if (result != CUDA_SUCCESS) return result;
  uint64_t handle = 0;
  result = wire::capture_end(call, on, &handle);
  // These errors say that no capture began on this stream: none has ended.
  const bool still = result == CUDA_ERROR_ILLEGAL_STATE || result == CUDA_ERROR_STREAM_CAPTURE_UNMATCHED ||
                     result == CUDA_ERROR_INVALID_VALUE || result == CUDA_ERROR_INVALID_HANDLE;
  if (!still) forget_capture(on);
  if (!handle) return result;
  const auto captured = from_wire<CUgraph>(handle);
  const bool known = find_graph(captured) != nullptr;
  adopt_graph(handle);
  if (graph) {
    *graph = captured;
  } else if (!known) {
    cuGraphDestroy(captured);  // the program never had its handle
  }
  return result;
}

CUresult cuStreamIsCapturing(CUstream stream, CUstreamCaptureStatus* status) {
  if (!status) return CUDA_ERROR_INVALID_VALUE;
  Capture capture;
  const CUresult result = ask(stream, &capture);
  if (result == CUDA_SUCCESS) *status = static_cast<CUstreamCaptureStatus>(capture.info.status);
  return result;
}

CUresult cuStreamGetCaptureInfo_v2(CUstream stream, CUstreamCaptureStatus* status, cuuint64_t* id, CUgraph* graph,
                                   const CUgraphNode** dependencies, size_t* count) {
  return get_info(stream, status, id, graph, dependencies, count);
}

CUresult cuStreamGetCaptureInfo_v3(CUstream stream, CUstreamCaptureStatus* status, cuuint64_t* id, CUgraph* graph,
                                   const CUgraphNode** dependencies, const CUgraphEdgeData** edges, size_t* count) {
  const CUresult result = get_info(stream, status, id, graph, dependencies, count);
  if (result == CUDA_SUCCESS && edges) *edges = nullptr;  // all are plain
  return result;
}

CUresult cuStreamUpdateCaptureDependencies_v2(CUstream stream, CUgraphNode* dependencies, const CUgraphEdgeData* edges,
                                              size_t count, unsigned flags) {
  const CUresult result = check_edges(edges, count);
  return result != CUDA_SUCCESS ? result : update(stream, dependencies, count, flags);
}

}  // extern "C"
