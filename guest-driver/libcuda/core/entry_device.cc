// cuDevice*: answered from what cuInit learned about the device, but for its memory.
#include <cuda.h>

#include <cstdio>
#include <cstring>

#include "guest-driver/libcuda/core/call.h"
#include "guest-driver/libcuda/core/device.h"
#include "guest-driver/libcuda/core/process.h"
#include "guest-driver/libcuda/wire_client.h"

using namespace bandsaw;
using namespace bandsaw::libcuda;

namespace bandsaw::libcuda {

CUresult check_device(CUdevice device) {
  if (state() == State::kUninitialised) return CUDA_ERROR_NOT_INITIALIZED;
  return device >= 0 && device < gpu_count() ? CUDA_SUCCESS : CUDA_ERROR_INVALID_DEVICE;
}

int device_attribute(CUdevice_attribute attribute) { return current_gpu().info.attributes[attribute]; }

int device_attribute(CUdevice_attribute attribute, CUdevice device) {
  return gpu_at(device).info.attributes[attribute];
}

unsigned native_atomics(CUatomicOperation operation) {
  constexpr unsigned kBoth = CU_ATOMIC_CAPABILITY_SIGNED | CU_ATOMIC_CAPABILITY_UNSIGNED;
  constexpr unsigned kScalar =
      CU_ATOMIC_CAPABILITY_REDUCTION | CU_ATOMIC_CAPABILITY_SCALAR_32 | CU_ATOMIC_CAPABILITY_SCALAR_64;
  switch (operation) {
    case CU_ATOMIC_OPERATION_INTEGER_ADD:
    case CU_ATOMIC_OPERATION_INTEGER_MIN:
    case CU_ATOMIC_OPERATION_INTEGER_MAX:
      return kBoth | kScalar;
    case CU_ATOMIC_OPERATION_INTEGER_INCREMENT:
    case CU_ATOMIC_OPERATION_INTEGER_DECREMENT:
      return CU_ATOMIC_CAPABILITY_UNSIGNED | CU_ATOMIC_CAPABILITY_REDUCTION | CU_ATOMIC_CAPABILITY_SCALAR_32;
    case CU_ATOMIC_OPERATION_AND:
    case CU_ATOMIC_OPERATION_OR:
    case CU_ATOMIC_OPERATION_XOR:
      return kScalar;
    case CU_ATOMIC_OPERATION_EXCHANGE:
    case CU_ATOMIC_OPERATION_CAS:
      return CU_ATOMIC_CAPABILITY_SCALAR_32 | CU_ATOMIC_CAPABILITY_SCALAR_64 | CU_ATOMIC_CAPABILITY_SCALAR_128;
    case CU_ATOMIC_OPERATION_FLOAT_ADD:
      return kScalar;
    default:
      return 0;
  }
}

}  // namespace bandsaw::libcuda

