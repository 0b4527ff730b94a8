// nvcc: -lcuda
//
// What a program does with a shared segment; commands are its arguments, with commas for spaces, or come on stdin.
// Answers go to stdout, a line each. Codes are CUresult's numbers.
//   get NAME BYTES FLAGS     -> CODE
//   at FLAGS                 -> CODE
//   fill VALUE               -> CODE      a kernel writes VALUE + i to each word
//   check VALUE              -> CODE WRONG  a kernel counts the words that are not VALUE + i
//   copy_in VALUE, copy_out  -> CODE [first word]
//   spin                     -> CODE      starts a kernel that writes and writes, until it faults or stop
//   await VALUE              -> CODE      until the first word is that, half a minute at most
//   sync                     -> CODE
//   dt, stat, remove         -> CODE ...
#include <cuda.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <iostream>
#include <sstream>
#include <string>
#include <vector>

#include "../../guest-driver/libcuda/api/bandsaw_shm.h"

__global__ void fill(unsigned* words, size_t count, unsigned value) {
  for (size_t i = blockIdx.x * size_t{blockDim.x} + threadIdx.x; i < count; i += size_t{gridDim.x} * blockDim.x) {
    words[i] = value + static_cast<unsigned>(i);
  }
}

__global__ void count_wrong(const unsigned* words, size_t count, unsigned value, unsigned long long* wrong) {
  for (size_t i = blockIdx.x * size_t{blockDim.x} + threadIdx.x; i < count; i += size_t{gridDim.x} * blockDim.x) {
    if (words[i] != value + static_cast<unsigned>(i)) atomicAdd(wrong, 1ull);
  }
}

__global__ void spin(volatile unsigned* words) {
  for (;;) words[threadIdx.x] = words[threadIdx.x] + 1;
}

namespace {

template <typename Function>
Function* find(const char* name) {
  void* found = nullptr;
  if (cuGetProcAddress(name, &found, 13000, 0, nullptr) != CUDA_SUCCESS) {
    std::fprintf(stderr, "%s is not there\n", name);
    std::exit(2);
  }
  return reinterpret_cast<Function*>(found);
}

struct Segment {
  int id = -1;
  CUdeviceptr address = 0;
  size_t bytes = 0;
  unsigned* words() const { return reinterpret_cast<unsigned*>(address); }
  size_t count() const { return bytes / sizeof(unsigned); }
};

CUresult synchronize() { return cuCtxSynchronize(); }

CUresult check(const Segment& segment, unsigned value, unsigned long long* wrong) {
  CUdeviceptr counter = 0;
  CUresult result = cuMemAlloc(&counter, sizeof *wrong);
  if (result == CUDA_SUCCESS) result = cuMemsetD8(counter, 0, sizeof *wrong);
  if (result != CUDA_SUCCESS) return result;
  count_wrong<<<32, 128>>>(segment.words(), segment.count(), value, reinterpret_cast<unsigned long long*>(counter));
  result = cuMemcpyDtoH(wrong, counter, sizeof *wrong);
  const CUresult freed = cuMemFree(counter);
  return result == CUDA_SUCCESS ? freed : result;
}

CUresult await(const Segment& segment, unsigned value) {
  for (int i = 0; i < 3000; ++i) {
    unsigned now = 0;
    const CUresult result = cuMemcpyDtoH(&now, segment.address, sizeof now);
    if (result != CUDA_SUCCESS || now == value) return result;
    usleep(10000);
  }
  return CUDA_ERROR_LAUNCH_TIMEOUT;
}

}  // namespace

int main(int argc, char** argv) {
  cudaFree(nullptr);
  const auto get = find<decltype(cuShmGetNamed)>("cuShmGetNamed");
  const auto attach = find<decltype(cuShmAt)>("cuShmAt");
  const auto detach = find<decltype(cuShmDt)>("cuShmDt");
  const auto control = find<decltype(cuShmCtl)>("cuShmCtl");
  Segment segment;
  std::printf("ready\n");
  std::fflush(stdout);
  int next = 1;
  for (std::string line; argc > 1 ? next < argc : !!std::getline(std::cin, line);) {
    if (argc > 1) line = argv[next++];
    std::replace(line.begin(), line.end(), ',', ' ');
    std::istringstream words(line);
    std::string command;
    words >> command;
    CUresult result = CUDA_ERROR_INVALID_VALUE;
    std::ostringstream rest;
    if (command == "get") {
      std::string name;
      size_t bytes = 0;
      unsigned flags = 0;
      words >> name >> bytes >> flags;
      result = get(&segment.id, name.c_str(), bytes, flags);
      CUshmInfo info{};
      if (result == CUDA_SUCCESS && control(segment.id, CU_SHM_STAT, &info) == CUDA_SUCCESS) segment.bytes = info.bytes;
    } else if (command == "at") {
      unsigned flags = 0;
      words >> flags;
      result = attach(&segment.address, segment.id, flags);
    } else if (command == "fill") {
      unsigned value = 0;
      words >> value;
      fill<<<32, 128>>>(segment.words(), segment.count(), value);
      result = synchronize();
    } else if (command == "check") {
      unsigned value = 0;
      unsigned long long wrong = 0;
      words >> value;
      result = check(segment, value, &wrong);
      rest << ' ' << wrong;
    } else if (command == "copy_in") {
      unsigned value = 0;
      words >> value;
      const std::vector<unsigned> source(1024, value);
      result = cuMemcpyHtoD(segment.address, source.data(), source.size() * sizeof(unsigned));
      if (result == CUDA_SUCCESS) result = synchronize();
    } else if (command == "copy_out") {
      unsigned value = 0;
      result = cuMemcpyDtoH(&value, segment.address, sizeof value);
      rest << ' ' << value;
    } else if (command == "await") {
      unsigned value = 0;
      words >> value;
      result = await(segment, value);
    } else if (command == "spin") {
      spin<<<1, 32>>>(segment.words());
      result = static_cast<CUresult>(cudaGetLastError());
    } else if (command == "sync") {
      result = synchronize();
    } else if (command == "dt") {
      result = detach(segment.address);
    } else if (command == "stat") {
      CUshmInfo info{};
      result = control(segment.id, CU_SHM_STAT, &info);
      rest << ' ' << info.name << ' ' << info.bytes << ' ' << info.access;
    } else if (command == "remove") {
      result = control(segment.id, CU_SHM_REMOVE, nullptr);
    } else if (command == "end") {
      return 0;
    }
    std::printf("%d%s\n", static_cast<int>(result), rest.str().c_str());
    std::fflush(stdout);
  }
  return 0;
}
