// Copies from 64 KiB up, pinned and pageable, both directions. Argument: largest MiB (default 1024).
#include <cstring>
#include <string>

#include "program.h"

// Different at every word, cheap to make and to check, and different for each size and direction.
static void fill(char* at, size_t bytes, uint64_t seed) {
  auto* words = reinterpret_cast<uint64_t*>(at);
  for (size_t i = 0; i < bytes / 8; ++i) words[i] = (i + seed) * 0x9e3779b97f4a7c15ull;
}

static bool filled(const char* at, size_t bytes, uint64_t seed) {
  const auto* words = reinterpret_cast<const uint64_t*>(at);
  uint64_t wrong = 0;
  for (size_t i = 0; i < bytes / 8; ++i) wrong |= words[i] ^ ((i + seed) * 0x9e3779b97f4a7c15ull);
  return wrong == 0;
}

// GB/s of the median of enough copies for about 0.1 s, at least three.
static double rate(char* to, const char* from, size_t bytes, cudaMemcpyKind kind) {
  const auto once = [&] { return median_us(1, [&] { CHECK(cudaMemcpy(to, from, bytes, kind)); }); };
  const double first = once();
  const int runs = std::clamp(static_cast<int>(1e5 / first), 3, 1000);
  std::vector<double> times;
  for (int i = 0; i < runs; ++i) times.push_back(once());
  return bytes / median(times) / 1e3;
}

static void say(const char* kind, size_t bytes, const char* direction, double gb_per_s) {
  const std::string size = bytes >> 20 ? std::to_string(bytes >> 20) + " MiB" : std::to_string(bytes >> 10) + " KiB";
  value((std::string(kind) + " " + size + " " + direction).c_str(), gb_per_s, "GB/s");
}

// One size: data goes in from one kind of memory and comes out to the other, so that each path is checked once.
static bool one_size(char* device, char* pinned, char* pageable, size_t bytes) {
  fill(pageable, bytes, bytes);
  say("pageable", bytes, "H2D", rate(device, pageable, bytes, cudaMemcpyHostToDevice));
  say("pinned", bytes, "D2H", rate(pinned, device, bytes, cudaMemcpyDeviceToHost));
  if (!filled(pinned, bytes, bytes)) return false;
  fill(pinned, bytes, bytes + 1);
  say("pinned", bytes, "H2D", rate(device, pinned, bytes, cudaMemcpyHostToDevice));
  say("pageable", bytes, "D2H", rate(pageable, device, bytes, cudaMemcpyDeviceToHost));
  return filled(pageable, bytes, bytes + 1);
}

int main(int argc, char** argv) {
  const size_t largest = (argc > 1 ? std::max(1, std::atoi(argv[1])) : 1024) * size_t{1 << 20};
  std::vector<char> pageable(largest, 1);
  char* pinned;
  CHECK(cudaMallocHost(&pinned, largest));
  DeviceBuffer<char> device(largest);
  std::memset(pinned, 2, largest);
  bool correct = true;
  for (size_t bytes = 64 << 10; bytes <= largest && correct; bytes *= 4)
    correct = one_size(device.get(), pinned, pageable.data(), bytes);
  CHECK(cudaFreeHost(pinned));
  std::printf("{\"correct\":%s}\n", correct ? "true" : "false");
  if (!correct) std::fprintf(stderr, "a copy brought back other bytes than it took\n");
  return correct ? 0 : 1;
}
