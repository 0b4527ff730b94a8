#include "backend/device/cuda/warm_up.h"

#include <sys/mman.h>

#include <cstddef>

namespace bandsaw::cuda {
namespace {

constexpr char kKernel[] = R"(.version 7.0
.target sm_52
.address_size 64
.visible .entry nothing(.param .u64 a) { ret; }
)";
constexpr size_t kBytes = 2u << 20;

void walk_kernel(const Driver& driver, CUstream stream) {
  CUlibrary library = nullptr;
  CUkernel kernel = nullptr;
  CUfunction function = nullptr;
  if (driver.cuLibraryLoadData(&library, kKernel, nullptr, nullptr, 0, nullptr, nullptr, 0) != CUDA_SUCCESS) return;
  if (driver.cuLibraryGetKernel(&kernel, library, "nothing") == CUDA_SUCCESS &&
      driver.cuKernelGetFunction(&function, kernel) == CUDA_SUCCESS) {
    size_t offset = 0, size = 0;
    int value = 0;
    driver.cuKernelGetParamInfo(kernel, 0, &offset, &size);
    driver.cuKernelGetAttribute(&value, CU_FUNC_ATTRIBUTE_NUM_REGS, kernel, 0);
    driver.cuOccupancyMaxActiveBlocksPerMultiprocessor(&value, function, 32, 0);
    uint64_t argument = 0;
    size_t bytes = sizeof argument;
    void* extra[] = {CU_LAUNCH_PARAM_BUFFER_POINTER, &argument, CU_LAUNCH_PARAM_BUFFER_SIZE, &bytes,
                     CU_LAUNCH_PARAM_END};
    CUlaunchConfig config{};
    config.gridDimX = config.gridDimY = config.gridDimZ = 1;
    config.blockDimX = config.blockDimY = config.blockDimZ = 1;
    for (const CUstream on : {CU_STREAM_LEGACY, stream}) {
      config.hStream = on;
      driver.cuLaunchKernelEx(&config, reinterpret_cast<CUfunction>(kernel), nullptr, extra);
      driver.cuStreamSynchronize(on);
    }
  }
  driver.cuCtxSynchronize();
  driver.cuLibraryUnload(library);
}

void walk_copies(const Driver& driver, CUdeviceptr device, std::byte* host, CUstream stream) {
  for (const size_t bytes : {size_t{4}, size_t{4096}, size_t{64} << 10, kBytes}) {
    for (const CUstream on : {CU_STREAM_LEGACY, stream}) {
      driver.cuMemcpyHtoDAsync(device, host, bytes, on);
      driver.cuMemcpyDtoHAsync(host, device, bytes, on);
      driver.cuMemsetD8Async(device, 0, bytes, on);
      driver.cuStreamSynchronize(on);
    }
  }
  driver.cuMemsetD32Async(device, 0, kBytes / 4, stream);
  driver.cuMemcpyDtoDAsync(device, device + kBytes / 2, kBytes / 2, stream);
  const uint32_t word = 0;  // pageable
  driver.cuMemcpyHtoDAsync(device, &word, sizeof word, CU_STREAM_LEGACY);
}

void walk_events(const Driver& driver, CUstream stream) {
  CUevent first = nullptr, second = nullptr;
  float milliseconds = 0;
  if (driver.cuEventCreate(&first, 0) == CUDA_SUCCESS && driver.cuEventCreate(&second, 0) == CUDA_SUCCESS) {
    driver.cuEventRecordWithFlags(first, stream, 0);
    driver.cuEventRecordWithFlags(second, CU_STREAM_LEGACY, 0);
    driver.cuStreamWaitEvent(stream, second, 0);
    driver.cuEventQuery(first);
    driver.cuEventSynchronize(second);
    driver.cuEventElapsedTime(&milliseconds, first, second);
    driver.cuStreamQuery(stream);
  }
  if (first) driver.cuEventDestroy(first);
  if (second) driver.cuEventDestroy(second);
}

}  // namespace

void walk_driver_paths(const Driver& driver, CUdevice device) {
  void* const host = mmap(nullptr, kBytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS | MAP_POPULATE, -1, 0);
  if (host == MAP_FAILED) return;
  const bool registered = driver.cuMemHostRegister(
                              host, kBytes, CU_MEMHOSTREGISTER_PORTABLE | CU_MEMHOSTREGISTER_DEVICEMAP) == CUDA_SUCCESS;
  CUstream stream = nullptr;
  CUmemoryPool pool = nullptr;
  CUdeviceptr memory = 0;
  if (driver.cuStreamCreateWithPriority(&stream, CU_STREAM_NON_BLOCKING, 0) == CUDA_SUCCESS &&
      driver.cuDeviceGetDefaultMemPool(&pool, device) == CUDA_SUCCESS &&
      driver.cuMemAllocFromPoolAsync(&memory, kBytes, pool, stream) == CUDA_SUCCESS) {
    walk_copies(driver, memory, static_cast<std::byte*>(host), stream);
    walk_kernel(driver, stream);
    walk_events(driver, stream);
    driver.cuMemFreeAsync(memory, stream);
    driver.cuStreamSynchronize(stream);
    driver.cuMemPoolTrimTo(pool, 0);
  }
  if (stream) driver.cuStreamDestroy(stream);
  if (registered) driver.cuMemHostUnregister(host);
  munmap(host, kBytes);
}

}  // namespace bandsaw::cuda
