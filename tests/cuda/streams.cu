// Streams: order within, legacy default stream between, non-blocking ones beside; queries and waits.
#include "check.h"

__global__ void spin_then_add(volatile int* at, long long nanoseconds, int value) {
  unsigned long long begin, now;
  asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(begin));
  do asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(now));
  while (now - begin < static_cast<unsigned long long>(nanoseconds));
  *at = *at * 10 + value;
}

int main() {
  constexpr long long kLong = 30'000'000;
  int* data;
  CHECK(cudaMalloc(&data, 64));
  CHECK(cudaMemset(data, 0, 64));
  cudaStream_t a, b, free_running;
  CHECK(cudaStreamCreate(&a));
  CHECK(cudaStreamCreate(&b));
  CHECK(cudaStreamCreateWithFlags(&free_running, cudaStreamNonBlocking));

  spin_then_add<<<1, 1, 0, a>>>(data, kLong, 1);  // a, then the default stream, then b
  spin_then_add<<<1, 1>>>(data, 0, 2);
  spin_then_add<<<1, 1, 0, b>>>(data, 0, 3);
  EXPECT_CODE(cudaErrorNotReady, cudaStreamQuery(a));
  EXPECT_CODE(cudaErrorNotReady, cudaStreamQuery(b));
  CHECK(cudaStreamQuery(free_running));
  CHECK(cudaStreamSynchronize(b));
  CHECK(cudaStreamQuery(a));
  int got = 0;
  CHECK(cudaMemcpy(&got, data, 4, cudaMemcpyDeviceToHost));
  EXPECT_EQ(got, 123);

  cudaEvent_t event;
  CHECK(cudaEventCreateWithFlags(&event, cudaEventDisableTiming));
  CHECK(cudaMemset(data, 0, 4));
  spin_then_add<<<1, 1, 0, free_running>>>(data, kLong, 4);
  CHECK(cudaEventRecord(event, free_running));
  CHECK(cudaStreamWaitEvent(b, event, 0));
  spin_then_add<<<1, 1, 0, b>>>(data, 0, 5);
  CHECK(cudaDeviceSynchronize());
  CHECK(cudaMemcpy(&got, data, 4, cudaMemcpyDeviceToHost));
  EXPECT_EQ(got, 45);

  int least, greatest, priority;
  CHECK(cudaDeviceGetStreamPriorityRange(&least, &greatest));
  cudaStream_t urgent;
  CHECK(cudaStreamCreateWithPriority(&urgent, cudaStreamNonBlocking, greatest));
  CHECK(cudaStreamGetPriority(urgent, &priority));
  EXPECT_EQ(priority, greatest);
  unsigned flags = 0;
  CHECK(cudaStreamGetFlags(urgent, &flags));
  EXPECT_EQ(flags, static_cast<unsigned>(cudaStreamNonBlocking));
  spin_then_add<<<1, 1, 0, a>>>(data, kLong, 1);
  CHECK(cudaStreamDestroy(a));  // its work is finished all the same
  CHECK(cudaDeviceSynchronize());
  CHECK(cudaMemcpy(&got, data, 4, cudaMemcpyDeviceToHost));
  EXPECT_EQ(got, 451);
  for (cudaStream_t stream : {b, free_running, urgent}) CHECK(cudaStreamDestroy(stream));
  CHECK(cudaEventDestroy(event));
  return passed();
}
