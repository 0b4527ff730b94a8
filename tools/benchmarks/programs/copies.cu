// Host-to-device and device-to-host copies of many sizes against memcpy, in turns in one run. Argument: largest MiB.
#include <cstring>
#include <string>

#include "measure.h"

static std::string size_name(size_t bytes) {
  if (bytes >= 1 << 20) return std::to_string(bytes >> 20) + " MiB";
  if (bytes >= 1 << 10) return std::to_string(bytes >> 10) + " KiB";
  return std::to_string(bytes) + " B";
}

struct Times {
  std::vector<double> plain, in, out, pinned_in, pinned_out;
};

static void one_size(size_t bytes) {
  std::vector<char> from(bytes, 1), to(bytes, 2);
  char *device, *pinned;
  CHECK(cudaMalloc(&device, bytes));
  CHECK(cudaMallocHost(&pinned, bytes));
  std::memset(pinned, 3, bytes);
  Times times;
  const int runs = bytes >= 16 << 20 ? 9 : bytes >= 1 << 20 ? 40 : 400;
  const auto timed = [](std::vector<double>& list, auto work) {
    const double begin = now_us();
    work();
    list.push_back(now_us() - begin);
  };
  for (int i = 0; i < runs + 1; ++i) {
    timed(times.plain, [&] { std::memcpy(to.data(), from.data(), bytes); });
    timed(times.in, [&] { CHECK(cudaMemcpy(device, from.data(), bytes, cudaMemcpyHostToDevice)); });
    timed(times.out, [&] { CHECK(cudaMemcpy(to.data(), device, bytes, cudaMemcpyDeviceToHost)); });
    timed(times.pinned_in, [&] { CHECK(cudaMemcpy(device, pinned, bytes, cudaMemcpyHostToDevice)); });
    timed(times.pinned_out, [&] { CHECK(cudaMemcpy(pinned, device, bytes, cudaMemcpyDeviceToHost)); });
    from[bytes / 2] = static_cast<char>(i);
  }
  const double plain = median(times.plain);
  const char* wanted = bytes == 64 << 20 ? ">= 0.60" : "";
  const auto line = [&](const char* what, const std::vector<double>& list) {
    const double us = median(list);
    const std::string name = size_name(bytes) + " " + what;
    report(name.c_str(), bytes / us / 1e3, "GB/s", bytes / plain / 1e3, "memcpy", plain / us, wanted);
  };
  line("pageable to device", times.in);
  line("device to pageable", times.out);
  line("pinned to device", times.pinned_in);
  line("device to pinned", times.pinned_out);
  CHECK(cudaFree(device));
  CHECK(cudaFreeHost(pinned));
}

int main(int argc, char** argv) {
  const size_t largest = (argc > 1 ? std::atoi(argv[1]) : 256) * size_t{1 << 20};
  for (size_t bytes : {size_t{4}, size_t{1} << 10, size_t{8} << 10, size_t{64} << 10, size_t{1} << 20, size_t{16} << 20,
                       size_t{64} << 20, size_t{256} << 20})
    if (bytes <= largest) one_size(bytes);
  return 0;
}
