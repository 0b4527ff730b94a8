// A kernel that waits for one which is launched later, on another stream: both run at once. What the legacy stream did
// before, and the time that passes between the two launches, change nothing.
#include <chrono>
#include <thread>

#include "check.h"

__global__ void produce(int* data, volatile int* flag) {
  *data = 7;
  __threadfence();
  *flag = 1;
}

__global__ void consume(const int* data, const volatile int* flag, int* result) {
  while (*flag == 0) {
  }
  __threadfence();
  *result = *data;
}

int main() {
  int *data, *flag, *result;
  CHECK(cudaMalloc(&data, 4));
  CHECK(cudaMalloc(&flag, 4));
  CHECK(cudaMalloc(&result, 4));
  for (const unsigned flags : {cudaStreamDefault, cudaStreamNonBlocking}) {
    cudaStream_t consumer, producer;
    CHECK(cudaStreamCreateWithFlags(&consumer, flags));
    CHECK(cudaStreamCreateWithFlags(&producer, flags));
    produce<<<1, 1, 0, producer>>>(data, flag);  // both are loaded before one of them waits
    consume<<<1, 1, 0, consumer>>>(data, flag, result);
    CHECK(cudaDeviceSynchronize());
    for (const int milliseconds : {0, 1, 5, 30}) {
      CHECK(cudaMemset(flag, 0, 4));
      CHECK(cudaMemset(result, 0, 4));
      if (flags == cudaStreamNonBlocking) CHECK(cudaDeviceSynchronize());
      consume<<<1, 1, 0, consumer>>>(data, flag, result);
      std::this_thread::sleep_for(std::chrono::milliseconds(milliseconds));
      produce<<<1, 1, 0, producer>>>(data, flag);
      CHECK(cudaDeviceSynchronize());
      int value = 0;
      CHECK(cudaMemcpy(&value, result, 4, cudaMemcpyDeviceToHost));
      EXPECT_EQ(value, 7);
    }
    CHECK(cudaStreamDestroy(consumer));
    CHECK(cudaStreamDestroy(producer));
  }
  return passed();
}
