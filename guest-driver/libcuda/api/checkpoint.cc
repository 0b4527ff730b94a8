// cuCheckpointProcess*: other processes of this virtual GPU are locked, leave the device and come back. Their sessions
// do it (backend/session/process_checkpoints.h); a process of several virtual GPUs is asked for on each of them.
#include <algorithm>
#include <cstring>
#include <span>
#include <vector>

#include "guest-driver/libcuda/core/call.h"
#include "guest-driver/libcuda/core/process.h"
#include "guest-driver/libcuda/core/virtual_gpu.h"
#include "guest-driver/libcuda/wire_client.h"

namespace bandsaw::libcuda {
namespace {

static_assert(int{CU_PROCESS_STATE_LOCKED} == int{VGPU_PROCESS_LOCKED} &&
              int{CU_PROCESS_STATE_CHECKPOINTED} == int{VGPU_PROCESS_CHECKPOINTED});

// Who only looks after other processes need not have called cuInit: NVIDIA's own example does not.
CUresult make_ready() { return state() == State::kUninitialised ? cuInit(0) : CUDA_SUCCESS; }

CUresult ask(VirtualGpu& gpu, uint32_t action, int pid, uint32_t timeout_ms, uint32_t* state, const char* entry) {
  Call call(gpu, entry);
  if (call.failed()) return call.status();
  return wire::checkpoint_process(call, action, static_cast<uint32_t>(pid), timeout_ms, state);
}

// On each virtual GPU that knows the process; all of them or, if one fails, none.
CUresult do_on_all(uint32_t action, uint32_t undo, int pid, uint32_t timeout_ms = 0,
                   const char* entry = __builtin_FUNCTION()) {
  const CUresult ready = make_ready();
  if (ready != CUDA_SUCCESS) return ready;
  std::vector<VirtualGpu*> done;
  uint32_t state = 0;
  for (int ordinal = 0; ordinal < gpu_count(); ++ordinal) {
    const CUresult result = ask(gpu_at(ordinal), action, pid, timeout_ms, &state, entry);
    if (result == CUDA_SUCCESS) done.push_back(&gpu_at(ordinal));
    if (result == CUDA_SUCCESS || result == CUDA_ERROR_INVALID_VALUE) continue;
    for (VirtualGpu* const gpu : done) ask(*gpu, undo, pid, 0, &state, entry);
    return result;
  }
  return done.empty() ? CUDA_ERROR_INVALID_VALUE : CUDA_SUCCESS;
}

// What is reserved must be zero, so that it may mean something one day.
bool is_zero(std::span<const std::byte> bytes) {
  return std::all_of(bytes.begin(), bytes.end(), [](std::byte byte) { return byte == std::byte{}; });
}

// A process comes back to the virtual GPU that it was on.
CUresult check_pairs(const CUcheckpointRestoreArgs& args) {
  if (!is_zero(std::as_bytes(std::span(args.reserved))) || args.reserved1 != 0) return CUDA_ERROR_INVALID_VALUE;
  if (args.gpuPairsCount != 0 && !args.gpuPairs) return CUDA_ERROR_INVALID_VALUE;
  for (unsigned i = 0; i < args.gpuPairsCount; ++i) {
    const CUcheckpointGpuPair& pair = args.gpuPairs[i];
    if (std::memcmp(&pair.oldUuid, &pair.newUuid, sizeof pair.oldUuid) != 0) return CUDA_ERROR_NOT_SUPPORTED;
  }
  return CUDA_SUCCESS;
}

}  // namespace
}  // namespace bandsaw::libcuda

using namespace bandsaw::libcuda;  // NOLINT: entry points below

extern "C" {

CUresult cuCheckpointProcessGetState(int pid, CUprocessState* state) {
  const CUresult ready = make_ready();
  if (ready != CUDA_SUCCESS) return ready;
  if (!state) return CUDA_ERROR_INVALID_VALUE;
  CUresult result = CUDA_ERROR_INVALID_VALUE;
  for (int ordinal = 0; ordinal < gpu_count() && result == CUDA_ERROR_INVALID_VALUE; ++ordinal) {
    uint32_t is = 0;
    result = ask(gpu_at(ordinal), VGPU_CHECKPOINT_STATE, pid, 0, &is, __func__);
    if (result == CUDA_SUCCESS) *state = static_cast<CUprocessState>(is);
  }
  return result;
}

CUresult cuCheckpointProcessLock(int pid, CUcheckpointLockArgs* args) {
  if (args && (args->reserved0 != 0 || !is_zero(std::as_bytes(std::span(args->reserved1))))) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  return do_on_all(VGPU_CHECKPOINT_LOCK, VGPU_CHECKPOINT_UNLOCK, pid, args ? args->timeoutMs : 0);
}

CUresult cuCheckpointProcessCheckpoint(int pid, CUcheckpointCheckpointArgs* args) {
  if (args && !is_zero(std::as_bytes(std::span(args->reserved)))) return CUDA_ERROR_INVALID_VALUE;
  return do_on_all(VGPU_CHECKPOINT_SAVE, VGPU_CHECKPOINT_RESTORE, pid);
}

CUresult cuCheckpointProcessRestore(int pid, CUcheckpointRestoreArgs* args) {
  const CUresult usable = args ? check_pairs(*args) : CUDA_SUCCESS;
  return usable == CUDA_SUCCESS ? do_on_all(VGPU_CHECKPOINT_RESTORE, VGPU_CHECKPOINT_SAVE, pid) : usable;
}

CUresult cuCheckpointProcessUnlock(int pid, CUcheckpointUnlockArgs* args) {
  if (args && !is_zero(std::as_bytes(std::span(args->reserved)))) return CUDA_ERROR_INVALID_VALUE;
  return do_on_all(VGPU_CHECKPOINT_UNLOCK, VGPU_CHECKPOINT_LOCK, pid);
}

}  // extern "C"
