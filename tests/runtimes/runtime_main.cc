// Uses most of the CUDA runtime, one subject after another, and says of each how it went: "NAME: ok", "NAME: refused:
// WHY" where a call says that it is not supported, "NAME: FAILED: WHY". Compiled with the headers of one runtime, and
// linked with it. Exit status 1 if a subject failed.
#include <cstdio>
#include <cstring>
#include <vector>

#include "registered.h"

namespace {

constexpr int kCount = 1000;

void properties() {
  int runtime = 0, driver = 0, devices = 0;
  CHECK(cudaRuntimeGetVersion(&runtime));
  CHECK(cudaDriverGetVersion(&driver));
  EXPECT(runtime == CUDART_VERSION);
  CHECK(cudaGetDeviceCount(&devices));
  EXPECT(devices >= 1);
  cudaDeviceProp about{};
  CHECK(cudaGetDeviceProperties(&about, 0));
  EXPECT(about.name[0] != 0 && about.warpSize == 32 && about.multiProcessorCount > 0);
  int major = 0;
  CHECK(cudaDeviceGetAttribute(&major, cudaDevAttrComputeCapabilityMajor, 0));
  EXPECT(major == about.major);
  char bus[32] = {};
  CHECK(cudaDeviceGetPCIBusId(bus, sizeof(bus), 0));
  int device = -1;
  CHECK(cudaDeviceGetByPCIBusId(&device, bus));
  EXPECT(device == 0);
  size_t free_bytes = 0, all_bytes = 0;
  CHECK(cudaMemGetInfo(&free_bytes, &all_bytes));
  EXPECT(free_bytes > 0 && free_bytes <= all_bytes);
}

void limits() {
  size_t bytes = 0;
  CHECK(cudaDeviceSetLimit(cudaLimitPrintfFifoSize, 2 << 20));
  CHECK(cudaDeviceGetLimit(&bytes, cudaLimitPrintfFifoSize));
  EXPECT(bytes >= 2 << 20);
  CHECK(cudaDeviceGetLimit(&bytes, cudaLimitStackSize));
  EXPECT(bytes > 0);
}

void symbols() {
  const int three = 3;
  int hundreds[16];
  for (int i = 0; i < 16; i++) hundreds[i] = i * 100;
  CHECK(cudaMemcpyToSymbol(&factor, &three, sizeof(three), 0, cudaMemcpyHostToDevice));
  CHECK(cudaMemcpyToSymbol(offsets, hundreds, sizeof(hundreds), 0, cudaMemcpyHostToDevice));
  int* const data = numbers(kCount);
  launch(scale, 8, 128, 0, nullptr, data, kCount);
  std::vector<int> host(kCount);
  CHECK(cudaMemcpy(host.data(), data, kCount * sizeof(int), cudaMemcpyDeviceToHost));
  for (int i = 0; i < kCount; i++) EXPECT(host[i] == i * 3 + i % 16 * 100);
  int back[16] = {};
  CHECK(cudaMemcpyFromSymbol(back, offsets, sizeof(back), 0, cudaMemcpyDeviceToHost));
  EXPECT(std::memcmp(back, hundreds, sizeof(back)) == 0);
  void* address = nullptr;
  size_t bytes = 0;
  CHECK(cudaGetSymbolAddress(&address, offsets));
  CHECK(cudaGetSymbolSize(&bytes, offsets));
  EXPECT(address && bytes == sizeof(offsets));
  CHECK(cudaFree(data));
}

void managed_variable() {
  EXPECT(counted != nullptr);
  const int before = *counted;
  EXPECT(before == 7);
  launch(count, 4, 32, 0, nullptr);
  CHECK(cudaDeviceSynchronize());
  EXPECT(*counted == before + 128);
}

void copies() {
  constexpr int kRows = 20, kColumns = 50;
  int* const data = numbers(kCount);
  std::vector<int> host(kCount);
  void* pitched = nullptr;
  size_t pitch = 0;
  CHECK(cudaMallocPitch(&pitched, &pitch, kColumns * sizeof(int), kRows));
  CHECK(cudaMemcpy2D(pitched, pitch, data, kColumns * sizeof(int), kColumns * sizeof(int), kRows,
                     cudaMemcpyDeviceToDevice));
  CHECK(cudaMemcpy2D(host.data(), kColumns * sizeof(int), pitched, pitch, kColumns * sizeof(int), kRows,
                     cudaMemcpyDefault));
  EXPECT(host[0] == 0 && host[kRows * kColumns - 1] == kCount - 1);
  cudaPitchedPtr box{};
  CHECK(cudaMalloc3D(&box, cudaExtent{40, 5, 5}));
  CHECK(cudaMemset3D(box, 1, cudaExtent{40, 5, 5}));
  cudaMemcpy3DParms cut{};
  cut.srcPtr = box;
  cut.dstPtr = cudaPitchedPtr{host.data(), 40, 40, 5};
  cut.extent = cudaExtent{40, 5, 5};
  cut.kind = cudaMemcpyDeviceToHost;
  CHECK(cudaMemcpy3D(&cut));
  EXPECT(host[0] == 0x01010101 && host[249] == 0x01010101);
  CHECK(cudaMemset(data, 0, kCount * sizeof(int)));
  CHECK(cudaMemcpyAsync(host.data(), data, sizeof(int), cudaMemcpyDeviceToHost, nullptr));
  CHECK(cudaDeviceSynchronize());
  EXPECT(host[0] == 0);
  cudaPointerAttributes about{};
  CHECK(cudaPointerGetAttributes(&about, data));
  EXPECT(about.type == cudaMemoryTypeDevice && about.devicePointer == data);
  CHECK(cudaFree(data));
  CHECK(cudaFree(pitched));
  CHECK(cudaFree(box.ptr));
}

void launches() {
  int* out = numbers(1);
  const void* const kernel = reinterpret_cast<const void*>(sum_shared);
  cudaFuncAttributes about{};
  CHECK(cudaFuncGetAttributes(&about, kernel));
  EXPECT(about.maxThreadsPerBlock > 0);
  CHECK(cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, 64 << 10));
  launch(sum_shared, 1, 256, 64 << 10, nullptr, out);
  EXPECT(are_numbers(out, 1, 255 * 128));
  void* arguments[] = {&out};
  CHECK(cudaLaunchCooperativeKernel(kernel, dim3{1, 1, 1}, dim3{64, 1, 1}, arguments, 1024, nullptr));
  EXPECT(are_numbers(out, 1, 63 * 32));
  cudaLaunchConfig_t how{};
  how.gridDim = dim3{1, 1, 1};
  how.blockDim = dim3{32, 1, 1};
  how.dynamicSmemBytes = 1024;
  CHECK(cudaLaunchKernelExC(&how, kernel, arguments));
  EXPECT(are_numbers(out, 1, 31 * 16));
  CHECK(cudaFree(out));
}

