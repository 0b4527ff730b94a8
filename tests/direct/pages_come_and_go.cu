// Threads copy to the device and back from pages that come and go, each of which is pinned anew and let go of, and
// compare. Arguments: threads, MiB of a copy. Prints a line with the copies so far now and then, until a line comes on
// stdin: then "ok". Ends with 0, 3 (a call failed) or 4 (a wrong word).
#include <cuda_runtime.h>
#include <poll.h>
#include <sys/mman.h>

#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <thread>
#include <vector>

static void check(cudaError_t error, const char* what) {
  if (error == cudaSuccess) return;
  std::printf("%s: %s\n", what, cudaGetErrorName(error));
  std::exit(3);
}

static std::atomic<bool> end{false};
static std::atomic<unsigned> copies{0};

static unsigned* pages(size_t bytes) {
  void* const made = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (made == MAP_FAILED) std::printf("no pages\n"), std::exit(3);
  return static_cast<unsigned*>(made);
}

static void copy_all_the_time(size_t bytes, unsigned seed) {
  void* device = nullptr;
  const size_t count = bytes / sizeof(unsigned);
  check(cudaMalloc(&device, bytes), "cudaMalloc");
  while (!end) {
    unsigned *const from = pages(bytes), *const to = pages(bytes);
    seed = seed * 1664525 + 1013904223;
    for (size_t i = 0; i < count; i += 97) from[i] = seed + static_cast<unsigned>(i);
    check(cudaMemcpy(device, from, bytes, cudaMemcpyHostToDevice), "a copy to the device");
    munmap(from, bytes);
    check(cudaMemcpy(to, device, bytes, cudaMemcpyDeviceToHost), "a copy from the device");
    for (size_t i = 0; i < count; i += 97) {
      if (to[i] != seed + static_cast<unsigned>(i)) std::printf("a wrong word\n"), std::exit(4);
    }
    munmap(to, bytes);
    ++copies;
  }
  check(cudaFree(device), "cudaFree");
}

int main(int argc, char** argv) {
  const int wanted = argc > 1 ? std::atoi(argv[1]) : 2;
  const size_t bytes = size_t(argc > 2 ? std::atoi(argv[2]) : 2) << 20;
  check(cudaFree(nullptr), "a context");
  std::vector<std::thread> threads;
  for (int i = 0; i < wanted; ++i) threads.emplace_back(copy_all_the_time, bytes, unsigned(i));
  pollfd told{0, POLLIN, 0};
  while (poll(&told, 1, 50) == 0) std::printf("%u\n", copies.load()), std::fflush(stdout);
  end = true;
  for (std::thread& thread : threads) thread.join();
  std::printf("ok\n");
}
