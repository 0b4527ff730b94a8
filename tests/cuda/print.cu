// Kernel printf reaches the program's standard output, in order with its own.
// vm: yes
// output: before 1
// output: int -5 unsigned 7 hex ff char x string abc percent %
// output: float 1.500 wide 123456789012 pointer 0x10
// output: thread 3 of block 1
// output: after 2
#include "check.h"

__global__ void speak(const char* text) {
  if (threadIdx.x == 0 && blockIdx.x == 0) {
    printf("int %d unsigned %u hex %x char %c string %s percent %%\n", -5, 7u, 255, 'x', text);
    printf("float %.3f wide %lld pointer %p\n", 1.5, 123456789012ll, reinterpret_cast<void*>(16));
  }
}

__global__ void each() { printf("thread %d of block %d\n", threadIdx.x, blockIdx.x); }

int main() {
  char* text;
  CHECK(cudaMalloc(&text, 16));
  CHECK(cudaMemcpy(text, "abc", 4, cudaMemcpyHostToDevice));
  std::printf("before 1\n");
  speak<<<2, 32>>>(text);
  CHECK(cudaDeviceSynchronize());
  each<<<2, 4>>>();
  CHECK(cudaDeviceSynchronize());
  std::printf("after 2\n");
  return passed();
}
