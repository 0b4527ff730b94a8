// What NVIDIA's driver does with other processes of CUDA: takes what they have off the GPUs, contexts too, and brings
// it back. It is the one call of this device that is about another process.
#include <cuda.h>
#include <dlfcn.h>

#include <algorithm>
#include <cstdlib>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "backend/device/device.h"
#include "memory/base/log.h"

namespace bandsaw {
namespace {

constexpr unsigned kLockMostMs = 5000;
constexpr std::string_view kUuidPrefix = "GPU-";

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

// "GPU-" and 16 bytes in hexadecimal, with dashes between some.
Status read_uuid(const std::string& text, CUuuid* uuid) {
  size_t digits = 0;
  for (const char c : std::string_view(text).substr(std::min(text.size(), kUuidPrefix.size()))) {
    if (c == '-') continue;
    const auto half = std::string_view("0123456789abcdef").find(c);
    if (half == std::string_view::npos || digits == 2 * sizeof uuid->bytes) break;
    char& byte = uuid->bytes[digits++ / 2];
    byte = static_cast<char>(static_cast<unsigned char>(byte) << 4 | half);
  }
  const bool whole = text.starts_with(kUuidPrefix) && digits == 2 * sizeof uuid->bytes;
  return whole ? Status() : Status::error(EINVAL, "'{}' is no UUID of a GPU", text);
}

Status bring_back(const CheckpointCalls& calls, int pid, std::span<const GpuPair> moved) {
  std::vector<CUcheckpointGpuPair> pairs(moved.size());
  for (size_t i = 0; i < moved.size(); ++i) {
    Status status = read_uuid(moved[i].from, &pairs[i].oldUuid);
    if (status.ok()) status = read_uuid(moved[i].to, &pairs[i].newUuid);
    if (!status.ok()) return status;
  }
  CUprocessState state = CU_PROCESS_STATE_CHECKPOINTED;
  calls.state(pid, &state);
  if (state == CU_PROCESS_STATE_RUNNING) return {};
  if (state != CU_PROCESS_STATE_LOCKED) {
    CUcheckpointRestoreArgs restore{};
    restore.gpuPairs = pairs.empty() ? nullptr : pairs.data();
    restore.gpuPairsCount = static_cast<unsigned>(pairs.size());
    if (Status status = outcome(calls, "the return", pid, calls.restore(pid, &restore)); !status.ok()) return status;
  }
  CUcheckpointUnlockArgs unlock{};
  return outcome(calls, "the unlock", pid, calls.unlock(pid, &unlock));
}

}  // namespace

Status prepare_cuda_checkpoints() { return checkpoint_calls().status; }

Status checkpoint_cuda_process(int pid, bool off, std::span<const GpuPair> moved) {
  const CheckpointCalls& calls = checkpoint_calls();
  if (!calls.status.ok()) return calls.status;
  return off ? take_off(calls, pid) : bring_back(calls, pid, moved);
}

}  // namespace bandsaw
