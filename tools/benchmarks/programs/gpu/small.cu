// Allocations, frees and copies in loops of thousands, by size, with the results checked. Argument: scale.
#include <cstring>
#include <functional>
#include <string>

#include "program.h"

static std::string size_text(size_t bytes) {
  if (bytes >= 1 << 20) return std::to_string(bytes >> 20) + " MiB";
  if (bytes >= 1 << 10) return std::to_string(bytes >> 10) + " KiB";
  return std::to_string(bytes) + " B";
}

// The mean of a loop, since a loop of a program waits for all of its calls, also for the slow ones.
static void loop(const char* what, size_t bytes, int runs, const std::function<void()>& work) {
  work();
  CHECK(cudaDeviceSynchronize());
  const double begin = now_us();
  for (int i = 0; i < runs; ++i) work();
  CHECK(cudaDeviceSynchronize());
  value((std::string(what) + ", " + size_text(bytes)).c_str(), (now_us() - begin) / runs, "us");
}

static void allocations(size_t bytes, int runs) {
  loop("malloc and free", bytes, runs, [&] {
    void* memory = nullptr;
    CHECK(cudaMalloc(&memory, bytes));
    CHECK(cudaFree(memory));
  });
  loop("async malloc and free", bytes, runs, [&] {
    void* memory = nullptr;
    CHECK(cudaMallocAsync(&memory, bytes, nullptr));
    CHECK(cudaFreeAsync(memory, nullptr));
  });
  loop("host malloc and free", bytes, std::max(runs / 10, 3), [&] {
    void* memory = nullptr;
    CHECK(cudaMallocHost(&memory, bytes));
    CHECK(cudaFreeHost(memory));
  });
}

static void there_and_back(const char* kind, char* device, char* host, size_t bytes, int runs) {
  loop((std::string(kind) + " to the device").c_str(), bytes, runs,
       [&] { CHECK(cudaMemcpy(device, host, bytes, cudaMemcpyHostToDevice)); });
  loop((std::string(kind) + " to the host").c_str(), bytes, runs,
       [&] { CHECK(cudaMemcpy(host, device, bytes, cudaMemcpyDeviceToHost)); });
}

// Host memory that lives for one step only: its pages are touched, copied once each way and given back.
static bool fresh(char* device, size_t bytes, int runs) {
  bool same = true;
  char turn = 0;
  loop("fresh pages there and back", bytes, runs, [&] {
    auto* const out = static_cast<char*>(std::malloc(bytes));
    auto* const back = static_cast<char*>(std::malloc(bytes));
    std::memset(out, ++turn, bytes);
    CHECK(cudaMemcpy(device, out, bytes, cudaMemcpyHostToDevice));
    CHECK(cudaMemcpy(back, device, bytes, cudaMemcpyDeviceToHost));
    same = same && back[0] == turn && back[bytes - 1] == turn;
    std::free(out);
    std::free(back);
  });
  return same;
}

int main(int argc, char** argv) {
  const Scale scale(argc, argv);
  constexpr size_t kLargest = 16 << 20;
  DeviceBuffer<char> device(kLargest), other(kLargest);
  std::vector<char> pageable(kLargest, 1);
  char* pinned = nullptr;
  CHECK(cudaMallocHost(&pinned, kLargest));
  std::memset(pinned, 2, kLargest);
  bool correct = true;
  for (const size_t bytes : {size_t{4}, size_t{256}, size_t{4} << 10, size_t{64} << 10, size_t{1} << 20, kLargest}) {
    const int runs = scale.of(bytes < 1 << 20 ? 4000 : bytes < kLargest ? 1000 : 200, 5);
    allocations(bytes, runs);
    there_and_back("pageable", device.get(), pageable.data(), bytes, runs);
    there_and_back("pinned", device.get(), pinned, bytes, runs);
    correct = fresh(device.get(), bytes, runs) && correct;
    loop("within the device", bytes, runs,
         [&] { CHECK(cudaMemcpyAsync(other.get(), device.get(), bytes, cudaMemcpyDeviceToDevice)); });
    loop("fill", bytes, runs, [&] { CHECK(cudaMemsetAsync(device.get(), 3, bytes)); });
  }
  CHECK(cudaFreeHost(pinned));
  std::printf("{\"correct\":%s}\n", correct ? "true" : "false");
  return correct ? 0 : 1;
}
