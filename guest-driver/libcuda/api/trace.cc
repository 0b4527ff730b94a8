// BANDSAW_TRACE=FILE: what this program asks of the driver and what its streams do, as a file that Perfetto opens.
//
// A call is timed on the host. Work of the device lies between two events of the tracer's on its stream, so the device
// measures it, with the time that it waits for its turn. Work that is captured, or issued while anything is captured,
// is not measured.
#include <cxxabi.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <deque>
#include <map>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include "guest-driver/libcuda/api/function.h"
#include "guest-driver/libcuda/api/stream.h"
#include "guest-driver/libcuda/api/trace_file.h"
#include "guest-driver/libcuda/core/call.h"
#include "guest-driver/libcuda/core/context.h"
#include "guest-driver/libcuda/core/log.h"
#include "guest-driver/libcuda/core/wire_tracer.h"
#include "guest-driver/libcuda/wire_client.h"
#include "memory/base/clock.h"

namespace bandsaw::libcuda {

namespace {

constexpr size_t kPendingMost = 16384;       // spans of the device whose times were not read yet
constexpr float kBaseMs = 1000;              // how long one base serves
constexpr uint64_t kLastNs = 2'000'000'000;  // how long the end of a context waits for its last spans

uint64_t now_ns() { return static_cast<uint64_t>(monotonic_ns()); }

// The tracer's own calls are not watched.
thread_local bool inside = false;
struct Inside {
  Inside() { inside = true; }
  ~Inside() { inside = false; }
};

std::string demangled(const std::string& name) {
  int status = 0;
  char* const text = abi::__cxa_demangle(name.c_str(), nullptr, nullptr, &status);
  const std::string result = status == 0 ? text : name;
  std::free(text);
  return result;
}

struct Pending {
  uint64_t stream, begin, end;  // handles; the two are events
  uint64_t id, bytes;
  std::string name;
};

// A context's events, and one whose time is known on the host's clock.
struct Traces {
  uint64_t base = 0;
  uint64_t base_ns = 0;
  std::vector<uint64_t> free;
  std::deque<Pending> pending;
};

struct Open {
  wire::Opcode opcode{};
  uint64_t context = 0, begin_ns = 0, id = 0;
  Pending work{};
};

class Tracer : public WireTracer {
 public:
  bool open(const char* path) { return file_.open(path); }

  uint64_t begins(wire::Opcode opcode, uint64_t context, const EngineWork* work) override {
    if (inside || !file_.is_open()) return 0;
    const Inside guard;
    Open& open = opened();
    open = {opcode, context, now_ns(), 0, {}};
    if (work && context && active_captures.load(std::memory_order_relaxed) == 0) begin_work(&open, *work);
    return 1;
  }

  void ends(uint64_t) override {
    const Inside guard;
    Open& open = opened();
    if (open.id) end_work(&open);
    file_.call(wire::kCalls[static_cast<uint32_t>(open.opcode)].name, open.begin_ns, now_ns(), open.id);
  }

  // Reads what is measured of a context, and forgets its events, which end with it.
  void context_ends(uint64_t context) {
    const Inside guard;
    std::lock_guard lock(mutex_);
    read_all(context, &traces_[context]);
    traces_.erase(context);
  }

  void program_ends() {
    const Inside guard;
    {
      std::lock_guard lock(mutex_);
      for (auto& [context, traces] : traces_) read_all(context, &traces);
      traces_.clear();
    }
    file_.close();
  }

 private:
  // Wire calls of one thread do not nest, but for the tracer's own.
  static Open& opened() {
    thread_local Open open;
    return open;
  }

  void begin_work(Open* open, const EngineWork& work) {
    std::lock_guard lock(mutex_);
    Traces& traces = traces_[open->context];
    if (!traces.base && !set_base(open->context, &traces)) return;
    if (traces.pending.size() >= kPendingMost && read_done(open->context, &traces) == 0) {
      lost_++;  // to wait here could be to wait for what this thread is about to issue
      return;
    }
    const uint64_t begin = take_event(open->context, &traces), end = take_event(open->context, &traces);
    if (!begin || !end) return;
    Call call;
    call.set_context(open->context);
    if (wire::event_record(call, begin, work.stream, 0) != CUDA_SUCCESS) return;
    open->id = ++last_id_;
    open->work = {work.stream, begin, end, open->id, work.bytes, name_of(open->opcode, work)};
  }

  void end_work(Open* open) {
    std::lock_guard lock(mutex_);
    Call call;
    call.set_context(open->context);
    wire::event_record(call, open->work.end, open->work.stream, 0);
    traces_[open->context].pending.push_back(std::move(open->work));
  }

