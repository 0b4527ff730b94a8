// What the figure programs share: medians of repeated runs, and one JSON line per result for tools/bench.
#pragma once

#include <cuda_runtime.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <vector>

#define CHECK(call)                                                             \
  do {                                                                          \
    const cudaError_t check_error = (call);                                     \
    if (check_error != cudaSuccess) {                                           \
      std::fprintf(stderr, "%s: %s\n", #call, cudaGetErrorString(check_error)); \
      std::exit(1);                                                             \
    }                                                                           \
  } while (0)

inline double now_us() {
  using namespace std::chrono;
  return duration<double, std::micro>(steady_clock::now().time_since_epoch()).count();
}

inline double median(std::vector<double> values) {
  std::nth_element(values.begin(), values.begin() + values.size() / 2, values.end());
  return values[values.size() / 2];
}

// Microseconds of one run of `work`, the median of `runs`.
template <typename Work>
double median_us(int runs, Work work) {
  std::vector<double> times;
  for (int i = 0; i < runs; ++i) {
    const double begin = now_us();
    work();
    times.push_back(now_us() - begin);
  }
  return median(times);
}

// Microseconds of issuing one launch, the median of `bursts`, after each of which the device is waited for: bursts
// small enough that they never fill the ring, so that only issuing is timed.
template <typename Launch>
double issue_us(int burst, int bursts, Launch launch) {
  std::vector<double> each;
  for (int i = 0; i < bursts; ++i) {
    const double begin = now_us();
    for (int k = 0; k < burst; ++k) launch();
    each.push_back((now_us() - begin) / burst);
    CHECK(cudaDeviceSynchronize());
  }
  return median(each);
}

// One result: what, the value and its unit, the value it is held against, and what ratio is wanted (0: none).
inline void report(const char* name, double value, const char* unit, double against, const char* what_against,
                   double ratio, const char* wanted) {
  std::printf(
      "{\"name\":\"%s\",\"value\":%.6g,\"unit\":\"%s\",\"against\":%.6g,\"baseline\":\"%s\",\"ratio\":%.4g,"
      "\"wanted\":\"%s\"}\n",
      name, value, unit, against, what_against, ratio, wanted);
  std::fflush(stdout);
}
