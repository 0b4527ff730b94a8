// What an NVIDIA GPU says about itself.
#include <algorithm>

#include "backend/device/cuda/cuda_device.h"

namespace bandsaw::cuda {
namespace {

// What this library's API is, whatever newer driver stands behind it.
constexpr int kApiVersion = 13000;

// Features that libcuda adds to what the driver has: physical host memory is a file of the guest's, registered here.
constexpr CUdevice_attribute kAdded[] = {
    CU_DEVICE_ATTRIBUTE_HOST_VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED,
    CU_DEVICE_ATTRIBUTE_HOST_NUMA_VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED,
};

// Starting a copy costs some 4 us, in which the link moves 200 KiB.
constexpr uint32_t kPieceBytes = 512u << 10;

// On bare metal the driver spins for as long as a wait takes, unless the program asked it to sleep. A guest's processor
// wakes late from a sleep, so guests spin too; but spinning costs a processor. Waits that are longer than this sleep:
// the late wake-up is a small part of them.
constexpr uint32_t kSpinUs = 100'000;

// Features that the driver has and the corridor does not carry.
constexpr CUdevice_attribute kAbsent[] = {
    CU_DEVICE_ATTRIBUTE_MULTI_GPU_BOARD,
    CU_DEVICE_ATTRIBUTE_GPU_DIRECT_RDMA_SUPPORTED,
    CU_DEVICE_ATTRIBUTE_GPU_DIRECT_RDMA_WITH_CUDA_VMM_SUPPORTED,
    CU_DEVICE_ATTRIBUTE_DMA_BUF_SUPPORTED,
    CU_DEVICE_ATTRIBUTE_MULTICAST_SUPPORTED,
    CU_DEVICE_ATTRIBUTE_HANDLE_TYPE_FABRIC_SUPPORTED,
    CU_DEVICE_ATTRIBUTE_HOST_NUMA_MULTINODE_IPC_SUPPORTED,
    CU_DEVICE_ATTRIBUTE_HOST_MEMORY_POOLS_SUPPORTED,
    CU_DEVICE_ATTRIBUTE_HOST_NUMA_MEMORY_POOLS_SUPPORTED,
    CU_DEVICE_ATTRIBUTE_HOST_ALLOC_DMA_BUF_SUPPORTED,
    CU_DEVICE_ATTRIBUTE_SPARSE_CUDA_ARRAY_SUPPORTED,
    CU_DEVICE_ATTRIBUTE_DEFERRED_MAPPING_CUDA_ARRAY_SUPPORTED,
    CU_DEVICE_ATTRIBUTE_MEMPOOL_SUPPORTED_HANDLE_TYPES,
    CU_DEVICE_ATTRIBUTE_PAGEABLE_MEMORY_ACCESS,
    CU_DEVICE_ATTRIBUTE_READ_ONLY_HOST_REGISTER_SUPPORTED,
};

}  // namespace

void CudaDevice::info(vgpu_device_info* info) {
  *info = {};
  driver_->cuDeviceGetName(info->name, sizeof info->name - 1, device_);
  CUuuid uuid{};
  driver_->cuDeviceGetUuid(&uuid, device_);
  static_assert(sizeof uuid.bytes == sizeof info->uuid);
  std::copy(std::begin(uuid.bytes), std::end(uuid.bytes), info->uuid);
  size_t total = 0;
  driver_->cuDeviceTotalMem(&total, device_);
  info->total_bytes = total;
  for (int i = 1; i < CU_DEVICE_ATTRIBUTE_MAX; ++i) {
    int value = 0;
    const CUresult result = driver_->cuDeviceGetAttribute(&value, static_cast<CUdevice_attribute>(i), device_);
    info->attributes[i] = result == CUDA_SUCCESS ? value : 0;
  }
  for (const CUdevice_attribute absent : kAbsent) info->attributes[absent] = 0;
  for (const CUdevice_attribute added : kAdded) info->attributes[added] = 1;
  enter();
  driver_->cuCtxGetStreamPriorityRange(&info->least_priority, &info->greatest_priority);
  // As many as kernels find: a cooperative one that needs more is refused.
  if (partition_) info->attributes[CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT] = static_cast<int>(partition_->sms());
  info->driver_version = kApiVersion;
  info->piece_bytes = kPieceBytes;
  info->spin_us = kSpinUs;
}

void CudaDevice::memory_info(uint64_t* free_bytes, uint64_t* total_bytes) {
  size_t free = 0, total = 0;
  enter();
  settle_pools();
  if (graphs_allocate_) graph_memory_->settle();
  check(driver_->cuMemGetInfo(&free, &total));
  *free_bytes = free;
  *total_bytes = total;
}

}  // namespace bandsaw::cuda