  static std::string name_of(wire::Opcode opcode, const EngineWork& work) {
    const auto kind = [](const vgpu_copy_end* end) {
      return end->kind == VGPU_MEMORY_HOST ? "host" : end->kind == VGPU_MEMORY_ARRAY ? "array" : "device";
    };
    if (work.source) return std::string("copy ") + kind(work.source) + " to " + kind(work.destination);
    switch (opcode) {
      case wire::Opcode::kCopyIn:
        return "copy host to device";
      case wire::Opcode::kCopyOut:
        return "copy device to host";
      case wire::Opcode::kExecLaunch:
        return "graph";
      default:
        break;
    }
    const FunctionRecord* const function = work.code ? find_function(work.code) : nullptr;
    return function ? demangled(function->name) : wire::kCalls[static_cast<uint32_t>(opcode)].name;
  }

  uint64_t take_event(uint64_t context, Traces* traces) {
    uint64_t event = 0;
    if (traces->free.empty()) {
      Call call;
      call.set_context(context);
      return wire::event_create(call, 0, &event) == CUDA_SUCCESS ? event : 0;
    }
    event = traces->free.back();
    traces->free.pop_back();
    return event;
  }

  // An event on a stream of its own, and the host's time at which it came: of several, the one heard of soonest.
  bool set_base(uint64_t context, Traces* traces) {
    Call call;
    call.set_context(context);
    uint64_t stream = 0, shortest = UINT64_MAX;
    if (wire::stream_create(call, CU_STREAM_NON_BLOCKING, 0, &stream) != CUDA_SUCCESS) return false;
    for (int i = 0; i < 5; i++) {
      const uint64_t event = take_event(context, traces), before = now_ns();
      if (!event || wire::event_record(call, event, stream, 0) != CUDA_SUCCESS ||
          wire::event_synchronize(call, event) != CUDA_SUCCESS) {
        break;
      }
      const uint64_t after = now_ns();
      uint64_t unused = event;
      if (after - before < shortest) {
        shortest = after - before;
        unused = std::exchange(traces->base, event);
        traces->base_ns = before + shortest / 2;
      }
      if (unused) traces->free.push_back(unused);
    }
    wire::stream_destroy(call, stream);
    return traces->base != 0;
  }

  // Reads what is done, oldest first. Returns how many spans.
  size_t read_done(uint64_t context, Traces* traces) {
    Call call;
    call.set_context(context);
    size_t count = 0;
    for (; !traces->pending.empty(); count++) {
      if (wire::event_query(call, traces->pending.front().end) == CUDA_ERROR_NOT_READY) break;
      read_first(call, traces);
    }
    say_lost();
    file_.flush();
    return count;
  }

  void say_lost() {
    if (lost_) file_.note(std::to_string(lost_) + " pieces of work were not measured", now_ns());
    lost_ = 0;
  }

  // The work of a context that ends may never be done.
  void read_all(uint64_t context, Traces* traces) {
    const uint64_t deadline = now_ns() + kLastNs;
    while (read_done(context, traces), !traces->pending.empty() && now_ns() < deadline) usleep(1000);
    lost_ += traces->pending.size();
    say_lost();
  }

  // Now and then an end that was read is the next base: the time between two events is a float, which is exact only if
  // it is short.
  void read_first(Call& call, Traces* traces) {
    const Pending span = std::move(traces->pending.front());
    traces->pending.pop_front();
    float to_begin = 0, length = 0;
    if (wire::event_elapsed(call, traces->base, span.begin, &to_begin) != CUDA_SUCCESS ||
        wire::event_elapsed(call, span.begin, span.end, &length) != CUDA_SUCCESS) {
      lost_++;
      return;
    }
    const uint64_t begin_ns = later(traces->base_ns, to_begin), end_ns = later(begin_ns, length);
    file_.work(span.stream, span.name, begin_ns, end_ns, span.id, span.bytes);
    traces->free.push_back(span.begin);
    const bool far = to_begin > kBaseMs;
    traces->free.push_back(far ? std::exchange(traces->base, span.end) : span.end);
    if (far) traces->base_ns = end_ns;
  }

  static uint64_t later(uint64_t ns, float milliseconds) {
    return ns + static_cast<uint64_t>(static_cast<int64_t>(static_cast<double>(milliseconds) * 1e6));
  }

  TraceFile file_;
  std::mutex mutex_;
  std::map<uint64_t, Traces> traces_;  // by context
  uint64_t last_id_ = 0;
  uint64_t lost_ = 0;  // since the last note
};

Tracer* the_tracer = nullptr;

}  // namespace

void begin_trace() {
  static const bool once = [] {
    const char* const path = std::getenv("BANDSAW_TRACE");
    if (!path || !*path) return false;
    auto* const tracer = new Tracer;  // leaked: calls come in until the process is gone
    if (!tracer->open(path)) {
      log(Level::kWarn, "BANDSAW_TRACE: cannot write %s: %s", path, std::strerror(errno));
      return false;
    }
    the_tracer = tracer;
    on_context_ended([](Context* context) { the_tracer->context_ends(context->handle); });
    std::atexit([] { the_tracer->program_ends(); });
    wire_tracer = tracer;
    return true;
  }();
  static_cast<void>(once);
}

}  // namespace bandsaw::libcuda
