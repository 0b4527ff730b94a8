// Says how many devices a program sees.
#include <cstdio>

int main() {
  int count = 0;
  if (cudaGetDeviceCount(&count) != cudaSuccess) count = -1;
  std::printf("%d\n", count);
}
