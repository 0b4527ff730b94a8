#include "guest-driver/libcuda/core/call.h"

#include <algorithm>
#include <atomic>
#include <cstdio>

#include "guest-driver/libcuda/core/command_ring.h"
#include "guest-driver/libcuda/core/context.h"
#include "guest-driver/libcuda/core/log.h"
#include "guest-driver/libcuda/core/process.h"
#include "guest-driver/libcuda/core/shared_memory.h"
#include "guest-driver/libcuda/core/transport.h"
#include "guest-driver/libcuda/core/wire_tracer.h"
#include "guest-driver/libcuda/wire_client.h"

namespace bandsaw::libcuda {

namespace {

// As on bare metal, a thread that waits spins, unless the program wants it to sleep.
uint32_t poll_budget_ns(const VirtualGpu& gpu, const Context* context) {
  constexpr uint32_t kUsual = 30, kMost = 100'000;  // us
  const uint32_t told = gpu.info.spin_us;
  const bool blocking = context && (context->flags & CU_CTX_SCHED_MASK) == CU_CTX_SCHED_BLOCKING_SYNC;
  return 1000 * (blocking || told == 0 ? kUsual : std::min(told, kMost));
}

}  // namespace

void BytesOut::assign(const void* data, size_t bytes) {
  const auto* from = static_cast<const char*>(data);
  if (length_) *length_ = bytes;
  if (text_) text_->assign(from, bytes);
  if (bytes_)
    bytes_->assign(reinterpret_cast<const std::byte*>(from), reinterpret_cast<const std::byte*>(from) + bytes);
  if (buffer_) std::memcpy(buffer_, from, std::min(bytes, capacity_));
}

Call::Call(const char* entry) : thread_(&this_thread()) {
  tell_tracer(entry);
  if (state() == State::kUninitialised) {
    fail(CUDA_ERROR_NOT_INITIALIZED);
  } else {
    enter(current_gpu(), thread_->current());
  }
}

Call::Call(VirtualGpu& gpu, const char* entry) : thread_(&this_thread()) {
  tell_tracer(entry);
  if (state() == State::kUninitialised) {
    fail(CUDA_ERROR_NOT_INITIALIZED);
  } else {
    go_to(gpu);
  }
}

void Call::tell_tracer(const char* entry) {
  if (WireTracer* const tracer = wire_tracer.load(std::memory_order_relaxed); tracer && tracer->call_begins(entry))
    tracer_ = tracer;
}

void Call::enter(VirtualGpu& gpu, const Context* context) {
  gpu_ = &gpu;
  part_ = gpu.part;
  context_ = context ? context->handle : 0;
  status_ = gpu.health();
  if (failed()) return;
  CommandRing*& ring = thread_->rings[part_];
  if (!ring && !(ring = gpu.rings->take())) return fail(gpu.lost ? gpu.health() : CUDA_ERROR_OUT_OF_MEMORY);
  ring_ = ring;
  const CUresult sticky = ring_->sticky_error();
  if (sticky != CUDA_SUCCESS) {
    // The program learns of a fault here without having synchronised, so what its kernels printed was not fetched yet.
    if (gpu.sticky.exchange(sticky, std::memory_order_relaxed) == CUDA_SUCCESS) output_pending_ = true;
    fail(sticky);
  }
  ring_->set_poll_budget(poll_budget_ns(gpu, context));
}

void Call::go_to(VirtualGpu& gpu) {
  if (gpu_ == &gpu) return;
  if (output_pending_) print_output();
  const Context* const current = thread_->current();
  enter(gpu, current && current->gpu == &gpu ? current : any_context(gpu));
}

bool Call::reroute(std::initializer_list<uint64_t> handles) {
  if (failed()) return false;
  VirtualGpu* meant = nullptr;
  for (const uint64_t handle : handles) {
    if (handle <= VGPU_STREAM_PER_THREAD) continue;
    VirtualGpu* const one = gpu_of_part(part_of_handle(handle));
    if (!one || (meant && one != meant)) {
      fail(CUDA_ERROR_INVALID_HANDLE);
      return false;
    }
    meant = one;
  }
  if (meant) go_to(*meant);
  return !failed();
}

Call::~Call() {
  if (output_pending_) print_output();
  if (tracer_) tracer_->call_ends();
}

bool Call::require_context() {
  if (failed()) return false;
  if (context_ == 0) fail(this_thread().runs_callbacks ? CUDA_ERROR_NOT_PERMITTED : CUDA_ERROR_INVALID_CONTEXT);
  return !failed();
}

void* Call::begin(wire::Opcode opcode, size_t args_bytes, size_t tail_bytes) {
  if (failed()) return nullptr;
  opcode_ = opcode;
  if (tail_bytes > VGPU_RECORD_MAX_BYTES - sizeof(vgpu_record) - args_bytes) {
    log(Level::kError, "%s: %zu bytes of data do not fit into a record",
        wire::kCalls[static_cast<uint32_t>(opcode)].name, tail_bytes);
    fail(CUDA_ERROR_INVALID_VALUE);
    return nullptr;
  }
  const uint32_t number = gpu_->calls.opcode(opcode);
  if (number == 0) {
    refuse_missing();
    return nullptr;
  }
  void* space = ring_->reserve(number, static_cast<uint32_t>(args_bytes + tail_bytes), context_);
  if (!space) lose();
  return space;
}

// The host is of a release before this library's.
void Call::refuse_missing() {
  static std::atomic<bool> said[wire::kOpcodes];
  const auto own = static_cast<uint32_t>(opcode_);
  if (!said[own].exchange(true)) {
    log(Level::kWarn, "the host, of release %s, has no call \"%s\": update it",
        wire::release_of(gpu_->transport->host()).c_str(), wire::kCalls[own].name);
  }
  fail(CUDA_ERROR_NOT_SUPPORTED);
}

// What the host has said before it went is what the program sees from now on.
CUresult Call::lose() {
  if (const CUresult sticky = ring_->sticky_error(); sticky != CUDA_SUCCESS)
    gpu_->sticky.store(sticky, std::memory_order_relaxed);
  gpu_->set_lost();
  fail(gpu_->health());
  return status_;
}

void Call::publish() { ring_->publish(); }

CUresult Call::round_trip(ReplyBody* body) {
  const uint64_t seq = ring_->publish();
  if (!ring_->wait_reply(seq)) return lose();
  if (body) *body = ReplyBody(ring_->reply_body(), ring_->reply_bytes());
  if (ring_->reply_flags() & VGPU_REPLY_OUTPUT_PENDING) output_pending_ = true;
  CUresult result = ring_->reply_result();
  if (const CUresult sticky = ring_->sticky_error(); sticky != CUDA_SUCCESS) {
    gpu_->sticky.store(sticky, std::memory_order_relaxed);
    if (result == CUDA_SUCCESS) result = sticky;
  }
  if (result != CUDA_SUCCESS) {
    if (tracer_) tracer_->refused(result);
    log(Level::kDebug, "%s gives %d", wire::kCalls[static_cast<uint32_t>(opcode_)].name, static_cast<int>(result));
  }
  return result;
}

CUresult Call::broken_reply() {
  log(Level::kError, "the host sent a reply of the wrong size");
  return CUDA_ERROR_UNKNOWN;
}

CUresult Call::bounce(Bounce* bounce) {
  if (failed()) return status_;
  const uint32_t slot = ring_->next_bounce++ % kBounceSlots;
  SharedBlock& block = ring_->bounce[slot];
  if (!block.address) {
    const CUresult result = gpu_->memory->allocate(kBounceBytes, 0, &block);
    if (result != CUDA_SUCCESS) return result;
  }
  CUresult ignored = CUDA_SUCCESS;
  if (!ring_->wait_done(ring_->last_done(slot), &ignored)) return lose();
  *bounce = {static_cast<std::byte*>(block.address), kBounceBytes, ring_->next_done(slot)};
  return CUDA_SUCCESS;
}

CUresult Call::completion(Bounce* completion) {
  if (failed()) return status_;
  const uint32_t slot = kBounceSlots + ring_->next_plain++ % (VGPU_RING_DONE_SLOTS - kBounceSlots);
  *completion = {nullptr, 0, ring_->next_done(slot)};
  return CUDA_SUCCESS;
}

void Call::bounce_used(const Bounce& bounce) { ring_->commit_done(bounce.done); }

CUresult Call::wait_done(const Bounce& bounce) {
  if (failed()) return status_;
  CUresult result = CUDA_SUCCESS;
  if (!ring_->wait_done(bounce.done, &result)) return lose();
  const CUresult sticky = ring_->sticky_error();
  return sticky != CUDA_SUCCESS ? sticky : result;
}

void Call::print_output() {
  output_pending_ = false;
  const CUresult before = status_;
  status_ = CUDA_SUCCESS;  // what was printed before a fault is shown as well
  std::string text;
  do {
    output_pending_ = false;
    text.clear();
    if (wire::fetch_output(*this, &text) != CUDA_SUCCESS && gpu_->lost) break;
    std::fwrite(text.data(), 1, text.size(), stdout);
  } while (output_pending_ && !text.empty());
  output_pending_ = false;
  std::fflush(stdout);
  status_ = before;
}

}  // namespace bandsaw::libcuda
