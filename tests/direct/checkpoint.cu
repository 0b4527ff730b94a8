// nvcc: -lcuda
// Has another process checkpointed, by its number. Arguments: the number, then any of: state, lock (a second at most),
// checkpoint, restore, unlock, and pairs (a restore that names virtual GPUs that the process was not on). For each
// prints the code that it returns, and the state after it: "lock 0 1". Ends with 0. Does not call cuInit.
#include <cuda.h>

#include <cstdio>
#include <cstdlib>
#include <cstring>

static CUresult carry_out(const char* what, int pid) {
  CUcheckpointLockArgs a_second{};
  a_second.timeoutMs = 1000;
  CUcheckpointGpuPair pair{};
  pair.newUuid.bytes[0] = 1;
  CUcheckpointRestoreArgs elsewhere{};
  elsewhere.gpuPairs = &pair;
  elsewhere.gpuPairsCount = 1;
  CUprocessState state;
  if (std::strcmp(what, "lock") == 0) return cuCheckpointProcessLock(pid, &a_second);
  if (std::strcmp(what, "checkpoint") == 0) return cuCheckpointProcessCheckpoint(pid, nullptr);
  if (std::strcmp(what, "restore") == 0) return cuCheckpointProcessRestore(pid, nullptr);
  if (std::strcmp(what, "pairs") == 0) return cuCheckpointProcessRestore(pid, &elsewhere);
  if (std::strcmp(what, "unlock") == 0) return cuCheckpointProcessUnlock(pid, nullptr);
  return cuCheckpointProcessGetState(pid, &state);
}

int main(int argc, char** argv) {
  if (argc < 2) return 1;
  const int pid = std::atoi(argv[1]);
  for (int i = 2; i < argc; ++i) {
    const CUresult result = carry_out(argv[i], pid);
    CUprocessState state = CU_PROCESS_STATE_FAILED;
    cuCheckpointProcessGetState(pid, &state);
    std::printf("%s %d %d\n", argv[i], result, state), std::fflush(stdout);
  }
  return 0;
}
