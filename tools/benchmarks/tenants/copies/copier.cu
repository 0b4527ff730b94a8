// Copies the same bytes again and again and waits for each copy. Arguments: in, out or inside (the device), KiB of a
// copy, seconds, microseconds to rest after each. Says "ready", waits for a line, and ends with one line of JSON. Ends
// with 1 if bytes are lost.
#include <cstring>
#include <string>
#include <thread>

#include "../../programs/measure.h"

static double quantile(std::vector<double>& sorted, double part) {
  return sorted[std::min(sorted.size() - 1, static_cast<size_t>(part * sorted.size()))];
}

static void fill(std::vector<uint32_t>& words, uint32_t seed) {
  for (size_t i = 0; i < words.size(); ++i) words[i] = static_cast<uint32_t>(i) * 2654435761u + seed;
}

int main(int argc, char** argv) {
  if (argc < 5) return 2;
  const std::string way = argv[1];
  const size_t bytes = static_cast<size_t>(std::atoll(argv[2])) << 10;
  const double seconds = std::atof(argv[3]);
  const int pause_us = std::atoi(argv[4]);
  char *host = nullptr, *device = nullptr, *other = nullptr;
  CHECK(cudaMallocHost(&host, bytes));
  CHECK(cudaMalloc(&device, bytes));
  if (way == "inside") CHECK(cudaMalloc(&other, bytes));
  std::memset(host, 0, bytes);

  char* const to = way == "in" ? device : way == "out" ? host : other;
  char* const from = way == "in" ? host : device;
  // A pattern at the source's beginning and end, which is looked for behind the copies.
  std::vector<uint32_t> pattern(std::min<size_t>(bytes, 32 << 10) / 8), found(pattern.size());
  const size_t part = pattern.size() * sizeof(uint32_t);
  fill(pattern, 1);
  CHECK(cudaMemset(device, 0, bytes));
  CHECK(cudaMemcpy(from, pattern.data(), part, cudaMemcpyDefault));
  fill(pattern, 2);
  CHECK(cudaMemcpy(from + bytes - part, pattern.data(), part, cudaMemcpyDefault));
  cudaStream_t stream;
  CHECK(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
  const auto copy = [&] {
    CHECK(cudaMemcpyAsync(to, from, bytes, cudaMemcpyDefault, stream));
    CHECK(cudaStreamSynchronize(stream));
  };
  copy();
  std::printf("ready\n");
  std::fflush(stdout);
  std::getchar();

  std::vector<double> times;
  const double begin = now_us();
  while (now_us() - begin < seconds * 1e6) {
    const double before = now_us();
    copy();
    times.push_back(now_us() - before);
    if (pause_us > 0) std::this_thread::sleep_for(std::chrono::microseconds(pause_us));
  }
  const double took_us = now_us() - begin;
  bool right = true;
  for (uint32_t end = 0; end < 2; ++end) {
    fill(pattern, end + 1);
    CHECK(cudaMemcpy(found.data(), end == 0 ? to : to + bytes - part, part, cudaMemcpyDefault));
    right = right && found == pattern;
  }
  std::sort(times.begin(), times.end());
  std::printf("{\"copies\":%zu,\"p50_us\":%.2f,\"p99_us\":%.2f,\"most_us\":%.2f,\"gb_per_s\":%.4g}\n", times.size(),
              quantile(times, 0.5), quantile(times, 0.99), times.back(), times.size() * (bytes / 1e3) / took_us);
  return right ? 0 : 1;
}
