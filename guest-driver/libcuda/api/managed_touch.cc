// Managed memory when the program touches what the device has: threads of ours wait for such touches and bring the
// bytes back, once the device's work that may write them has ended.
#include <pthread.h>
#include <signal.h>

#include <algorithm>
#include <atomic>

#include "guest-driver/libcuda/api/copy_threads.h"
#include "guest-driver/libcuda/api/managed.h"
#include "guest-driver/libcuda/api/managed_space.h"
#include "guest-driver/libcuda/core/context.h"
#include "guest-driver/libcuda/core/log.h"
#include "guest-driver/libcuda/core/transport.h"
#include "guest-driver/libcuda/core/window.h"
#include "guest-driver/libcuda/wire_client.h"
#include "memory/base/clock.h"

namespace bandsaw::libcuda {
namespace {

using bandsaw::managed::Run;
using bandsaw::managed::ToHost;
using bandsaw::managed::Touch;
using bandsaw::managed::WorkWait;

// Each waits for the device by itself, so that one thread's long kernel does not hold up another's touch.
constexpr int kTouchThreads = 4;

vgpu_copy between_sides(uint64_t address, uint64_t bytes, bool to_device) {
  vgpu_copy copy{};
  copy.destination = {address, bytes, 1, 0, 0, 0, to_device ? VGPU_MEMORY_DEVICE : VGPU_MEMORY_HOST, 0};
  copy.source = {address, bytes, 1, 0, 0, 0, to_device ? VGPU_MEMORY_HOST : VGPU_MEMORY_DEVICE, 0};
  copy.width_bytes = bytes;
  copy.height = copy.depth = 1;
  return copy;
}

}  // namespace

// Queues the copies. `last`, if there are any, becomes a completion of the last one, and so of all of this direction.
CUresult ManagedSpace::copy(Call& call, const Allocation& allocation, const std::vector<Run>& runs, bool to_device,
                            Bounce* last) {
  if (runs.empty()) return CUDA_SUCCESS;
  const uint64_t context = working_context(call, *allocation.chunk);
  if (!context) return CUDA_ERROR_INVALID_CONTEXT;
  call.set_context(context);
  if (const CUresult made = streams_of(call, context)) return made;
  Lock lock(mutex_);
  const Streams streams = streams_[context];
  lock.unlock();
  for (const Run& run : runs) {
    CUresult result = call.completion(last);
    const vgpu_done awaited{last->done.slot | VGPU_DONE_AWAITED, last->done.token};
    const vgpu_copy copy = between_sides(allocation.base + run.offset, run.bytes, to_device);
    if (result == CUDA_SUCCESS) result = wire::copy(call, copy, to_device ? streams.in : streams.out, awaited);
    if (result != CUDA_SUCCESS) {
      *last = {};
      return result;
    }
    call.bounce_used(*last);
  }
  return CUDA_SUCCESS;
}

CUresult ManagedSpace::copy_and_wait(Call& call, const Allocation& allocation, const std::vector<Run>& runs,
                                     bool to_device) {
  Bounce last;
  const CUresult result = copy(call, allocation, runs, to_device, &last);
  return result == CUDA_SUCCESS && last.done.token ? call.wait_done(last) : result;
}

// Waits for the work that may use it, unless the program has done so. It is busy, so no more comes.
CUresult ManagedSpace::settle(Call& call, const Allocation& allocation) {
  bandsaw::managed::WorkTable& work = managed_work();
  if (work.all_quiet()) return call.gpu().health();
  if (allocation.attach == CU_MEM_ATTACH_SINGLE && !allocation.others_used) {
    if (work.quiet(allocation.stream)) return call.gpu().health();
    const WorkWait wait(work, allocation.stream);
    const CUresult result = wire::stream_synchronize(call, allocation.stream.stream);
    if (result == CUDA_SUCCESS) wait.succeeded();
    if (result == CUDA_SUCCESS || call.gpu().health() != CUDA_SUCCESS) return result;
  }
  const WorkWait wait(work);
  const CUresult result = wire::settle(call);  // also beside captures
  if (result == CUDA_SUCCESS) wait.succeeded();
  return result;
}

// As PageGuard::give, of long ranges by several threads: one maps pages more slowly than the copy engine fills them.
int ManagedSpace::give(uint64_t address, uint64_t bytes, bool* writable) {
  struct Gift {
    PageGuard* guard;
    uint64_t address;
    bool asked_writable;
    std::atomic<int> error{0};
    std::atomic<bool> writable{false};
  } gift{guard_, address, *writable};
  const auto part = [](const void* about, size_t offset, size_t length) {
    auto& of = *static_cast<Gift*>(const_cast<void*>(about));
    bool write = of.asked_writable;
    if (const int error = of.guard->give(of.address + offset, length, &write)) of.error.store(error);
    if (write) of.writable.store(true);
  };
  CopyThreads::get().share(bytes, bandsaw::managed::kBlockBytes, part, &gift);
  *writable = gift.writable.load();
  return gift.error.load();
}

// Gives pages to the program whose bytes do not count. The lock is not held meanwhile.
void ManagedSpace::open(Lock& lock, Allocation* allocation, Run run) {
  set_busy(allocation, true);
  lock.unlock();
  bool writable = true;
  const uint64_t address = allocation->base + run.offset;
  if (give(address, run.bytes, &writable)) guard_->forget(address, run.bytes);
  lock.lock();
  allocation->residency.came_to_host(run, true);
  set_busy(allocation, false);
}

// Brings what the device has of `run` to the host's pages, which the program may then read, or write if it shall. The
// lock is not held meanwhile.
CUresult ManagedSpace::fetch(Lock& lock, Call& call, Allocation* allocation, Run run, bool* writable) {
  set_busy(allocation, true);
  lock.unlock();
  drain();
  const std::vector<Run> runs = allocation->residency.on_device(run);
  const CUresult result = bring_back(call, allocation, runs, writable);
  lock.lock();
  for (const Run& one : runs) allocation->residency.came_to_host(one, *writable);
  if (result == CUDA_SUCCESS) allocation->others_used = false;
  set_busy(allocation, false);
  return result;
}

// The copying of it: the allocation is busy, and no record is on its way that was begun before.
CUresult ManagedSpace::bring_back(Call& call, Allocation* allocation, const std::vector<Run>& runs, bool* writable) {
  call.set_context(working_context(call, *allocation->chunk));
  CUresult result = settle(call, *allocation);
  const std::vector<Run> pieces = bandsaw::managed::pieces_of(runs);
  // A piece is given to the program while those after it are copied: giving takes more time for some than for others.
  constexpr size_t kAhead = 3;
  Bounce flying[kAhead + 1];
  const auto begin = [&](size_t piece) {
    if (piece >= pieces.size() || result != CUDA_SUCCESS) return;
    result = copy(call, *allocation, {pieces[piece]}, false, &flying[piece % std::size(flying)]);
  };
  for (size_t piece = 0; piece < kAhead; ++piece) begin(piece);
  for (size_t piece = 0; piece < pieces.size(); ++piece) {
    begin(piece + kAhead);
    if (result == CUDA_SUCCESS) result = call.wait_done(flying[piece % std::size(flying)]);
    const Run& one = pieces[piece];
    const uint64_t address = allocation->base + one.offset;
    const int error = result == CUDA_SUCCESS ? give(address, one.bytes, writable) : 0;
    if (!error && result == CUDA_SUCCESS) continue;
    // What the device had is lost with it. The program goes on with what the pages hold.
    log(Level::kWarn, "managed memory at %#llx cannot be read back: error %d", static_cast<unsigned long long>(address),
        error ? error : static_cast<int>(result));
    *writable = true;
    guard_->forget(address, one.bytes);
  }
  return result;
}

void ManagedSpace::touched(VirtualGpu& gpu, const PageTouch& touch) {
  const uint64_t page = touch.address / kPage * kPage;
  Lock lock(mutex_);
  Allocation* allocation = find(page);
  if (allocation && lend(lock, gpu, allocation, touch)) return;
  allocation = find_idle(lock, page);
  if (!allocation || allocation->dying) return guard_->forget(page, kPage);
  const Touch seen{page - allocation->base, touch.write, touch.thread, static_cast<uint64_t>(monotonic_ns()),
                   bias_of(page)};
  const ToHost wanted = allocation->residency.to_host(seen);
  const uint64_t address = allocation->base + wanted.run.offset;
  bool writable = wanted.writable;
  switch (wanted.what) {
    case ToHost::What::kNothing:
      if (touch.write) guard_->unlock(page, kPage);
      return guard_->retry(page, kPage);
    case ToHost::What::kUnlock:
      guard_->unlock(address, wanted.run.bytes);
      allocation->residency.came_to_host(wanted.run, true);
      return allocation->residency.touched(wanted, seen);
    case ToHost::What::kOpen:
      open(lock, allocation, wanted.run);
      return allocation->residency.touched(wanted, seen);
    case ToHost::What::kFetch: {
      Call call(gpu, "cuMemAllocManaged");
      static_cast<void>(fetch(lock, call, allocation, wanted.run, &writable));
      Touch done = seen;
      done.now_ns = static_cast<uint64_t>(monotonic_ns());
      if ((allocation = find(page))) allocation->residency.touched(wanted, done);
      return;
    }
  }
}

// Host functions run in the order of a stream: work before them has ended, and what comes after waits for them. So a
// page that they touch is copied at once, and goes back when the function has returned. True: done.
bool ManagedSpace::lend(Lock& lock, VirtualGpu& gpu, Allocation* allocation, const PageTouch& touch) {
  const uint64_t page = touch.address / kPage * kPage, offset = page - allocation->base;
  if (std::find(function_threads_.begin(), function_threads_.end(), touch.thread) == function_threads_.end())
    return false;
  if (allocation->busy || allocation->residency.holder(offset) != bandsaw::managed::Holder::kDevice) return false;
  if (const auto found = borrowed_.find(page); found != borrowed_.end()) {
    found->second.written |= touch.write;
    touch.write ? static_cast<void>(guard_->unlock(page, kPage)) : guard_->retry(page, kPage);
    return true;
  }
  ++allocation->lent;
  lock.unlock();
  Call call(gpu, "cuMemAllocManaged");
  bool writable = touch.write;
  const CUresult result = copy_and_wait(call, *allocation, {{offset, kPage}}, false);
  lock.lock();
  --allocation->lent;
  if (result != CUDA_SUCCESS || guard_->give(page, kPage, &writable)) {
    guard_->forget(page, kPage);
    return true;
  }
  borrowed_[page] = {allocation->base, touch.thread, writable};
  return true;
}

void ManagedSpace::host_function_begins() {
  std::lock_guard lock(mutex_);
  function_threads_.push_back(own_thread());
}

void ManagedSpace::host_function_ended(VirtualGpu& gpu) {
  const uint32_t own = own_thread();
  Lock lock(mutex_);
  std::erase(function_threads_, own);
  for (auto next = borrowed_.begin(); next != borrowed_.end();) {
    const auto [page, how] = *next;
    if (how.thread != own) {
      ++next;
      continue;
    }
    borrowed_.erase(next);
    Allocation* const allocation = find(page);
    if (allocation && allocation->residency.holder(page - allocation->base) == bandsaw::managed::Holder::kDevice) {
      guard_->take(page, kPage);
      ++allocation->lent;
      lock.unlock();
      Call call(gpu, "cuMemAllocManaged");
      if (how.written) static_cast<void>(copy_and_wait(call, *allocation, {{page - allocation->base, kPage}}, true));
      lock.lock();
      --allocation->lent;
    }
    next = borrowed_.begin();
  }
}

bool ManagedSpace::prefetch(Call& call, ManagedSpan span, bool to_device, uint64_t stream, CUresult* result) {
  Lock lock(mutex_);
  Allocation* allocation = find(span.address);
  if (!allocation) return false;
  const Run run{span.address - allocation->base, span.bytes};
  lock.unlock();
  if (to_device) {
    span.reads = is_read_mostly(span.address, span.bytes);
    const DeviceWork work(call, stream, {span});
    *result = work.status();
    return true;
  }
  *result = wire::stream_synchronize(call, stream);
  lock.lock();
  allocation = find_idle(lock, span.address);
  bool writable = false;
  if (*result == CUDA_SUCCESS && allocation && !allocation->residency.on_device(run).empty()) {
    Call mover(call.gpu(), "cuMemPrefetchAsync_v2");
    *result = fetch(lock, mover, allocation, run, &writable);
  }
  return true;
}

// What lies in the span in whole blocks is nobody's afterwards. Work that came before may read it still, and the
// program may write it next, so it is waited for.
CUresult ManagedSpace::discard(Call& call, ManagedSpan span) {
  Lock lock(mutex_);
  Allocation* const allocation = find_idle(lock, span.address);
  if (!allocation || allocation->dying) return CUDA_SUCCESS;
  const Run run = allocation->residency.blocks_within({span.address - allocation->base, span.bytes});
  if (!run.bytes) return CUDA_SUCCESS;
  const bool used = !allocation->residency.on_device(run).empty();
  const std::vector<Run> close = allocation->residency.to_device(run).close;
  set_busy(allocation, true);
  lock.unlock();
  CUresult result = CUDA_SUCCESS;
  if (used) {
    drain();
    result = settle(call, *allocation);
  }
  int error = 0;
  for (const Run& one : close) error = error ? error : guard_->take(allocation->base + one.offset, one.bytes);
  lock.lock();
  if (error) {  // they keep their bytes
    for (const Run& one : close) guard_->forget(allocation->base + one.offset, one.bytes);
    for (const Run& one : close) allocation->residency.came_to_host(one, true);
  } else if (result == CUDA_SUCCESS) {
    allocation->residency.discarded(run);
  }
  set_busy(allocation, false);
  return result;
}

void* ManagedSpace::serve(void* pointer) {
  auto* const gpu = static_cast<VirtualGpu*>(pointer);
  ManagedSpace& space = get();
  PageTouch touch;
  while (space.guard_->next(&touch)) space.touched(*gpu, touch);
  return nullptr;
}

CUresult ManagedSpace::start_threads(VirtualGpu& gpu) {
  std::lock_guard grow(grow_mutex_);
  if (guard_) return CUDA_SUCCESS;
  const char* why = "";
  PageGuard* const guard = gpu.transport->page_guard(&why);
  if (!guard) return CUDA_ERROR_NOT_SUPPORTED;
  sigset_t all, before;
  sigfillset(&all);
  pthread_sigmask(SIG_SETMASK, &all, &before);  // signals are for the program's own threads
  int started = 0;
  guard_ = guard;
  for (; started < kTouchThreads; ++started) {
    pthread_t thread;
    if (pthread_create(&thread, nullptr, serve, &gpu)) break;
    pthread_detach(thread);
  }
  pthread_sigmask(SIG_SETMASK, &before, nullptr);
  if (started) return CUDA_SUCCESS;
  guard_ = nullptr;
  return CUDA_ERROR_OUT_OF_MEMORY;
}

}  // namespace bandsaw::libcuda
