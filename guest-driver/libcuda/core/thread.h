// What a thread has: a command ring of each virtual GPU, its stack of current contexts, which stream the handle 0 means
// to it right now.
#pragma once

#include <cuda.h>

#include <cstdint>
#include <vector>

#include "guest-driver/libcuda/core/virtual_gpu.h"

namespace bandsaw::libcuda {

class CommandRing;
struct Context;

struct ThreadState {
  // By part. Each is taken at the thread's first call to that virtual GPU, given back when the thread ends.
  CommandRing* rings[kGpusMax] = {};
  std::vector<Context*> contexts;   // the last one is current; entries may be null (cuCtxSetCurrent(NULL))
  bool per_thread_default = false;  // inside a _ptsz or _ptds entry point
  bool runs_callbacks = false;      // of the program's, and nothing else
  CUstreamCaptureMode capture_mode = CU_STREAM_CAPTURE_MODE_GLOBAL;

  Context* current() const { return contexts.empty() ? nullptr : contexts.back(); }
};

// The calling thread's; made at first use. Never null.
ThreadState& this_thread();

// The handle to put on the wire for a stream argument: 0 becomes this thread's default stream inside _ptsz and _ptds
// entry points. Use it for every CUstream that a program gives, also inside structures.
inline uint64_t wire_stream(CUstream stream) {
  const uint64_t handle = reinterpret_cast<uint64_t>(stream);
  return handle == 0 && this_thread().per_thread_default ? VGPU_STREAM_PER_THREAD : handle;
}

// Generated _ptsz and _ptds entry points put one of these around the plain entry point.
class PerThreadDefault {
 public:
  PerThreadDefault() : thread_(this_thread()), before_(thread_.per_thread_default) {
    thread_.per_thread_default = true;
  }
  ~PerThreadDefault() { thread_.per_thread_default = before_; }
  PerThreadDefault(const PerThreadDefault&) = delete;
  PerThreadDefault& operator=(const PerThreadDefault&) = delete;

 private:
  ThreadState& thread_;
  bool before_;
};

}  // namespace bandsaw::libcuda
