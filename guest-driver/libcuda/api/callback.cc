// The threads that run the program's host functions and stream callbacks, one for each device.
//
// One starts with the first use and lives as long as the process. Like CUDA's own callback thread it runs one function
// at a time and has no current context; a function that needs one gets CUDA_ERROR_NOT_PERMITTED, and so does one that
// waits for the device, because what it waits for may wait for this thread.
#include <pthread.h>
#include <signal.h>

#include <mutex>

#include "guest-driver/libcuda/api/function_pace.h"
#include "guest-driver/libcuda/api/managed_space.h"
#include "guest-driver/libcuda/api/stream.h"
#include "guest-driver/libcuda/core/call.h"
#include "guest-driver/libcuda/core/process.h"
#include "guest-driver/libcuda/wire_client.h"

namespace bandsaw::libcuda {
namespace {

void run(const vgpu_callback& callback) {
  void* const data = reinterpret_cast<void*>(callback.data);
  if (callback.kind == VGPU_CALLBACK_STREAM) {
    reinterpret_cast<CUstreamCallback>(callback.function)(reinterpret_cast<CUstream>(callback.stream),
                                                          static_cast<CUresult>(callback.status), data);
  } else {
    reinterpret_cast<CUhostFn>(callback.function)(data);
  }
}

void* serve(void* pointer) {
  auto* const gpu = static_cast<VirtualGpu*>(pointer);
  this_thread().runs_callbacks = true;
  uint64_t finished = 0;
  for (;;) {
    vgpu_callback callback{};
    {
      Call call(*gpu);
      if (call.failed()) return nullptr;
      // A sticky error ends the program's work, not this thread: callbacks still come, with the error in them.
      const CUresult result = wire::next_callback(call, finished, &callback);
      if (result != CUDA_SUCCESS || callback.token == 0) return nullptr;
    }
    ManagedSpace& managed = ManagedSpace::get();
    if (managed.any()) managed.host_function_begins();
    run(callback);
    if (managed.any()) managed.host_function_ended(*gpu);
    FunctionPace::get().returned();
    finished = callback.token;
  }
}

}  // namespace

CUresult check_may_wait() { return this_thread().runs_callbacks ? CUDA_ERROR_NOT_PERMITTED : CUDA_SUCCESS; }

CUresult start_callback_thread(VirtualGpu& gpu) {
  static std::atomic<uint32_t> started{0};  // a bit for each part
  const uint32_t bit = 1u << gpu.part;
  if (started.load(std::memory_order_acquire) & bit) return CUDA_SUCCESS;
  static std::mutex& mutex = *new std::mutex;
  std::lock_guard lock(mutex);
  if (started.load(std::memory_order_relaxed) & bit) return CUDA_SUCCESS;
  sigset_t all, before;
  sigfillset(&all);
  pthread_sigmask(SIG_SETMASK, &all, &before);  // signals are for the program's own threads
  pthread_t thread;
  const int error = pthread_create(&thread, nullptr, serve, &gpu);
  pthread_sigmask(SIG_SETMASK, &before, nullptr);
  if (error) return CUDA_ERROR_OUT_OF_MEMORY;
  pthread_detach(thread);
  started.fetch_or(bit, std::memory_order_release);
  return CUDA_SUCCESS;
}

CUresult put_host_function(Call& call, uint64_t stream, uint64_t function, void* data, uint32_t kind) {
  CUresult result = start_callback_thread(call.gpu());
  bool is_node = false;
  const bool managed = ManagedSpace::get().any();
  if (result == CUDA_SUCCESS && managed) result = is_capturing(stream, &is_node);
  if (result != CUDA_SUCCESS) return result;
  const bool paced = managed && !is_node;
  if (paced) FunctionPace::get().sent();
  result = wire::stream_callback(call, stream, function, reinterpret_cast<uint64_t>(data), kind);
  if (result != CUDA_SUCCESS && paced) FunctionPace::get().returned();
  return result;
}

}  // namespace bandsaw::libcuda
