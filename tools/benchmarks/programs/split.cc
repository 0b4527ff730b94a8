// Copies of unregistered host memory as split transactions, by the size of the chunk, against the driver's own staging.
// On the GPU itself, without a virtual GPU. A JSON line for each figure.
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <string>

#include "backend/device/cuda/split_copy.h"

namespace {

using namespace bandsaw;
using namespace bandsaw::cuda;

constexpr uint64_t kBytes = 256u << 20;
constexpr int kRuns = 5;

void need(const Driver& driver, CUresult result, const char* what) {
  if (result == CUDA_SUCCESS) return;
  std::fprintf(stderr, "%s: %s\n", what, driver.describe(result).c_str());
  std::exit(1);
}

// GB/s of the fastest run: the machine's other work only ever adds.
template <typename Copy>
double rate(const Driver& driver, Copy copy) {
  double best = 0;
  for (int i = 0; i < kRuns; ++i) {
    const auto begin = std::chrono::steady_clock::now();
    need(driver, copy(), "a copy");
    const std::chrono::duration<double> took = std::chrono::steady_clock::now() - begin;
    best = std::max(best, static_cast<double>(kBytes) / took.count() / 1e9);
  }
  return best;
}

void say(const std::string& name, double gigabytes) {
  std::printf("{\"name\":\"%s\",\"value\":%.6g,\"unit\":\"GB/s\"}\n", name.c_str(), gigabytes);
  std::fflush(stdout);
}

}  // namespace

int main() {
  auto loaded = Driver::load();
  if (!loaded.ok()) {
    std::fprintf(stderr, "%s\n", loaded.status().message().c_str());
    return 1;
  }
  const DriverRef& driver = loaded.value();
  CUdevice gpu = 0;
  CUcontext context = nullptr;
  CUmemoryPool pool = nullptr;
  CUdeviceptr device = 0;
  need(*driver, driver->cuDeviceGet(&gpu, 0), "the GPU");
  need(*driver, driver->cuDevicePrimaryCtxRetain(&context, gpu), "a context");
  need(*driver, driver->cuCtxSetCurrent(context), "a context");
  need(*driver, driver->cuDeviceGetDefaultMemPool(&pool, gpu), "device memory");
  need(*driver, driver->cuMemAllocFromPoolAsync(&device, kBytes, pool, CU_STREAM_LEGACY), "device memory");
  const auto stream =
      std::make_shared<CudaStream>(driver, CU_STREAM_LEGACY, std::make_shared<CudaContext>(context, true), false);
  const std::unique_ptr<std::byte[]> host(new std::byte[kBytes]);
  std::memset(host.get(), 1, kBytes);
  const auto staged = [&](CUresult started) {
    return started == CUDA_SUCCESS ? driver->cuStreamSynchronize(stream->handle) : started;
  };
  say("driver H2D",
      rate(*driver, [&] { return staged(driver->cuMemcpyHtoDAsync(device, host.get(), kBytes, stream->handle)); }));
  for (uint64_t chunk = 128u << 10; chunk <= 8u << 20; chunk *= 2) {
    Pinned pinned(driver);
    SplitCopy split(driver, &pinned, {chunk, 4});
    const std::string name = std::to_string(chunk >> 10) + " KiB ";
    say(name + "H2D", rate(*driver, [&] { return split.to_device(stream, device, host.get(), kBytes); }));
  }
  return 0;
}
