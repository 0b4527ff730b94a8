// The cost of a call: issuing an asynchronous one, and the round trip of a synchronous one.
#include "measure.h"

__global__ void nothing() {}

int main() {
  CHECK(cudaFree(nullptr));
  nothing<<<1, 32>>>();
  CHECK(cudaDeviceSynchronize());
  report("issue an asynchronous launch", issue_us(100, 60, [] { nothing<<<1, 32>>>(); }), "us", 0, "", 0, "<= 1");
  size_t free_bytes, total;
  const double round_trip = median_us(3000, [&] { cudaMemGetInfo(&free_bytes, &total); });
  report("round trip of a synchronous call", round_trip, "us", 0, "", 0, "<= 12");
  report("synchronize an idle stream", median_us(2000, [] { cudaStreamSynchronize(0); }), "us", 0, "", 0, "");
  const double pair = median_us(1000, [] {
    nothing<<<1, 32>>>();
    cudaDeviceSynchronize();
  });
  report("launch and synchronize", pair, "us", 0, "", 0, "");
  return 0;
}
