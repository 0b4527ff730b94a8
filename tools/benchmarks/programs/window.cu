// Small copies between host and device: by the GPU's copy engine, by the driver as it likes (pageable memory), and
// through a window, which is host memory that the GPU maps: a kernel reads or writes it.
//
//   window RUNS BYTES...     a line of JSON for each size, direction (in: to the device) and way; data are checked
#include <cstring>
#include <string>

#include "measure.h"

namespace {

// Bytes are a multiple of 16.
__global__ void move(uint4* to, const uint4* from, size_t count) {
  for (size_t i = blockIdx.x * blockDim.x + threadIdx.x; i < count; i += size_t(gridDim.x) * blockDim.x)
    to[i] = from[i];
}

struct Buffers {
  unsigned char *pinned, *mapped, *mapped_there, *device;
  std::vector<unsigned char> pageable;

  explicit Buffers(size_t bytes) : pageable(bytes) {
    CHECK(cudaHostAlloc(&pinned, bytes, cudaHostAllocDefault));
    CHECK(cudaHostAlloc(&mapped, bytes, cudaHostAllocMapped));
    CHECK(cudaHostGetDevicePointer(&mapped_there, mapped, 0));
    CHECK(cudaMalloc(&device, bytes));
  }
};

void copy(const std::string& way, bool in, Buffers& all, size_t bytes) {
  if (way == "window") {
    const size_t count = bytes / sizeof(uint4);
    const int threads = static_cast<int>(std::min<size_t>(count, 256));
    const int blocks = static_cast<int>(std::min<size_t>((count + 255) / 256, 64));
    auto *there = reinterpret_cast<uint4*>(all.mapped_there), *device = reinterpret_cast<uint4*>(all.device);
    move<<<blocks, threads>>>(in ? device : there, in ? there : device, count);
    CHECK(cudaGetLastError());
    CHECK(cudaStreamSynchronize(nullptr));
    return;
  }
  unsigned char* const host = way == "engine" ? all.pinned : all.pageable.data();
  CHECK(cudaMemcpyAsync(in ? all.device : host, in ? host : all.device, bytes,
                        in ? cudaMemcpyHostToDevice : cudaMemcpyDeviceToHost));
  CHECK(cudaStreamSynchronize(nullptr));
}

unsigned char* host_side(const std::string& way, Buffers& all) {
  if (way == "window") return all.mapped;
  return way == "engine" ? all.pinned : all.pageable.data();
}

// How many bytes did not arrive, of others each time.
size_t wrong(const std::string& way, bool in, Buffers& all, size_t bytes, unsigned seed) {
  std::vector<unsigned char> sent(bytes), got(bytes);
  for (size_t i = 0; i < bytes; ++i) sent[i] = static_cast<unsigned char>((i * 2654435761u + seed) >> 13);
  if (in) std::memcpy(host_side(way, all), sent.data(), bytes);
  if (!in) CHECK(cudaMemcpy(all.device, sent.data(), bytes, cudaMemcpyHostToDevice));
  copy(way, in, all, bytes);
  if (in) CHECK(cudaMemcpy(got.data(), all.device, bytes, cudaMemcpyDeviceToHost));
  if (!in) std::memcpy(got.data(), host_side(way, all), bytes);
  size_t count = 0;
  for (size_t i = 0; i < bytes; ++i) count += sent[i] != got[i];
  return count;
}

}  // namespace

int main(int argc, char** argv) {
  if (argc < 3) return std::fprintf(stderr, "usage: %s RUNS BYTES...\n", argv[0]), 2;
  const int runs = std::atoi(argv[1]);
  unsigned seed = 0;
  for (int i = 2; i < argc; ++i) {
    const auto bytes = static_cast<size_t>(std::atoll(argv[i]));
    if (runs < 1 || bytes == 0 || bytes % sizeof(uint4) != 0) return std::fprintf(stderr, "sizes: of 16 bytes\n"), 2;
    Buffers all(bytes);
    for (const bool in : {true, false}) {
      for (const char* way : {"engine", "driver", "window"}) {
        const size_t bad = wrong(way, in, all, bytes, ++seed);
        for (int k = 0; k < 3; ++k) copy(way, in, all, bytes);
        const double us = median_us(runs, [&] { copy(way, in, all, bytes); });
        std::printf("{\"direction\":\"%s\",\"way\":\"%s\",\"bytes\":%zu,\"us\":%.3f,\"wrong\":%zu}\n",
                    in ? "in" : "out", way, bytes, us, bad);
      }
    }
    std::fflush(stdout);
    CHECK(cudaFreeHost(all.pinned));
    CHECK(cudaFreeHost(all.mapped));
    CHECK(cudaFree(all.device));
  }
  return 0;
}