void occupancy() {
  int blocks = 0, best_grid = 0;
  const void* const kernel = reinterpret_cast<const void*>(sum_shared);
  CHECK(cudaOccupancyMaxActiveBlocksPerMultiprocessor(&blocks, kernel, 128, 0));
  EXPECT(blocks > 0);
  CHECK(cudaOccupancyMaxActiveBlocksPerMultiprocessorWithFlags(&best_grid, kernel, 128, 0, cudaOccupancyDefault));
  EXPECT(best_grid == blocks);
  size_t bytes = 0;
  CHECK(cudaOccupancyAvailableDynamicSMemPerBlock(&bytes, kernel, 1, 128));
  EXPECT(bytes > 0);
}

void errors() {
  int* const data = numbers(1);
  void* arguments[] = {nullptr};
  EXPECT(cudaLaunchKernel(reinterpret_cast<const void*>(count), dim3{1, 1, 1}, dim3{5000, 1, 1}, arguments, 0,
                          nullptr) == cudaErrorInvalidValue ||
         cudaPeekAtLastError() == cudaErrorInvalidConfiguration);
  EXPECT(cudaGetLastError() != cudaSuccess);
  EXPECT(cudaGetLastError() == cudaSuccess);
  EXPECT(cudaMemcpy(data, nullptr, 4, cudaMemcpyHostToDevice) == cudaErrorInvalidValue);
  cudaGetLastError();
  EXPECT(std::strcmp(cudaGetErrorName(cudaErrorInvalidValue), "cudaErrorInvalidValue") == 0);
  EXPECT(cudaFree(data + 1) == cudaErrorInvalidValue);
  cudaGetLastError();
  CHECK(cudaFree(data));
}

