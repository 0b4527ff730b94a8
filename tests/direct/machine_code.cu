// nvcc: -gencode arch=compute_90,code=sm_90
// A program without PTX; says which error its launch gets.
#include <cstdio>

#include "../cuda/check.h"

__global__ void nothing() {}

int main() {
  nothing<<<1, 1>>>();
  std::printf("code %d\n", static_cast<int>(cudaGetLastError()));
  return 0;
}
