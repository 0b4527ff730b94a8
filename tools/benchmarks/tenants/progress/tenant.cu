// Tenants of tools/bench progress that need nothing but the CUDA runtime:
//
//   tenant run kernel blocks= rounds=           a long kernel with PTX
//   tenant run graph blocks= rounds= nodes=     a captured graph of kernels of several lengths, replayed
//   tenant run short blocks= rounds= every_us=  a short kernel now and then, waited for
//   tenant run copies bytes= every_us=          a copy of pinned memory to the device; every_us=0: back to back
//
// One synchronise a step. steps.h has what they read and write.
#include <cuda_runtime.h>

#include <random>
#include <thread>

#include "steps.h"

namespace progress {
namespace {

constexpr int kThreads = 256;

// Arithmetic that no compiler takes out; `rounds` of four dependent multiply-adds each.
__global__ void work(float* out, int rounds) {
  float a = threadIdx.x, b = blockIdx.x * 1e-3f;
  for (int i = 0; i < rounds; ++i) {
    a = a * 0.999f + b;
    b = b * 1.001f - a;
    a = a * 0.998f + b;
    b = b * 1.002f - a;
  }
  if (a == 12345.678f) out[0] = b;
}

struct Size {
  int blocks, rounds;
};

Size size_of(const Options& options) {
  return {static_cast<int>(options.number("blocks", 1)), static_cast<int>(options.number("rounds", 1))};
}

// Half to one and a half times `every_us` after now: not in step with whatever the others do. Asleep but for the end,
// because waking up takes longer than what is measured after it.
class Pause {
 public:
  explicit Pause(double every_us) : every_us_(every_us) {}
  void operator()() {
    constexpr int64_t kSpin = 150'000;
    const int64_t until = now_ns() + static_cast<int64_t>(every_us_ * 1000 * (0.5 + random_() % 1024 / 1024.0));
    if (const int64_t sleep = until - kSpin - now_ns(); sleep > 0)
      std::this_thread::sleep_for(std::chrono::nanoseconds(sleep));
    while (now_ns() < until) {
    }
  }

 private:
  double every_us_;
  std::mt19937 random_{7};
};

std::function<void()> pause_of(const Options& options) {
  const double every_us = options.number("every_us", 0);
  return every_us > 0 ? std::function<void()>(Pause(every_us)) : nullptr;
}

int kernels(const Options& options) {
  const Size size = size_of(options);
  float* out;
  cudaStream_t stream;
  CHECK(cudaMalloc(&out, sizeof(float)));
  CHECK(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
  return serve(
      3,
      [=] {
        work<<<size.blocks, kThreads, 0, stream>>>(out, size.rounds);
        CHECK(cudaGetLastError());
        CHECK(cudaStreamSynchronize(stream));
      },
      pause_of(options));
}

// As a captured training step is: a chain, some of whose links are several kernels beside each other.
cudaGraphExec_t capture(cudaStream_t stream, float* out, Size size, int nodes) {
  cudaStream_t side;
  cudaEvent_t forked, joined;
  CHECK(cudaStreamCreateWithFlags(&side, cudaStreamNonBlocking));
  CHECK(cudaEventCreateWithFlags(&forked, cudaEventDisableTiming));
  CHECK(cudaEventCreateWithFlags(&joined, cudaEventDisableTiming));
  CHECK(cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal));
  for (int i = 0; i < nodes; i += 4) {
    work<<<size.blocks, kThreads, 0, stream>>>(out, size.rounds);
    work<<<(size.blocks + 3) / 4, kThreads, 0, stream>>>(out, size.rounds);
    CHECK(cudaEventRecord(forked, stream));
    CHECK(cudaStreamWaitEvent(side, forked, 0));
    work<<<(size.blocks + 1) / 2, kThreads, 0, side>>>(out, size.rounds);
    work<<<(size.blocks + 1) / 2, kThreads, 0, stream>>>(out, 2 * size.rounds);
    CHECK(cudaEventRecord(joined, side));
    CHECK(cudaStreamWaitEvent(stream, joined, 0));
  }
  cudaGraph_t graph;
  cudaGraphExec_t executable;
  CHECK(cudaStreamEndCapture(stream, &graph));
  CHECK(cudaGraphInstantiate(&executable, graph, 0));
  return executable;
}

int graph(const Options& options) {
  float* out;
  cudaStream_t stream;
  CHECK(cudaMalloc(&out, sizeof(float)));
  CHECK(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
  const cudaGraphExec_t executable =
      capture(stream, out, size_of(options), static_cast<int>(options.number("nodes", 200)));
  return serve(3, [=] {
    CHECK(cudaGraphLaunch(executable, stream));
    CHECK(cudaStreamSynchronize(stream));
  });
}

int copies(const Options& options) {
  const auto bytes = static_cast<size_t>(options.number("bytes", 65536));
  void *host, *device;
  cudaStream_t stream;
  CHECK(cudaMallocHost(&host, bytes));
  std::memset(host, 1, bytes);
  CHECK(cudaMalloc(&device, bytes));
  CHECK(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
  return serve(
      2,
      [=] {
        CHECK(cudaMemcpyAsync(device, host, bytes, cudaMemcpyHostToDevice, stream));
        CHECK(cudaStreamSynchronize(stream));
      },
      pause_of(options));
}

}  // namespace
}  // namespace progress

int main(int argc, char** argv) {
  const std::string kind = argc > 2 ? argv[2] : "";
  const Options options(argc, argv);
  if (kind == "kernel" || kind == "short") return progress::kernels(options);
  if (kind == "graph") return progress::graph(options);
  if (kind == "copies") return progress::copies(options);
  std::fprintf(stderr, "tenant run kernel|graph|short|copies name=value...\n");
  return 2;
}
