// A library of templates above us: Thrust's sort, scan, reduce, with their look-back and shuffles.
// long: yes
#include <thrust/device_vector.h>
#include <thrust/host_vector.h>
#include <thrust/reduce.h>
#include <thrust/scan.h>
#include <thrust/sort.h>

#include <algorithm>
#include <numeric>
#include <vector>

#include "check.h"

int main() {
  constexpr int kCount = 20000;
  std::vector<int> host(kCount);
  unsigned state = 17;
  for (int& value : host) value = static_cast<int>(state = state * 1664525u + 1013904223u) >> 8;
  thrust::device_vector<int> device(host.begin(), host.end());
  EXPECT_EQ(thrust::reduce(device.begin(), device.end(), 0),
            std::accumulate(host.begin(), host.end(), 0, [](int a, int b) {
              return static_cast<int>(static_cast<unsigned>(a) + static_cast<unsigned>(b));
            }));
  thrust::sort(device.begin(), device.end());
  std::sort(host.begin(), host.end());
  thrust::host_vector<int> sorted = device;
  for (int i = 0; i < kCount; ++i) EXPECT_EQ(sorted[i], host[i]);
  thrust::fill(device.begin(), device.end(), 2);
  thrust::exclusive_scan(device.begin(), device.end(), device.begin());
  sorted = device;
  for (int i = 0; i < kCount; ++i) EXPECT_EQ(sorted[i], 2 * i);
  return passed();
}
