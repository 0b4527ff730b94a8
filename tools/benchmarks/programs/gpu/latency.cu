// What one call costs: issuing a launch, launching and waiting, and copies of a few bytes. Argument: scale.
#include <cstring>
#include <string>

#include "program.h"

__global__ void nothing() {}
__global__ void arguments(float*, float*, float*, int, int, float) {}

// Launches go out in batches with the drain outside the timed span, so that only issuing is timed.
template <typename Launch>
static double issue_us(int batches, Launch launch) {
  constexpr int kBatch = 512;
  std::vector<double> each;
  for (int batch = 0; batch < batches; ++batch) {
    const double begin = now_us();
    for (int i = 0; i < kBatch; ++i) launch();
    each.push_back((now_us() - begin) / kBatch);
    CHECK(cudaDeviceSynchronize());
  }
  return median(each);
}

static void launches(const Scale& scale) {
  const int runs = scale.of(4000, 20), batches = scale.of(100, 5);
  cudaStream_t stream;
  CHECK(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
  for (int i = 0; i < 100; ++i) nothing<<<1, 32>>>(), nothing<<<1, 32, 0, stream>>>();
  arguments<<<1, 32>>>(nullptr, nullptr, nullptr, 0, 0, 0);
  CHECK(cudaDeviceSynchronize());
  value("issue of a launch", issue_us(batches, [] { nothing<<<1, 32>>>(); }), "us");
  value("issue of a launch, 6 parameters",
        issue_us(batches, [] { arguments<<<1, 32>>>(nullptr, nullptr, nullptr, 0, 0, 0); }), "us");
  value("issue of a launch, own stream", issue_us(batches, [&] { nothing<<<1, 32, 0, stream>>>(); }), "us");
  value("launch + device synchronize",
        median_us(runs,
                  [] {
                    nothing<<<1, 32>>>();
                    cudaDeviceSynchronize();
                  }),
        "us");
  value("launch + stream synchronize",
        median_us(runs,
                  [&] {
                    nothing<<<1, 32, 0, stream>>>();
                    cudaStreamSynchronize(stream);
                  }),
        "us");
  value("synchronize an idle device", median_us(runs, [] { cudaDeviceSynchronize(); }), "us");
  CHECK(cudaGetLastError());
  CHECK(cudaStreamDestroy(stream));
}

// Median of one host-to-device and one device-to-host copy of each size; the bytes must come back as they went.
static bool copies(const Scale& scale, const char* kind, char* host) {
  constexpr size_t kLargest = 64 << 10;
  const int runs = scale.of(2000, 10);
  DeviceBuffer<char> device(kLargest);
  for (size_t bytes = 4; bytes <= kLargest; bytes *= bytes < 1024 ? 16 : 4) {
    for (size_t i = 0; i < bytes; ++i) host[i] = static_cast<char>(i * 31 + bytes);
    const std::vector<char> sent(host, host + bytes);
    const double in = median_us(runs, [&] { CHECK(cudaMemcpy(device.get(), host, bytes, cudaMemcpyHostToDevice)); });
    std::memset(host, 0, bytes);
    const double out = median_us(runs, [&] { CHECK(cudaMemcpy(host, device.get(), bytes, cudaMemcpyDeviceToHost)); });
    if (std::memcmp(host, sent.data(), bytes) != 0) return false;
    const std::string name = std::string(kind) + " " + std::to_string(bytes) + " B";
    value((name + " H2D").c_str(), in, "us");
    value((name + " D2H").c_str(), out, "us");
  }
  return true;
}

int main(int argc, char** argv) {
  const Scale scale(argc, argv);
  CHECK(cudaFree(nullptr));
  launches(scale);
  std::vector<char> pageable(64 << 10);
  char* pinned;
  CHECK(cudaMallocHost(&pinned, 64 << 10));
  const bool correct = copies(scale, "pinned", pinned) && copies(scale, "pageable", pageable.data());
  CHECK(cudaFreeHost(pinned));
  std::printf("{\"correct\":%s}\n", correct ? "true" : "false");
  if (!correct) std::fprintf(stderr, "a copy brought back other bytes than it took\n");
  return correct ? 0 : 1;
}
