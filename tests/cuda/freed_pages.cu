// Host buffers of a megabyte that live for one step each: they have their pages from one step to the next.
// native: no
#include <sys/resource.h>

#include <cstdlib>
#include <cstring>

#include "check.h"

static long page_faults() {
  rusage usage;
  EXPECT(getrusage(RUSAGE_SELF, &usage) == 0);
  return usage.ru_minflt;
}

int main() {
  constexpr size_t kBytes = 1 << 20;
  constexpr int kSteps = 50;
  void* device;
  CHECK(cudaMalloc(&device, kBytes));
  long before = 0;
  for (int step = -10; step < kSteps; ++step) {
    if (step == 0) before = page_faults();
    auto* const out = static_cast<char*>(std::malloc(kBytes));
    auto* const back = static_cast<char*>(std::malloc(kBytes));
    std::memset(out, step, kBytes);
    CHECK(cudaMemcpy(device, out, kBytes, cudaMemcpyHostToDevice));
    CHECK(cudaMemcpy(back, device, kBytes, cudaMemcpyDeviceToHost));
    EXPECT(std::memcmp(out, back, kBytes) == 0);
    std::free(out);
    std::free(back);
  }
  const long faults = page_faults() - before;
  std::printf("%ld page faults in %d steps\n", faults, kSteps);
  EXPECT(faults < kSteps * 50);  // of 512 pages
  return passed();
}
