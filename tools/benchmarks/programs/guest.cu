// What a call, a copy and a pinned page cost in a guest; few runs of each, because emulated guests are slow.
#include <cstring>
#include <string>

#include "measure.h"

__global__ void nothing() {}

static void figure(const std::string& name, double value, const char* unit) {
  report(name.c_str(), value, unit, 0, "", 0, "");
}

static void copies(size_t bytes, char* host, char* device, const char* kind) {
  const int runs = bytes >= 16 << 20 ? 3 : bytes >= 1 << 20 ? 10 : 60;
  const std::string size = bytes >> 20 ? std::to_string(bytes >> 20) + " MiB " : std::to_string(bytes >> 10) + " KiB ";
  CHECK(cudaMemcpy(device, host, bytes, cudaMemcpyHostToDevice));  // what the first copy alone needs
  const double in = median_us(runs, [&] { CHECK(cudaMemcpy(device, host, bytes, cudaMemcpyHostToDevice)); });
  const double out = median_us(runs, [&] { CHECK(cudaMemcpy(host, device, bytes, cudaMemcpyDeviceToHost)); });
  figure(size + kind + " to device", in, "us");
  figure(size + "device to " + kind, out, "us");
}

// All that it takes: the guest pins and shares the pages, the runner maps them.
static void pins(size_t bytes) {
  std::vector<char> memory(bytes + 4096, 1);
  char* const begin = memory.data() + (4096 - reinterpret_cast<uintptr_t>(memory.data()) % 4096) % 4096;
  const double pages = static_cast<double>(bytes) / 4096;
  std::vector<double> in, out;
  for (int i = 0; i < 5; ++i) {
    double at = now_us();
    CHECK(cudaHostRegister(begin, bytes, cudaHostRegisterDefault));
    in.push_back(now_us() - at);
    at = now_us();
    CHECK(cudaHostUnregister(begin));
    out.push_back(now_us() - at);
  }
  const std::string size = " (" + std::to_string(bytes >> 20) + " MiB at a time)";
  figure("pages pinned and mapped" + size, pages / median(in) * 1e6, "1/s");
  figure("pages let go" + size, pages / median(out) * 1e6, "1/s");
}

int main() {
  CHECK(cudaFree(nullptr));
  nothing<<<1, 32>>>();
  CHECK(cudaDeviceSynchronize());
  figure("issue an asynchronous launch", issue_us(50, 20, [] { nothing<<<1, 32>>>(); }), "us");
  size_t free_bytes, total;
  figure("round trip of a synchronous call", median_us(300, [&] { cudaMemGetInfo(&free_bytes, &total); }), "us");
  for (size_t bytes = 4 << 10; bytes <= 64 << 20; bytes *= bytes < 1 << 20 ? 16 : 8) {
    char *device, *pinned;
    CHECK(cudaMalloc(&device, bytes));
    {
      std::vector<char> pageable(bytes, 1);
      copies(bytes, pageable.data(), device, "pageable");
    }
    CHECK(cudaMallocHost(&pinned, bytes));
    std::memset(pinned, 2, bytes);
    copies(bytes, pinned, device, "pinned");
    CHECK(cudaFreeHost(pinned));
    CHECK(cudaFree(device));
  }
  pins(1 << 20);
  pins(64 << 20);
  return 0;
}
