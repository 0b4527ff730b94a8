// Two sides of one question: can a program read another's device memory?
//   peek hold SECONDS   fills 8 MiB of device memory with a secret, says where it lies ("running ADDRESS"), and looks
//   at
//                       the end whether it is still whole
//   peek ADDRESS        reads there with a kernel and with a copy. Each program has addresses of its own, so that it
//   finds
//                       nothing (and is told so) or something of its own there, never the secret: exits with 0 then
#include <cuda_runtime.h>

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <thread>
#include <vector>

constexpr unsigned kSecret = 0x5ec7e7a5;
constexpr int kWords = 2 << 20;

__device__ int found;
__global__ void read_there(const unsigned* there) { found = *there == kSecret; }

static int hold(double seconds) {
  std::vector<unsigned> words(kWords, kSecret);
  unsigned* memory;
  if (cudaMalloc(&memory, kWords * 4) || cudaMemcpy(memory, words.data(), kWords * 4, cudaMemcpyHostToDevice)) return 3;
  std::printf("running %p\n", static_cast<void*>(memory));
  std::fflush(stdout);
  std::this_thread::sleep_for(std::chrono::duration<double>(seconds));
  std::vector<unsigned> back(kWords);
  if (cudaMemcpy(back.data(), memory, kWords * 4, cudaMemcpyDeviceToHost) != cudaSuccess) return 3;
  return back == words ? 0 : 4;
}

int main(int argc, char** argv) {
  if (argc == 3 && std::strcmp(argv[1], "hold") == 0) return hold(std::atof(argv[2]));
  if (argc != 2) return 2;
  auto* const there = reinterpret_cast<unsigned*>(std::strtoull(argv[1], nullptr, 16));
  unsigned seen = 0;
  const cudaError_t copied = cudaMemcpy(&seen, there, 4, cudaMemcpyDeviceToHost);
  std::printf("copy: %s, %s\n", cudaGetErrorName(copied), seen == kSecret ? "the secret" : "no secret");
  cudaGetLastError();
  read_there<<<1, 1>>>(there);
  const cudaError_t read = cudaDeviceSynchronize();
  int found_it = 0;
  if (read == cudaSuccess && cudaMemcpyFromSymbol(&found_it, found, sizeof found_it) != cudaSuccess) return 3;
  std::printf("kernel: %s, %s\n", cudaGetErrorName(read), found_it ? "the secret" : "no secret");
  return seen != kSecret && !found_it && (read == cudaSuccess || read == cudaErrorIllegalAddress) ? 0 : 1;
}