extern "C" {

CUresult CUDAAPI cuDeviceGet(CUdevice* device, int ordinal) {
  if (!device) return CUDA_ERROR_INVALID_VALUE;
  if (const CUresult result = check_device(ordinal); result != CUDA_SUCCESS) return result;
  *device = ordinal;
  return CUDA_SUCCESS;
}

CUresult CUDAAPI cuDeviceGetCount(int* count) {
  if (state() == State::kUninitialised) return CUDA_ERROR_NOT_INITIALIZED;
  if (!count) return CUDA_ERROR_INVALID_VALUE;
  *count = gpu_count();
  return CUDA_SUCCESS;
}

CUresult CUDAAPI cuDeviceGetName(char* name, int len, CUdevice dev) {
  if (const CUresult result = check_device(dev); result != CUDA_SUCCESS) return result;
  if (!name || len <= 0) return CUDA_ERROR_INVALID_VALUE;
  std::snprintf(name, static_cast<size_t>(len), "%s", gpu_at(dev).info.name);
  return CUDA_SUCCESS;
}

CUresult CUDAAPI cuDeviceGetUuid_v2(CUuuid* uuid, CUdevice dev) {
  if (!uuid) return CUDA_ERROR_INVALID_VALUE;
  if (const CUresult result = check_device(dev); result != CUDA_SUCCESS) return result;
  static_assert(sizeof(uuid->bytes) == sizeof(VirtualGpu::info.uuid));
  std::memcpy(uuid->bytes, gpu_at(dev).info.uuid, sizeof(uuid->bytes));
  return CUDA_SUCCESS;
}

CUresult CUDAAPI cuDeviceGetUuid(CUuuid* uuid, CUdevice dev) { return cuDeviceGetUuid_v2(uuid, dev); }

CUresult CUDAAPI cuDeviceTotalMem_v2(size_t* bytes, CUdevice dev) {
  if (!bytes) return CUDA_ERROR_INVALID_VALUE;
  if (const CUresult result = check_device(dev); result != CUDA_SUCCESS) return result;
  // The share may have been changed since cuInit.
  Call call(gpu_at(dev));
  uint64_t left = 0, all = 0;
  *bytes = wire::memory_info(call, &left, &all) == CUDA_SUCCESS ? all : gpu_at(dev).info.total_bytes;
  return CUDA_SUCCESS;
}

CUresult CUDAAPI cuDeviceTotalMem(unsigned int* bytes, CUdevice dev) {
  size_t whole = 0;
  if (!bytes) return CUDA_ERROR_INVALID_VALUE;
  const CUresult result = cuDeviceTotalMem_v2(&whole, dev);
  if (result == CUDA_SUCCESS) *bytes = whole > 0xffffffffu ? 0xffffffffu : static_cast<unsigned int>(whole);
  return result;
}

CUresult CUDAAPI cuDeviceGetAttribute(int* pi, CUdevice_attribute attrib, CUdevice dev) {
  if (!pi || attrib <= 0 || attrib >= CU_DEVICE_ATTRIBUTE_MAX) return CUDA_ERROR_INVALID_VALUE;
  static_assert(CU_DEVICE_ATTRIBUTE_MAX <= VGPU_ATTRIBUTES_MAX);
  if (const CUresult result = check_device(dev); result != CUDA_SUCCESS) return result;
  *pi = device_attribute(attrib, dev);
  return CUDA_SUCCESS;
}

CUresult CUDAAPI cuDeviceComputeCapability(int* major, int* minor, CUdevice dev) {
  if (!major || !minor) return CUDA_ERROR_INVALID_VALUE;
  if (const CUresult result = check_device(dev); result != CUDA_SUCCESS) return result;
  *major = device_attribute(CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR, dev);
  *minor = device_attribute(CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR, dev);
  return CUDA_SUCCESS;
}

CUresult CUDAAPI cuDeviceGetProperties(CUdevprop* prop, CUdevice dev) {
  if (!prop) return CUDA_ERROR_INVALID_VALUE;
  if (const CUresult result = check_device(dev); result != CUDA_SUCCESS) return result;
  prop->maxThreadsPerBlock = device_attribute(CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_BLOCK, dev);
  prop->maxThreadsDim[0] = device_attribute(CU_DEVICE_ATTRIBUTE_MAX_BLOCK_DIM_X, dev);
  prop->maxThreadsDim[1] = device_attribute(CU_DEVICE_ATTRIBUTE_MAX_BLOCK_DIM_Y, dev);
  prop->maxThreadsDim[2] = device_attribute(CU_DEVICE_ATTRIBUTE_MAX_BLOCK_DIM_Z, dev);
  prop->maxGridSize[0] = device_attribute(CU_DEVICE_ATTRIBUTE_MAX_GRID_DIM_X, dev);
  prop->maxGridSize[1] = device_attribute(CU_DEVICE_ATTRIBUTE_MAX_GRID_DIM_Y, dev);
  prop->maxGridSize[2] = device_attribute(CU_DEVICE_ATTRIBUTE_MAX_GRID_DIM_Z, dev);
  prop->sharedMemPerBlock = device_attribute(CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK, dev);
  prop->totalConstantMemory = device_attribute(CU_DEVICE_ATTRIBUTE_TOTAL_CONSTANT_MEMORY, dev);
  prop->SIMDWidth = device_attribute(CU_DEVICE_ATTRIBUTE_WARP_SIZE, dev);
  prop->memPitch = device_attribute(CU_DEVICE_ATTRIBUTE_MAX_PITCH, dev);
  prop->regsPerBlock = device_attribute(CU_DEVICE_ATTRIBUTE_MAX_REGISTERS_PER_BLOCK, dev);
  prop->clockRate = device_attribute(CU_DEVICE_ATTRIBUTE_CLOCK_RATE, dev);
  prop->textureAlign = device_attribute(CU_DEVICE_ATTRIBUTE_TEXTURE_ALIGNMENT, dev);
  return CUDA_SUCCESS;
}

CUresult CUDAAPI cuDeviceGetPCIBusId(char* pciBusId, int len, CUdevice dev) {
  constexpr int kLength = sizeof("0000:00:00.0");
  if (!pciBusId || len <= 0) return CUDA_ERROR_INVALID_VALUE;
  if (const CUresult result = check_device(dev); result != CUDA_SUCCESS) return result;
  if (len < kLength) return CUDA_ERROR_INVALID_VALUE;
  std::snprintf(pciBusId, static_cast<size_t>(len), "%04X:%02X:%02X.0",
                static_cast<unsigned>(device_attribute(CU_DEVICE_ATTRIBUTE_PCI_DOMAIN_ID, dev)),
                static_cast<unsigned>(device_attribute(CU_DEVICE_ATTRIBUTE_PCI_BUS_ID, dev)),
                static_cast<unsigned>(device_attribute(CU_DEVICE_ATTRIBUTE_PCI_DEVICE_ID, dev)));
  return CUDA_SUCCESS;
}

CUresult CUDAAPI cuDeviceGetByPCIBusId(CUdevice* dev, const char* pciBusId) {
  if (!dev || !pciBusId) return CUDA_ERROR_INVALID_VALUE;
  if (const CUresult result = check_device(0); result != CUDA_SUCCESS) return result;
  unsigned domain = 0, bus = 0, device = 0, function = 0;
  const bool read = std::sscanf(pciBusId, "%x:%x:%x.%x", &domain, &bus, &device, &function) >= 3 ||
                    (domain = function = 0, std::sscanf(pciBusId, "%x:%x.%x", &bus, &device, &function) >= 2);
  if (!read) return CUDA_ERROR_INVALID_VALUE;
  for (CUdevice one = 0; one < gpu_count() && !function; ++one) {
    const auto is = [one](CUdevice_attribute attribute, unsigned value) {
      return static_cast<unsigned>(device_attribute(attribute, one)) == value;
    };
    if (!is(CU_DEVICE_ATTRIBUTE_PCI_DOMAIN_ID, domain) || !is(CU_DEVICE_ATTRIBUTE_PCI_BUS_ID, bus) ||
        !is(CU_DEVICE_ATTRIBUTE_PCI_DEVICE_ID, device)) {
      continue;
    }
    *dev = one;
    return CUDA_SUCCESS;
  }
  return CUDA_ERROR_INVALID_DEVICE;
}

CUresult CUDAAPI cuDeviceGetHostAtomicCapabilities(unsigned int* capabilities, const CUatomicOperation* operations,
                                                   unsigned int count, CUdevice dev) {
  if (!capabilities || !operations || !count) return CUDA_ERROR_INVALID_VALUE;
  if (const CUresult result = check_device(dev); result != CUDA_SUCCESS) return result;
  for (unsigned i = 0; i < count; i++) {
    if (operations[i] < 0 || operations[i] >= CU_ATOMIC_OPERATION_MAX) return CUDA_ERROR_INVALID_VALUE;
    const bool native = device_attribute(CU_DEVICE_ATTRIBUTE_HOST_NATIVE_ATOMIC_SUPPORTED, dev);
    capabilities[i] = native ? native_atomics(operations[i]) : 0;
  }
  return CUDA_SUCCESS;
}

CUresult CUDAAPI cuDeviceGetExecAffinitySupport(int* pi, CUexecAffinityType type, CUdevice dev) {
  if (!pi) return CUDA_ERROR_INVALID_VALUE;
  if (const CUresult result = check_device(dev); result != CUDA_SUCCESS) return result;
  *pi = 0;
  return CUDA_SUCCESS;
}

}  // extern "C"
