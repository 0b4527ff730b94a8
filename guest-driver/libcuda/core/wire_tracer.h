// Who watches the program's calls of the driver, and the wire calls that they make. A Call tells of the former; the
// generated functions of wire_client.h put a Traced around each of the latter. api/tracer.h is what watches.
#pragma once

#include <cuda.h>

#include <atomic>
#include <cstdint>

#include "guest-driver/uapi/wire.h"

namespace bandsaw::libcuda {

struct Context;

// What a wire call puts on an engine.
struct EngineWork {
  uint64_t stream = 0;                    // as on the wire
  uint64_t code = 0;                      // handle of the function or executable graph; 0: a copy or fill
  uint64_t bytes = 0;                     // of a copy or fill
  const vgpu_copy_end* source = nullptr;  // of a copy whose ends are not plain
  const vgpu_copy_end* destination = nullptr;
  const vgpu_launch* launch = nullptr;
  const vgpu_fill* fill = nullptr;
};

// What a wire call waits for, as on the wire.
struct Awaited {
  uint64_t stream = 0;
  uint64_t event = 0;
};

inline uint64_t bytes_of(const vgpu_copy& copy) { return copy.width_bytes * copy.height * copy.depth; }
inline uint64_t bytes_of(const vgpu_fill& fill) { return fill.width * fill.height * fill.element_bytes; }

// Thread-safe. `work` is null for calls that put none on an engine; `context` is a handle.
class WireTracer {
 public:
  virtual ~WireTracer() = default;
  // A Call begins, made by the function `entry`, and ends; they may nest. call_begins() returns false if this one is
  // not watched, and then its end is not told.
  virtual bool call_begins(const char* entry) = 0;
  virtual void call_ends() = 0;
  // The host refused the thread's wire call.
  virtual void refused(CUresult result) = 0;
  virtual void waits(const Awaited& awaited) = 0;
  virtual void context_created(Context* context) = 0;
  // Returns what ends() takes; 0: this call is not watched.
  virtual uint64_t begins(wire::Opcode opcode, uint64_t context, const EngineWork* work) = 0;
  virtual void ends(uint64_t span) = 0;
};

// nullptr: nobody watches. What it points to is never freed.
inline constinit std::atomic<WireTracer*> wire_tracer{nullptr};

inline void tell_created(Context* context) {
  if (WireTracer* const tracer = wire_tracer.load(std::memory_order_relaxed)) tracer->context_created(context);
}

// Begins to watch, once, if BANDSAW_TRACE asks for it. api/trace.cc has this and the table of uapi/trace_table.h: core
// knows no functions and captures.
void begin_trace();
const void* trace_table();

class Traced {
 public:
  Traced(wire::Opcode opcode, uint64_t context, const EngineWork* work = nullptr)
      : tracer_(wire_tracer.load(std::memory_order_relaxed)) {
    if (tracer_) span_ = tracer_->begins(opcode, context, work);
  }
  Traced(wire::Opcode opcode, uint64_t context, const Awaited& awaited) : Traced(opcode, context) {
    if (tracer_) tracer_->waits(awaited);
  }
  ~Traced() {
    if (span_) tracer_->ends(span_);
  }
  Traced(const Traced&) = delete;
  Traced& operator=(const Traced&) = delete;

 private:
  WireTracer* const tracer_;
  uint64_t span_ = 0;
};

}  // namespace bandsaw::libcuda
