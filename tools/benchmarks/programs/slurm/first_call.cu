// Says when its first CUDA call was over, by the clock that all processes of this machine share.
#include <cstdio>
#include <ctime>

int main() {
  if (cudaFree(nullptr) != cudaSuccess) return 1;
  timespec now{};
  clock_gettime(CLOCK_MONOTONIC, &now);
  std::printf("at %ld.%09ld\n", static_cast<long>(now.tv_sec), now.tv_nsec);
  return 0;
}
