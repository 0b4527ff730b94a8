// What NVIDIA's driver does with other processes of CUDA: takes what they have off the GPUs, contexts too, and brings
// it back. It is the one call of this device that is about another process.
#include <cuda.h>
#include <dlfcn.h>

#include <cstdlib>

#include "backend/device/device.h"
#include "memory/base/log.h"

namespace bandsaw {
namespace {

constexpr unsigned kLockMostMs = 5000;

struct CheckpointCalls {
  decltype(&::cuCheckpointProcessGetState) state = nullptr;
  decltype(&::cuCheckpointProcessLock) lock = nullptr;
  decltype(&::cuCheckpointProcessCheckpoint) checkpoint = nullptr;
  decltype(&::cuCheckpointProcessRestore) restore = nullptr;
  decltype(&::cuCheckpointProcessUnlock) unlock = nullptr;
  decltype(&::cuGetErrorName) name = nullptr;
  Status status;
};

CheckpointCalls load_calls() {
  CheckpointCalls calls;
  const char* const chosen = std::getenv("BANDSAW_CUDA_DRIVER");
  void* const library = ::dlopen(chosen ? chosen : "libcuda.so.1", RTLD_NOW | RTLD_LOCAL);
  if (!library) {
    calls.status = Status::error(ENOENT, "no CUDA driver: {}", ::dlerror());
    return calls;
  }
  const auto find = [&](auto* call, const char* name) {
    *call = reinterpret_cast<std::remove_pointer_t<decltype(call)>>(::dlsym(library, name));
    if (!*call && calls.status.ok()) calls.status = Status::error(ENOTSUP, "the driver has no {}", name);
  };
  find(&calls.state, "cuCheckpointProcessGetState");
  find(&calls.lock, "cuCheckpointProcessLock");
  find(&calls.checkpoint, "cuCheckpointProcessCheckpoint");
  find(&calls.restore, "cuCheckpointProcessRestore");
  find(&calls.unlock, "cuCheckpointProcessUnlock");
  find(&calls.name, "cuGetErrorName");
  decltype(&::cuInit) init = nullptr;
  find(&init, "cuInit");
  if (!calls.status.ok()) return calls;
  const CUresult result = init(0);
  if (result != CUDA_SUCCESS) calls.status = Status::error(ENODEV, "cuInit: error {}", static_cast<int>(result));
  return calls;
}

const CheckpointCalls& checkpoint_calls() {
  static const CheckpointCalls calls = load_calls();
  return calls;
}

Status outcome(const CheckpointCalls& calls, const char* what, int pid, CUresult result) {
  if (result == CUDA_SUCCESS) return {};
  const char* name = nullptr;
  calls.name(result, &name);
  const int code = result == CUDA_ERROR_NOT_SUPPORTED ? ENOTSUP : result == CUDA_ERROR_OUT_OF_MEMORY ? ENOMEM : EIO;
  return Status::error(code, "{} of process {}: {}", what, pid, name ? name : "an unknown error");
}

Status take_off(const CheckpointCalls& calls, int pid) {
  CUcheckpointLockArgs lock{};
  lock.timeoutMs = kLockMostMs;
  if (Status status = outcome(calls, "the lock", pid, calls.lock(pid, &lock)); !status.ok()) return status;
  CUcheckpointCheckpointArgs checkpoint{};
  Status status = outcome(calls, "the checkpoint", pid, calls.checkpoint(pid, &checkpoint));
  if (status.ok()) return status;
  CUcheckpointUnlockArgs unlock{};
  const Status unlocked = outcome(calls, "the unlock", pid, calls.unlock(pid, &unlock));
  if (!unlocked.ok()) log::error("{}", unlocked.message());
  return status;
}

Status bring_back(const CheckpointCalls& calls, int pid) {
  CUprocessState state = CU_PROCESS_STATE_CHECKPOINTED;
  calls.state(pid, &state);
  if (state == CU_PROCESS_STATE_RUNNING) return {};
  if (state != CU_PROCESS_STATE_LOCKED) {
    CUcheckpointRestoreArgs restore{};
    if (Status status = outcome(calls, "the return", pid, calls.restore(pid, &restore)); !status.ok()) return status;
  }
  CUcheckpointUnlockArgs unlock{};
  return outcome(calls, "the unlock", pid, calls.unlock(pid, &unlock));
}

}  // namespace

Status prepare_cuda_checkpoints() { return checkpoint_calls().status; }

Status checkpoint_cuda_process(int pid, bool off) {
  const CheckpointCalls& calls = checkpoint_calls();
  if (!calls.status.ok()) return calls.status;
  return off ? take_off(calls, pid) : bring_back(calls, pid);
}

}  // namespace bandsaw
