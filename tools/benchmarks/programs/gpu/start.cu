// From the start of the process to its first completed CUDA calls. Argument: CLOCK_MONOTONIC in ns when it was spawned.
#include <time.h>

#include "program.h"

__global__ void nothing() {}

static double monotonic_ms() {
  timespec now;
  clock_gettime(CLOCK_MONOTONIC, &now);
  return now.tv_sec * 1e3 + now.tv_nsec / 1e6;
}

int main(int argc, char** argv) {
  const double entered = monotonic_ms();
  const double spawned = argc > 1 ? std::strtoull(argv[1], nullptr, 10) / 1e6 : entered;
  CHECK(cudaFree(nullptr));
  const double first = monotonic_ms();
  nothing<<<1, 32>>>();
  CHECK(cudaDeviceSynchronize());
  const double launched = monotonic_ms();
  value("program start to main", entered - spawned, "ms");
  value("program start to first completed call", first - spawned, "ms");
  value("program start to first completed kernel", launched - spawned, "ms");
  return 0;
}
