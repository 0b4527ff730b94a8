// BANDSAW_TRACE=FILE: what this program asks of the driver and what its streams do, as a file that Perfetto opens. And
// the same for a profiler's library in this process, through the table of uapi/trace_table.h.
#include <cerrno>
#include <cstdlib>
#include <cstring>

#include "guest-driver/libcuda/api/stream.h"
#include "guest-driver/libcuda/api/tracer.h"
#include "guest-driver/libcuda/core/log.h"
#include "guest-driver/libcuda/core/thread.h"

namespace bandsaw::libcuda {
namespace {

// Leaked: calls come in until the process is gone.
Tracer& the_tracer() {
  static auto* const made = [] {
    auto* const tracer = new Tracer;
    on_context_ended([](Context* context) { the_tracer().context_ends(context); });
    std::atexit([] { the_tracer().program_ends(); });
    return tracer;
  }();
  return *made;
}

void table_listen(const bandsaw_trace_listener* listener) {
  Tracer& tracer = the_tracer();
  tracer.listen(listener);
  wire_tracer = tracer.idle() ? nullptr : &tracer;
}

void table_flush(int wait) { the_tracer().flush(wait != 0); }

int table_context(void* context, uint64_t* id, uint32_t* device) {
  const Context* const found = from_program(static_cast<CUcontext>(context));
  if (!found || !found->alive()) return 0;
  *id = found->id;
  *device = static_cast<uint32_t>(found->device);
  return 1;
}

int table_stream(void* stream, int per_thread, uint64_t* id) {
  uint64_t handle = 0;
  if (check_stream(static_cast<CUstream>(stream), &handle) != CUDA_SUCCESS) return 0;
  *id = stream_id(handle == 0 && per_thread ? uint64_t{VGPU_STREAM_PER_THREAD} : handle);
  return 1;
}

}  // namespace

const void* trace_table() {
  static const bandsaw_trace_table table{sizeof(table), table_listen, table_flush, table_context, table_stream};
  return &table;
}

void begin_trace() {
  static const bool once = [] {
    const char* const path = std::getenv("BANDSAW_TRACE");
    if (!path || !*path) return false;
    if (!the_tracer().open(path)) {
      log(Level::kWarn, "BANDSAW_TRACE: cannot write %s: %s", path, std::strerror(errno));
      return false;
    }
    wire_tracer = &the_tracer();
    return true;
  }();
  static_cast<void>(once);
}

}  // namespace bandsaw::libcuda
