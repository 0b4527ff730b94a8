// One driver call as it goes to the host: what generated code (wire_client.h) and entry points work with.
//
//   CUresult cuMemAlloc_v2(CUdeviceptr* pointer, size_t bytes) {
//     if (!pointer || !bytes) return CUDA_ERROR_INVALID_VALUE;
//     Call call;
//     return wire::memory_alloc(call, bytes, reinterpret_cast<uint64_t*>(pointer));
//   }
//
// A Call lives on the stack of the thread that makes it, for one entry point, and may carry several wire calls, one
// after the other. It holds no lock. Calls may nest (one entry point calling another).
#pragma once

#include <cuda.h>

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <initializer_list>
#include <string>
#include <vector>

#include "guest-driver/libcuda/core/thread.h"
#include "guest-driver/uapi/wire.h"

namespace bandsaw::libcuda {

class WireTracer;

// Where the data at the end of a reply goes: nowhere, a caller's buffer (cut off at its capacity), or a container.
class BytesOut {
 public:
  BytesOut(std::nullptr_t) {}  // NOLINT: conversion intended
  // `length`, if given, becomes the data's full length, which may be more than the capacity.
  BytesOut(void* buffer, size_t capacity, size_t* length = nullptr)
      : buffer_(buffer), capacity_(capacity), length_(length) {}
  BytesOut(std::string* text) : text_(text) {}                // NOLINT: conversion intended
  BytesOut(std::vector<std::byte>* bytes) : bytes_(bytes) {}  // NOLINT: conversion intended
  void assign(const void* data, size_t bytes);

 private:
  void* buffer_ = nullptr;
  size_t capacity_ = 0;
  size_t* length_ = nullptr;
  std::string* text_ = nullptr;
  std::vector<std::byte>* bytes_ = nullptr;
};

// A reply's body inside the ring; valid until the thread's next synchronous wire call.
class ReplyBody {
 public:
  ReplyBody() = default;
  ReplyBody(const void* data, size_t bytes) : data_(data), bytes_(bytes) {}
  // nullptr when the reply is too short to be one.
  template <typename T>
  const T* as() const {
    return bytes_ >= sizeof(T) ? static_cast<const T*>(data_) : nullptr;
  }
  size_t tail_bytes(size_t fixed, size_t claimed) const {
    const size_t there = bytes_ > fixed ? bytes_ - fixed : 0;
    return claimed < there ? claimed : there;
  }

 private:
  const void* data_ = nullptr;
  size_t bytes_ = 0;
};

// A piece of memory that host and guest see, for staging a copy: see Call::bounce.
struct Bounce {
  std::byte* data = nullptr;
  size_t bytes = 0;
  vgpu_done done{};  // name it in the wire call that uses the memory
};

class Call {
 public:
  // Fails with CUDA_ERROR_NOT_INITIALIZED before cuInit and in a forked child, with the device's sticky error if there
  // is one, and with kLostHost when its host side is gone and has not said why.
  // Who watches the program's calls (wire_tracer.h) knows this one by the name of the function that makes it; helpers
  // of several entry points pass theirs on.
  explicit Call(const char* entry = __builtin_FUNCTION());
  // A call to that virtual GPU, whatever is current. Its context is the current one, or another of that device.
  explicit Call(VirtualGpu& gpu, const char* entry = __builtin_FUNCTION());
  ~Call();  // prints what kernels printed, if a reply said that there is something
  Call(const Call&) = delete;
  Call& operator=(const Call&) = delete;

  bool failed() const { return status_ != CUDA_SUCCESS; }
  CUresult status() const { return status_; }

  // The virtual GPU that it goes to: that of the current context unless routed elsewhere.
  VirtualGpu& gpu() const { return *gpu_; }
  // Goes to the virtual GPU whose handles these are; 0 and special streams are any's. The context becomes one of that
  // device. False: they are of different ones, and the Call fails with CUDA_ERROR_INVALID_HANDLE.
  template <typename... Handle>
  bool route(Handle... handle) {
    return (is_here(handle) && ...) || reroute({static_cast<uint64_t>(handle)...});
  }
  bool is_here(uint64_t handle) const { return handle <= VGPU_STREAM_PER_THREAD || part_of_handle(handle) == part_; }
  void go_to(VirtualGpu& gpu);

  // The context that the records name: the thread's current one unless set otherwise; 0 for none.
  uint64_t context() const { return context_; }
  void set_context(uint64_t handle) {
    if (route(handle)) context_ = handle;
  }
  // False, and the Call fails with CUDA_ERROR_INVALID_CONTEXT, when there is none.
  bool require_context();

  // Staging memory of this thread, kBounceBytes long. Waits until the wire call that used it last is done, so it may be
  // overwritten. A thread has kBounceSlots of them, used in turn. After publishing the wire call that names `done`,
  // call bounce_used(). wait_done() then waits for exactly that call; after a copy out, call it before reading the
  // bytes.
  CUresult bounce(Bounce* bounce);
  void bounce_used(const Bounce& bounce);
  // As bounce(), but only a completion word, for wire calls on memory that both sides see already.
  CUresult completion(Bounce* completion);
  CUresult wait_done(const Bounce& bounce);

  // For generated code. begin() reserves a record and returns where its arguments go (8-byte aligned), or nullptr and
  // the Call fails. Then exactly one of publish() and round_trip().
  void* begin(wire::Opcode opcode, size_t args_bytes, size_t tail_bytes);
  void publish();
  CUresult round_trip(ReplyBody* body);  // `body` may be null
  CUresult broken_reply();               // a reply of the wrong size: the two sides disagree

  ThreadState& thread() { return *thread_; }

 private:
  void fail(CUresult error) { status_ = error; }
  void enter(VirtualGpu& gpu, const Context* context);
  void tell_tracer(const char* entry);
  bool reroute(std::initializer_list<uint64_t> handles);
  void refuse_missing();
  CUresult lose();
  void print_output();

  ThreadState* thread_ = nullptr;
  VirtualGpu* gpu_ = nullptr;
  CommandRing* ring_ = nullptr;
  uint32_t part_ = 0;  // of gpu_
  uint64_t context_ = 0;
  CUresult status_ = CUDA_SUCCESS;
  wire::Opcode opcode_{};  // of the record begun last
  bool output_pending_ = false;
  WireTracer* tracer_ = nullptr;  // that watches this call
};

inline constexpr size_t kBounceBytes = 512 * 1024;
inline constexpr uint32_t kBounceSlots = 4;  // done slots 0 to 3; completion() uses the others

}  // namespace bandsaw::libcuda
