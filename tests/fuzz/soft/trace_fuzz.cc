// What a runner has recorded of kernels: any bytes are refused, or can be replayed on a model.
#include <cstdlib>
#include <string>

#include "backend/device/soft/timing/simulate.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace bandsaw::soft::timing;
  std::string error;
  const auto launch = decode({reinterpret_cast<const char*>(data), size}, &error);
  if (!launch) return 0;
  constexpr uint64_t kCycles = 2000;
  const Timing timing = simulate(*launch, gtx480(), {"elf", 4, 8, 2}, kCycles);
  const Stalls& s = timing.sm.stalls;
  const uint64_t all =
      timing.sm.instructions + s.conflict + s.dependency + s.fetch + s.barrier + s.other + timing.sm.empty;
  if (timing.cycles > kCycles || all != timing.scheduler_cycles) std::abort();
  return 0;
}
