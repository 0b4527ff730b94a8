// Events: time between them, queries, and the errors of wrong use.
#include "check.h"

__global__ void wait(long long nanoseconds) {
  unsigned long long begin, now;
  asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(begin));
  do asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(now));
  while (now - begin < static_cast<unsigned long long>(nanoseconds));
}

int main() {
  cudaEvent_t begin, end, untimed, never;
  CHECK(cudaEventCreate(&begin));
  CHECK(cudaEventCreateWithFlags(&end, cudaEventBlockingSync));
  CHECK(cudaEventCreateWithFlags(&untimed, cudaEventDisableTiming));
  CHECK(cudaEventCreate(&never));
  CHECK(cudaEventRecord(begin));
  wait<<<1, 1>>>(20'000'000);
  CHECK(cudaEventRecord(end));
  CHECK(cudaEventRecord(untimed));
  EXPECT_CODE(cudaErrorNotReady, cudaEventQuery(end));
  float milliseconds = -1;
  EXPECT_CODE(cudaErrorNotReady, cudaEventElapsedTime(&milliseconds, begin, end));
  CHECK(cudaEventSynchronize(end));
  CHECK(cudaEventQuery(end));
  CHECK(cudaEventElapsedTime(&milliseconds, begin, end));
  EXPECT(milliseconds > 19.5f && milliseconds < 2000);
  EXPECT_CODE(cudaErrorInvalidResourceHandle, cudaEventElapsedTime(&milliseconds, begin, never));
  CHECK(cudaEventSynchronize(untimed));
  EXPECT_CODE(cudaErrorInvalidResourceHandle, cudaEventElapsedTime(&milliseconds, begin, untimed));
  CHECK(cudaEventSynchronize(never));  // never recorded: nothing to wait for
  CHECK(cudaEventQuery(never));
  CHECK(cudaEventRecord(begin));  // recorded anew: the later point counts
  CHECK(cudaEventSynchronize(begin));
  CHECK(cudaEventElapsedTime(&milliseconds, end, begin));
  EXPECT(milliseconds >= 0);
  for (cudaEvent_t event : {begin, end, untimed, never}) CHECK(cudaEventDestroy(event));
  return passed();
}
