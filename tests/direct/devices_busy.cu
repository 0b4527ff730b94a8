// Works on every device in turns until its time is over, a line for each round; a device that fails is left out from
// then on, and a line says why. Argument: seconds. At the end a line for each device that has worked to the last.
#include <cuda_runtime.h>

#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <vector>

namespace {

constexpr int kCount = 1 << 16;

__global__ void increment(int* data) {
  const int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < kCount) data[i] += 1;
}

struct Device {
  int* memory = nullptr;
  int rounds = 0;
  std::string error;
};

cudaError_t work(int number, Device* device) {
  if (const cudaError_t e = cudaSetDevice(number)) return e;
  if (!device->memory) {
    if (const cudaError_t e = cudaMalloc(&device->memory, kCount * sizeof(int))) return e;
    if (const cudaError_t e = cudaMemset(device->memory, 0, kCount * sizeof(int))) return e;
  }
  increment<<<kCount / 256, 256>>>(device->memory);
  if (const cudaError_t e = cudaGetLastError()) return e;
  int last = 0;
  if (const cudaError_t e = cudaMemcpy(&last, device->memory + kCount - 1, sizeof(last), cudaMemcpyDeviceToHost))
    return e;
  if (last != ++device->rounds) std::printf("device %d: wrong result %d\n", number, last);
  return cudaSuccess;
}

}  // namespace

int main(int argc, char** argv) {
  const double seconds = argc > 1 ? std::atof(argv[1]) : 5;
  int count = 0;
  if (const cudaError_t e = cudaGetDeviceCount(&count)) {
    std::printf("no devices: %s\n", cudaGetErrorName(e));
    return 3;
  }
  std::vector<Device> devices(count);
  const auto begin = std::chrono::steady_clock::now();
  for (int round = 1; std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count() < seconds;
       ++round) {
    for (int i = 0; i < count; ++i) {
      if (!devices[i].error.empty()) continue;
      const cudaError_t error = work(i, &devices[i]);
      if (error == cudaSuccess) continue;
      devices[i].error = cudaGetErrorName(error);
      cudaGetLastError();  // the next device's launch has not failed
      std::printf("device %d: %s\n", i, devices[i].error.c_str());
    }
    if (round % 20 == 1) std::printf("round %d\n", round);
    std::fflush(stdout);
  }
  for (int i = 0; i < count; ++i) {
    if (devices[i].error.empty()) std::printf("device %d: worked\n", i);
  }
  return 0;
}
