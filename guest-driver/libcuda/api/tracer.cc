#include "guest-driver/libcuda/api/tracer.h"

#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <utility>

#include "guest-driver/libcuda/api/stream.h"
#include "guest-driver/libcuda/core/call.h"
#include "guest-driver/libcuda/wire_client.h"
#include "memory/base/clock.h"

namespace bandsaw::libcuda {

namespace {

constexpr size_t kPendingMost = 16384;       // pieces whose times were not read yet
constexpr float kBaseMs = 1000;              // how long one base serves
constexpr uint64_t kLastNs = 2'000'000'000;  // how long a flush and the end of a context wait for the last pieces

uint64_t now_ns() { return static_cast<uint64_t>(monotonic_ns()); }

// The tracer's own calls are not watched.
thread_local bool inside = false;
struct Inside {
  Inside() { inside = true; }
  ~Inside() { inside = false; }
};

// What this thread is in. Wire calls of one thread do not nest, but for the tracer's own.
struct Open {
  unsigned depth = 0;  // of Calls: the outermost is the program's
  bandsaw_traced_call call{};
  unsigned pieces = 0;
  wire::Opcode opcode{};
  uint64_t context = 0, begin_ns = 0;
  TracedPiece piece;  // id 0: the wire call has no work that is measured
};

Open& opened() {
  thread_local Open open;
  return open;
}

std::atomic<uint64_t> last_call{0};

uint64_t later(uint64_t ns, float milliseconds) {
  return ns + static_cast<uint64_t>(static_cast<int64_t>(static_cast<double>(milliseconds) * 1e6));
}

}  // namespace

bool Tracer::open(const char* path) {
  writes_ = file_.open(path);
  return writes_;
}

void Tracer::listen(const bandsaw_trace_listener* listener) { listener_.store(listener); }

uint64_t Tracer::mark() const {
  const auto* const listener = listener_.load();
  return listener ? listener->mark() : 0;
}

bool Tracer::call_begins(const char* entry) {
  if (inside) return false;
  Open& open = opened();
  if (open.depth == 0 && !writes_ && mark() == 0) return false;
  if (open.depth++ != 0) return true;
  open.pieces = 0;
  open.call = {};
  open.call.entry = entry;
  open.call.id = last_call.fetch_add(1, std::memory_order_relaxed) + 1;
  open.call.begin_ns = now_ns();
  open.call.per_thread = this_thread().per_thread_default;
  return true;
}

void Tracer::call_ends() {
  Open& open = opened();
  if (--open.depth != 0) return;
  const Inside guard;
  open.call.end_ns = now_ns();
  if (const Context* const context = current_context()) open.call.context = context->id;
  if (const auto* const listener = listener_.load()) listener->call(&open.call);
  if (open.pieces == 0) return;
  std::lock_guard lock(mutex_);
  Joined& joined = joined_[open.call.id];
  joined.issued = open.pieces;
  if (joined.read == joined.issued) tell(open.call.id, &joined);
}

void Tracer::refused(CUresult result) {
  if (!inside) opened().call.error = static_cast<uint32_t>(result);
}

void Tracer::waits(const Awaited& awaited) {
  if (inside) return;
  opened().call.waits_event = awaited.event;
  if (!awaited.event) opened().call.waits_stream = stream_id(awaited.stream);
}

void Tracer::context_created(Context* context) {
  const auto* const listener = listener_.load();
  if (!listener || inside) return;
  const Inside guard;
  listener->context_created(to_program(context));
}

uint64_t Tracer::begins(wire::Opcode opcode, uint64_t context, const EngineWork* work) {
  if (inside || (!writes_ && mark() == 0)) return 0;
  const Inside guard;
  Open& open = opened();
  open.opcode = opcode;
  open.context = context;
  open.begin_ns = now_ns();
  open.piece.id = 0;
  if (work && context && active_captures.load(std::memory_order_relaxed) == 0) begin_work(context, *work);
  return 1;
}

void Tracer::ends(uint64_t) {
  const Inside guard;
  Open& open = opened();
  const uint64_t piece = open.piece.id;
  if (piece) end_work();
  if (writes_) file_.call(wire::kCalls[static_cast<uint32_t>(open.opcode)].name, open.begin_ns, now_ns(), piece);
}

void Tracer::begin_work(uint64_t context, const EngineWork& work) {
  std::lock_guard lock(mutex_);
  Events& events = contexts_[context];
  if (!events.base && !set_base(context, &events)) return;
  if (events.pending.size() >= kPendingMost && read_done(context, &events) == 0) {
    lost_++;  // to wait here could be to wait for what this thread is about to issue
    return;
  }
  const uint64_t begin = take_event(context, &events), end = take_event(context, &events);
  if (!begin || !end) return;
  Call call;
  call.set_context(context);
  if (wire::event_record(call, begin, work.stream, 0) != CUDA_SUCCESS) return;
  Open& open = opened();
  open.piece = {};
  open.piece.stream = work.stream;
  open.piece.begin = begin;
  open.piece.end = end;
  open.piece.id = ++last_piece_;
  open.piece.call_begin_ns = open.depth ? open.call.begin_ns : open.begin_ns;
  open.piece.work.call = open.depth ? open.call.id : 0;
  open.piece.work.mark = mark();
  open.piece.work.asynchronous = open.depth && std::strstr(open.call.entry, "Async") != nullptr;
  describe_work(open.opcode, context, work, &open.piece);
}

void Tracer::end_work() {
  std::lock_guard lock(mutex_);
  Open& open = opened();
  Call call;
  call.set_context(open.context);
  wire::event_record(call, open.piece.end, open.piece.stream, 0);
  if (open.piece.work.call) open.pieces++;
  contexts_[open.context].pending.push_back(std::move(open.piece));
  open.piece.id = 0;
}

uint64_t Tracer::take_event(uint64_t context, Events* events) {
  uint64_t event = 0;
  if (events->free.empty()) {
    Call call;
    call.set_context(context);
    return wire::event_create(call, 0, &event) == CUDA_SUCCESS ? event : 0;
  }
  event = events->free.back();
  events->free.pop_back();
  return event;
}

// An event on a stream of its own, and the host's time at which it came: of several, the one heard of soonest.
bool Tracer::set_base(uint64_t context, Events* events) {
  Call call;
  call.set_context(context);
  uint64_t stream = 0, shortest = UINT64_MAX;
  if (wire::stream_create(call, CU_STREAM_NON_BLOCKING, 0, &stream) != CUDA_SUCCESS) return false;
  for (int i = 0; i < 5; i++) {
    const uint64_t event = take_event(context, events), before = now_ns();
    if (!event || wire::event_record(call, event, stream, 0) != CUDA_SUCCESS ||
        wire::event_synchronize(call, event) != CUDA_SUCCESS) {
      break;
    }
    const uint64_t after = now_ns();
    uint64_t unused = event;
    if (after - before < shortest) {
      shortest = after - before;
      unused = std::exchange(events->base, event);
      events->base_ns = before + shortest / 2;
    }
    if (unused) events->free.push_back(unused);
  }
  wire::stream_destroy(call, stream);
  return events->base != 0;
}

// Reads what is done, oldest first. Returns how many pieces.
size_t Tracer::read_done(uint64_t context, Events* events) {
  Call call;
  call.set_context(context);
  size_t count = 0;
  for (; !events->pending.empty(); count++) {
    if (wire::event_query(call, events->pending.front().end) == CUDA_ERROR_NOT_READY) break;
    read_first(call, events);
  }
  say_lost();
  if (writes_) file_.flush();
  return count;
}

// Now and then an end that was read is the next base: the time between two events is a float, which is exact only if
// it is short.
void Tracer::read_first(Call& call, Events* events) {
  TracedPiece piece = std::move(events->pending.front());
  events->pending.pop_front();
  float to_begin = 0, length = 0;
  if (wire::event_elapsed(call, events->base, piece.begin, &to_begin) != CUDA_SUCCESS ||
      wire::event_elapsed(call, piece.begin, piece.end, &length) != CUDA_SUCCESS) {
    lose(piece.work.call);
    return;
  }
  const uint64_t measured_ns = later(events->base_ns, to_begin);
  const uint64_t begin_ns = std::max(measured_ns, piece.call_begin_ns), end_ns = later(begin_ns, length);
  if (writes_) file_.work(piece.stream, piece.title, begin_ns, end_ns, piece.id, piece.work.bytes);
  events->free.push_back(piece.begin);
  const bool far = to_begin > kBaseMs;
  events->free.push_back(far ? std::exchange(events->base, piece.end) : piece.end);
  if (far) events->base_ns = later(measured_ns, length);
  join(std::move(piece), begin_ns, end_ns);
}

void Tracer::join(TracedPiece piece, uint64_t begin_ns, uint64_t end_ns) {
  const uint64_t call = piece.work.call;
  if (!call) return;
  Joined& joined = joined_[call];
  joined.read++;
  if (joined.measured++ == 0) {
    joined.first = std::move(piece);
    joined.first.work.begin_ns = begin_ns;
    joined.first.work.end_ns = end_ns;
  } else {
    joined.first.work.bytes += piece.work.bytes;
    joined.first.work.begin_ns = std::min(joined.first.work.begin_ns, begin_ns);
    joined.first.work.end_ns = std::max(joined.first.work.end_ns, end_ns);
  }
  if (joined.read == joined.issued) tell(call, &joined);
}

void Tracer::lose(uint64_t call) {
  lost_++;
  if (!call) return;
  Joined& joined = joined_[call];
  if (++joined.read == joined.issued) tell(call, &joined);
}

// Tells of a call's work, and forgets it.
void Tracer::tell(uint64_t call, Joined* joined) {
  const auto* const listener = listener_.load();
  if (listener && joined->measured && joined->first.work.mark) {
    joined->first.work.name = joined->first.kernel.c_str();
    listener->work(&joined->first.work);
  }
  joined_.erase(call);
}

void Tracer::say_lost() {
  if (lost_ == 0) return;
  if (writes_) file_.note(std::to_string(lost_) + " pieces of work were not measured", now_ns());
  if (const auto* const listener = listener_.load()) listener->lost(lost_);
  lost_ = 0;
}

// Whether nothing is left that was issued.
bool Tracer::read_done_of_all() {
  std::lock_guard lock(mutex_);
  bool all = true;
  for (auto& [context, events] : contexts_) {
    read_done(context, &events);
    all = all && events.pending.empty();
  }
  return all;
}

void Tracer::flush(bool wait) {
  if (inside) return;
  const Inside guard;
  const uint64_t deadline = now_ns() + kLastNs;
  while (!read_done_of_all() && wait && now_ns() < deadline) usleep(1000);
}

// The work of a context that ends may never be done.
void Tracer::forget(uint64_t context) {
  Events& events = contexts_[context];
  const uint64_t deadline = now_ns() + kLastNs;
  while (read_done(context, &events), !events.pending.empty() && now_ns() < deadline) usleep(1000);
  for (const TracedPiece& piece : events.pending) lose(piece.work.call);
  say_lost();
}

void Tracer::context_ends(Context* context) {
  const Inside guard;
  if (const auto* const listener = listener_.load()) listener->context_ends(to_program(context));
  std::lock_guard lock(mutex_);
  forget(context->handle);
  contexts_.erase(context->handle);
}

void Tracer::program_ends() {
  const Inside guard;
  {
    std::lock_guard lock(mutex_);
    for (auto& [context, events] : contexts_) forget(context);
    contexts_.clear();
  }
  if (writes_) file_.close();
}

}  // namespace bandsaw::libcuda
