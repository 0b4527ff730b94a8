// A stream waits for an event of another device: its runner holds the stream's next work back until a word in host
// memory changes, which a thread of this process sees to. That thread asks the other device after a copy of the event,
// recorded on a stream of its own, because the program may record the event anew at any time.
#include <pthread.h>
#include <signal.h>
#include <time.h>

#include <algorithm>
#include <atomic>
#include <condition_variable>
#include <mutex>
#include <set>
#include <vector>

#include "guest-driver/libcuda/api/across.h"
#include "guest-driver/libcuda/api/event.h"
#include "guest-driver/libcuda/core/context.h"
#include "guest-driver/libcuda/core/host_blocks.h"
#include "guest-driver/libcuda/wire_client.h"

namespace bandsaw::libcuda {
namespace {

constexpr uint64_t kWordsBytes = 4096;
// Between two looks: at first, and when nothing has come for long.
constexpr uint64_t kLooksForAll = 32;
constexpr long kLookSoonNs = 20'000, kLookLateNs = 500'000;

// Where an event of another device is copied to: one wait at a time.
struct EventCopy {
  VirtualGpu* gpu = nullptr;
  uint64_t context = 0, stream = 0, event = 0;
};

// Counts up, so that who waits for an older value goes on, too.
struct HoldWord {
  uint64_t* at = nullptr;
  uint64_t value = 0;  // that the next wait is for
};

struct AcrossWait {
  uint64_t event = 0;  // the program's
  EventCopy copy;
  HoldWord word;
};

struct AcrossWaits {
  std::mutex mutex;  // guards the following
  std::condition_variable more;
  std::vector<AcrossWait> pending;
  std::vector<EventCopy> copies;  // free ones
  std::vector<HoldWord> words;    // free ones
  bool started = false;
};

AcrossWaits& across_waits() {
  static auto* const all = new AcrossWaits;
  return *all;
}

void forget_event_copies(Context* context) {
  std::lock_guard lock(across_waits().mutex);
  std::erase_if(across_waits().copies, [&](const EventCopy& copy) { return copy.context == context->handle; });
}

CUresult take_copy(Call& there, EventCopy* copy) {
  static const bool hooked = (on_context_ended(forget_event_copies), true);
  static_cast<void>(hooked);
  {
    std::lock_guard lock(across_waits().mutex);
    auto& free = across_waits().copies;
    const auto found =
        std::find_if(free.begin(), free.end(), [&](const EventCopy& one) { return one.context == there.context(); });
    if (found != free.end()) {
      *copy = *found;
      free.erase(found);
      return CUDA_SUCCESS;
    }
  }
  copy->gpu = &there.gpu();
  copy->context = there.context();
  const CUresult result = wire::stream_create(there, CU_STREAM_NON_BLOCKING, 0, &copy->stream);
  return result == CUDA_SUCCESS ? wire::event_create(there, CU_EVENT_DISABLE_TIMING, &copy->event) : result;
}

CUresult take_word(VirtualGpu& gpu, HoldWord* word) {
  std::unique_lock lock(across_waits().mutex);
  auto& free = across_waits().words;
  if (free.empty()) {
    lock.unlock();
    SharedBlock block;
    const CUresult result = host_blocks().allocate(gpu, kWordsBytes, &block);
    if (result != CUDA_SUCCESS) return result;
    lock.lock();
    auto* const words = static_cast<uint64_t*>(block.address);
    for (size_t i = 0; i < kWordsBytes / sizeof(uint64_t); ++i) free.push_back({words + i, 1});
  }
  *word = free.back();
  free.pop_back();
  return CUDA_SUCCESS;
}

// An error of the other device ends the wait as well: that device's own calls tell of it.
bool is_over(const EventCopy& copy) {
  Call call(*copy.gpu);
  return wire::event_query(call, copy.event) != CUDA_ERROR_NOT_READY;
}

// With the lock held, which it gives up while it asks. Whether a wait has ended.
bool look_after(std::unique_lock<std::mutex>& lock, size_t at) {
  const AcrossWait wait = across_waits().pending[at];
  lock.unlock();
  const bool over = is_over(wait.copy);
  if (over) __atomic_store_n(wait.word.at, wait.word.value, __ATOMIC_RELEASE);
  lock.lock();
  if (!over) return false;
  auto& all = across_waits();
  all.pending.erase(all.pending.begin() + static_cast<std::ptrdiff_t>(at));  // others are added at the end only
  all.words.push_back({wait.word.at, wait.word.value + 1});
  if (wait.copy.gpu->health() == CUDA_SUCCESS && context_of_handle(wait.copy.context)) all.copies.push_back(wait.copy);
  return true;
}

void* look_after_all(void*) {
  auto& all = across_waits();
  std::unique_lock lock(all.mutex);
  uint64_t looks = 0;
  for (long pause = kLookSoonNs;;) {
    all.more.wait(lock, [&] { return !all.pending.empty(); });
    bool any = false;
    std::set<uint64_t> asked;
    ++looks;
    for (size_t at = 0; at < all.pending.size();) {
      // What was recorded later usually ends later; where it does not, it is noticed a little later.
      if (!asked.insert(all.pending[at].event).second && looks % kLooksForAll) {
        ++at;
        continue;
      }
      const bool ended = look_after(lock, at);
      any = any || ended;
      at += ended ? 0 : 1;
    }
    pause = any ? kLookSoonNs : std::min(pause * 5 / 4, kLookLateNs);
    if (any) continue;
    lock.unlock();
    const timespec some{0, pause};
    nanosleep(&some, nullptr);
    lock.lock();
  }
  return nullptr;
}

// With the lock held. False: no room for a thread.
bool start_looking() {
  if (across_waits().started) return true;
  sigset_t everything, before;
  sigfillset(&everything);
  pthread_sigmask(SIG_SETMASK, &everything, &before);  // signals are for the program's own threads
  pthread_t thread;
  const int error = pthread_create(&thread, nullptr, look_after_all, nullptr);
  pthread_sigmask(SIG_SETMASK, &before, nullptr);
  if (!error) pthread_detach(thread);
  across_waits().started = !error;
  return !error;
}

// The work that the event stands for, as it is now.
CUresult copy_event(uint64_t event, EventCopy* copy) {
  const EventRecord* const record = events().find(event);
  VirtualGpu* const gpu = gpu_of_part(part_of_handle(event));
  if (!record || !gpu) return CUDA_ERROR_INVALID_HANDLE;
  Call there(*gpu);
  there.set_context(record->context);
  CUresult result = there.failed() ? there.status() : wire::event_query(there, event);
  if (result != CUDA_ERROR_NOT_READY) return result;
  result = take_copy(there, copy);
  if (result == CUDA_SUCCESS) result = wire::stream_wait_event(there, copy->stream, event, 0);
  if (result == CUDA_SUCCESS) result = wire::event_record(there, copy->event, copy->stream, 0);
  return result == CUDA_SUCCESS ? CUDA_ERROR_NOT_READY : result;
}

}  // namespace

CUresult wait_across(Call& call, uint64_t stream, uint64_t event) {
  CUresult result = check_across(stream);
  if (result != CUDA_SUCCESS) return result;
  if (!call.gpu().calls.opcode(wire::Opcode::kStreamHold)) {
    Call there;
    return wire::event_synchronize(there, event);
  }
  AcrossWait wait;
  wait.event = event;
  result = copy_event(event, &wait.copy);
  if (result != CUDA_ERROR_NOT_READY) return result;  // done already: nothing to wait for
  result = take_word(call.gpu(), &wait.word);
  if (result != CUDA_SUCCESS) return result;
  {
    std::lock_guard lock(across_waits().mutex);
    if (!start_looking()) return CUDA_ERROR_OUT_OF_MEMORY;
    across_waits().pending.push_back(wait);
    across_waits().more.notify_one();
  }
  return wire::stream_hold(call, stream, reinterpret_cast<uint64_t>(wait.word.at), wait.word.value);
}

}  // namespace bandsaw::libcuda
