// Contexts as the guest keeps them. A CUcontext that a program holds is a pointer to one of these; they are never
// freed, so a stale one is recognised instead of crashing.
#pragma once

#include <cuda.h>

#include <cstdint>
#include <mutex>
#include <vector>

namespace bandsaw::libcuda {

struct Context {
  uint64_t handle = 0;  // on the wire; 0 while it does not live on the host
  uint64_t id = 0;      // cuCtxGetId; another one after each reset
  CUdevice device = 0;
  unsigned flags = 0;
  unsigned api_version = 3020;
  bool primary = false;
  unsigned retains = 0;  // of the primary context
  CUfunc_cache cache_config = CU_FUNC_CACHE_PREFER_NONE;
  CUsharedconfig shared_config = CU_SHARED_MEM_CONFIG_FOUR_BYTE_BANK_SIZE;

  bool alive() const { return handle != 0; }
};

inline CUcontext to_program(Context* context) { return reinterpret_cast<CUcontext>(context); }

// The context that a program means; NULL means the current one. nullptr if there is no such context.
Context* from_program(CUcontext context);

// The calling thread's current context, or nullptr.
Context* current_context();

// The primary context of the only device, alive or not.
Context* primary_context();

// Called when a context's objects are going away on the host (destroy, reset, last release of the primary one), before
// the wire call: for what the guest keeps about the context. Adding the same function twice adds it once; at
// most 16.
using ContextEnded = void (*)(Context* context);
void on_context_ended(ContextEnded function);

}  // namespace bandsaw::libcuda
