// Contexts as the guest keeps them. A CUcontext that a program holds is a pointer to one of these; they are never
// freed, so a stale one is recognised instead of crashing.
#pragma once

#include <cuda.h>

#include <cstdint>
#include <mutex>

namespace bandsaw::libcuda {

class LocalStorage;
struct VirtualGpu;

// Some of the device's SMs; count 0: all.
struct SmRange {
  uint32_t first = 0, count = 0;
};

// What a program has said of the queues of a green context (api/green_queue.h).
struct QueueConfig {
  unsigned limit = 0;  // how much they have at once; 0: the usual
  unsigned scope = 0;  // CUdevWorkqueueConfigScope
};

struct Context {
  uint64_t handle = 0;        // on the wire; 0 while it does not live on the host
  uint64_t id = 0;            // cuCtxGetId; another one after each reset
  CUdevice device = 0;        // the ordinal of `gpu`
  VirtualGpu* gpu = nullptr;  // never null
  unsigned flags = 0;
  unsigned api_version = 3020;
  bool primary = false;
  SmRange sms;            // of a green context (green.cc), whose handle is the primary one's
  QueueConfig queues;     // likewise
  unsigned retains = 0;   // of the primary context
  unsigned attaches = 0;  // cuCtxAttach less cuCtxDetach
  CUfunc_cache cache_config = CU_FUNC_CACHE_PREFER_NONE;

  LocalStorage* storage = nullptr;  // what other libraries keep about this context; never null

  bool alive() const { return handle != 0; }
};

inline CUcontext to_program(Context* context) { return reinterpret_cast<CUcontext>(context); }

// The context that a program means; NULL means the current one. nullptr if there is no such context.
Context* from_program(CUcontext context);

// The calling thread's current context, or nullptr.
Context* current_context();

// A living context of that virtual GPU: its primary one if that lives; nullptr: it has none.
Context* any_context(const VirtualGpu& gpu);
// The context with this handle (a green one's handle is its primary one's); nullptr: none.
Context* context_of_handle(uint64_t handle);

// Called when a context's objects are going away on the host (destroy, reset, last release of the primary one), before
// the wire call: for what the guest keeps about the context. Adding the same function twice adds it once; at
// most 32.
using ContextEnded = void (*)(Context* context);
void on_context_ended(ContextEnded function);

// Called when the program is about to wait for a context, a stream or an event, and when it has waited. One function
// is remembered for each.
void on_synchronising(void (*function)());
void tell_synchronising();
void on_synchronised(void (*function)());
void tell_synchronised();

// For the entry points about contexts.
Context* new_context(VirtualGpu* gpu, bool primary);  // known to from_program from now on
void end_context(Context* context);                   // runs the functions above and the storage's destructors
// Whether a context may have these flags: CU_CTX_*, of CU_CTX_SCHED_* one at most.
bool are_flags(unsigned flags);
// Whether they are among those that CUDA names.
inline bool is_configuration(CUfunc_cache cache) {
  return cache >= CU_FUNC_CACHE_PREFER_NONE && cache <= CU_FUNC_CACHE_PREFER_EQUAL;
}
inline bool is_configuration(CUsharedconfig shared) {
  return shared >= CU_SHARED_MEM_CONFIG_DEFAULT_BANK_SIZE && shared <= CU_SHARED_MEM_CONFIG_EIGHT_BYTE_BANK_SIZE;
}
// What a program is told of a context's: of a primary one, that host memory can be mapped, and nothing of core dumps.
inline unsigned told_flags(const Context& context) {
  const unsigned told = context.flags & (CU_CTX_SCHED_MASK | CU_CTX_LMEM_RESIZE_TO_MAX | CU_CTX_MAP_HOST);
  return context.primary ? told | CU_CTX_MAP_HOST : told;
}

std::mutex& context_mutex();  // guards handle, flags and retains against other entry points' changes

}  // namespace bandsaw::libcuda