void peers() {
  int can = -1;
  CHECK(cudaDeviceCanAccessPeer(&can, 0, 0));
  EXPECT(can == 0);
  int *const from = numbers(kCount), *const to = numbers(kCount);
  CHECK(cudaMemset(to, 0, kCount * sizeof(int)));
  CHECK(cudaMemcpyPeer(to, 0, from, 0, kCount * sizeof(int)));
  EXPECT(are_numbers(to, kCount, 0));
  CHECK(cudaFree(from));
  CHECK(cudaFree(to));
}

void textures() {
  float values[32], *device = nullptr, *out = nullptr;
  for (int i = 0; i < 32; i++) values[i] = i * 0.5f;
  CHECK(cudaMalloc(reinterpret_cast<void**>(&device), sizeof(values)));
  CHECK(cudaMalloc(reinterpret_cast<void**>(&out), sizeof(values)));
  CHECK(cudaMemcpy(device, values, sizeof(values), cudaMemcpyHostToDevice));
  cudaResourceDesc where{};
  where.resType = cudaResourceTypeLinear;
  where.res.linear.devPtr = device;
  where.res.linear.desc = cudaChannelFormatDesc{32, 0, 0, 0, cudaChannelFormatKindFloat};
  where.res.linear.sizeInBytes = sizeof(values);
  cudaTextureDesc how{};
  how.readMode = cudaReadModeElementType;
  cudaTextureObject_t texture = 0;
  CHECK(cudaCreateTextureObject(&texture, &where, &how, nullptr));
  launch(fetch, 1, 32, 0, nullptr, texture, out);
  float got[32] = {};
  CHECK(cudaMemcpy(got, out, sizeof(got), cudaMemcpyDeviceToHost));
  EXPECT(std::memcmp(got, values, sizeof(got)) == 0);
  CHECK(cudaDestroyTextureObject(texture));
}

void arrays() {
  const cudaChannelFormatDesc format{32, 0, 0, 0, cudaChannelFormatKindFloat};
  cudaArray_t array = nullptr;
  CHECK(cudaMallocArray(&array, &format, 16, 16, 0));
  float values[256] = {1, 2, 3}, got[256] = {};
  CHECK(cudaMemcpy2DToArray(array, 0, 0, values, 64, 64, 16, cudaMemcpyHostToDevice));
  CHECK(cudaMemcpy2DFromArray(got, 64, array, 0, 0, 64, 16, cudaMemcpyDeviceToHost));
  EXPECT(std::memcmp(got, values, sizeof(got)) == 0);
  CHECK(cudaFreeArray(array));
}

void reset() {
  CHECK(cudaDeviceReset());
  int* const data = numbers(kCount);
  launch(add_one, 8, 128, 0, nullptr, data, kCount);
  EXPECT(are_numbers(data, kCount, 1));
}

struct Subject {
  const char* name;
  void (*work)();
};

// `reset` comes last, because it ends what the others have made.
const Subject kSubjects[] = {
    {"properties", properties},
    {"limits", limits},
    {"symbols", symbols},
    {"managed variable", managed_variable},
    {"copies", copies},
    {"launches", launches},
    {"occupancy", occupancy},
    {"streams and events", streams_and_events},
    {"callbacks", callbacks},
    {"captured graph", graph_captured},
    {"explicit graph", graph_explicit},
    {"updated graph", graph_updated},
    {"pools", pools},
    {"managed memory", managed},
    {"mapped memory", mapped},
    {"registered memory", registered},
    {"errors", errors},
    {"peers", peers},
    {"IPC", between_processes},
    {"textures", textures},
    {"arrays", arrays},
    {"reset", reset},
};

bool failed(const Subject& subject) {
  try {
    subject.work();
    std::printf("%s: ok\n", subject.name);
    return false;
  } catch (const Failure& failure) {
    std::printf("%s: %s: %s\n", subject.name, failure.refused ? "refused" : "FAILED", failure.what.c_str());
    return !failure.refused;
  }
}

}  // namespace

int main(int count, char** arguments) {
  register_device_code();
  if (count > 1 && std::strcmp(arguments[1], "--ipc-child") == 0) return ipc_child();
  bool bad = false;
  for (const Subject& subject : kSubjects) {
    bad |= failed(subject);
    std::fflush(stdout);
  }
  return bad;
}
