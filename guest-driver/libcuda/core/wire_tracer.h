// Who watches wire calls. The generated functions of wire_client.h put a Traced around each call; api/trace.h is what
// watches if BANDSAW_TRACE asks for it.
#pragma once

#include <atomic>
#include <cstdint>

#include "guest-driver/uapi/wire.h"

namespace bandsaw::libcuda {

// What a wire call puts on an engine.
struct EngineWork {
  uint64_t stream = 0;                    // as on the wire
  uint64_t code = 0;                      // handle of the function or executable graph; 0: a copy or fill
  uint64_t bytes = 0;                     // of a copy or fill
  const vgpu_copy_end* source = nullptr;  // of a copy whose ends are not plain
  const vgpu_copy_end* destination = nullptr;
};

inline uint64_t bytes_of(const vgpu_copy& copy) { return copy.width_bytes * copy.height * copy.depth; }
inline uint64_t bytes_of(const vgpu_fill& fill) { return fill.width * fill.height * fill.element_bytes; }

// Thread-safe. `work` is null for calls that put none on an engine; `context` is a handle.
class WireTracer {
 public:
  virtual ~WireTracer() = default;
  // Returns what ends() takes; 0: this call is not watched.
  virtual uint64_t begins(wire::Opcode opcode, uint64_t context, const EngineWork* work) = 0;
  virtual void ends(uint64_t span) = 0;
};

// nullptr: nobody watches. What it points to is never freed.
inline constinit std::atomic<WireTracer*> wire_tracer{nullptr};

// Begins to watch, once, if BANDSAW_TRACE asks for it. api/trace.cc has it: core knows no functions and captures.
void begin_trace();

class Traced {
 public:
  Traced(wire::Opcode opcode, uint64_t context, const EngineWork* work = nullptr)
      : tracer_(wire_tracer.load(std::memory_order_relaxed)) {
    if (tracer_) span_ = tracer_->begins(opcode, context, work);
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
