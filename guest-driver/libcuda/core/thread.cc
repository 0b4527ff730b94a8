#include "guest-driver/libcuda/core/thread.h"

#include <pthread.h>

#include "guest-driver/libcuda/core/command_ring.h"
#include "guest-driver/libcuda/core/process.h"

namespace bandsaw::libcuda {
namespace {

// A plain pointer without a destructor, so that calls from other libraries' thread-exit code still work; the key only
// tells when a thread ends.
__thread ThreadState* current_thread = nullptr;
pthread_key_t end_key;
pthread_once_t end_key_once = PTHREAD_ONCE_INIT;

void thread_ended(void* pointer) {
  auto* thread = static_cast<ThreadState*>(pointer);
  current_thread = nullptr;
  if (state() != State::kUninitialised) {
    for (uint32_t part = 0; part < kGpusMax; ++part) {
      if (thread->rings[part]) gpu_of_part(part)->rings->give_back(thread->rings[part]);
    }
  }
  delete thread;
}

ThreadState* make_thread_state() {
  pthread_once(&end_key_once, [] { pthread_key_create(&end_key, thread_ended); });
  current_thread = new ThreadState;
  pthread_setspecific(end_key, current_thread);
  return current_thread;
}

}  // namespace

ThreadState& this_thread() { return current_thread ? *current_thread : *make_thread_state(); }

}  // namespace bandsaw::libcuda
