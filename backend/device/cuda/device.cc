// The device's beginning and end, what it is, and contexts.
#include <algorithm>

#include "backend/device/cuda/cuda_device.h"
#include "backend/device/cuda/warm_up.h"
#include "backend/device/errors.h"
#include "guest-driver/uapi/vgpu_control.h"
#include "memory/base/log.h"

namespace bandsaw {

Result<std::unique_ptr<Device>> make_cuda_device(const DeviceConfig& config, int index, DeviceHost* host) {
  auto device = cuda::CudaDevice::make(config, index, host);
  if (!device.ok()) return device.status();
  return std::unique_ptr<Device>(std::move(device.value()));
}

Result<GpuIdentity> probe_cuda_device(int index) {
  auto loaded = cuda::Driver::load();
  if (!loaded.ok()) return loaded.status();
  const cuda::Driver& driver = *loaded.value();
  CUdevice device = 0;
  if (const CUresult result = driver.cuDeviceGet(&device, index); result != CUDA_SUCCESS) {
    int count = 0;
    driver.cuDeviceGetCount(&count);
    return Status::error(ENODEV, "no GPU number {}: this machine has {}", index, count);
  }
  GpuIdentity identity;
  char name[256] = "";
  CUuuid uuid{};
  size_t bytes = 0;
  driver.cuDeviceGetName(name, sizeof name - 1, device);
  driver.cuDeviceGetUuid(&uuid, device);
  driver.cuDeviceTotalMem(&bytes, device);
  driver.cuDriverGetVersion(&identity.driver_version);
  identity.name = name;
  identity.memory_bytes = bytes;
  CUdevResource sms{};
  if (driver.cuDeviceGetDevResource(device, &sms, CU_DEV_RESOURCE_TYPE_SM) == CUDA_SUCCESS) {
    identity.sms = sms.sm.smCount;
    identity.sm_step = sms.sm.minSmPartitionSize;
  }
  for (size_t i = 0; i < sizeof uuid.bytes; ++i) {
    if (i == 4 || i == 6 || i == 8 || i == 10) identity.uuid += '-';
    identity.uuid += fmt::format("{:02x}", static_cast<uint8_t>(uuid.bytes[i]));
  }
  return identity;
}

}  // namespace bandsaw

namespace bandsaw::cuda {
namespace {

// What this library's API is, whatever newer driver stands behind it.
constexpr int kApiVersion = 13000;

// Starting a copy costs some 4 us, in which the link moves 200 KiB.
constexpr uint32_t kPieceBytes = 512u << 10;

// Bare metal's driver looks at the GPU for as long as a wait takes, unless the program asked it to sleep. A guest's
// processor wakes late from a sleep, but one that looks has its price: the longest waits, of which it is the smallest
// part, are slept.
constexpr uint32_t kLookUs = 25'000;

// Features that the driver has and the corridor does not carry.
constexpr CUdevice_attribute kAbsent[] = {
    CU_DEVICE_ATTRIBUTE_MULTI_GPU_BOARD,
    CU_DEVICE_ATTRIBUTE_GPU_DIRECT_RDMA_SUPPORTED,
    CU_DEVICE_ATTRIBUTE_GPU_DIRECT_RDMA_WITH_CUDA_VMM_SUPPORTED,
    CU_DEVICE_ATTRIBUTE_DMA_BUF_SUPPORTED,
    CU_DEVICE_ATTRIBUTE_MULTICAST_SUPPORTED,
    CU_DEVICE_ATTRIBUTE_HANDLE_TYPE_FABRIC_SUPPORTED,
    CU_DEVICE_ATTRIBUTE_HOST_VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED,
    CU_DEVICE_ATTRIBUTE_HOST_NUMA_VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED,
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

Result<std::unique_ptr<CudaDevice>> CudaDevice::make(const DeviceConfig& config, int index, DeviceHost* host) {
  auto driver = Driver::load();
  if (!driver.ok()) return driver.status();
  CUdevice device = 0;
  if (const CUresult result = driver.value()->cuDeviceGet(&device, index); result != CUDA_SUCCESS) {
    return Status::error(ENODEV, "GPU number {}: {}", index, driver.value()->describe(result));
  }
  std::unique_ptr<CudaDevice> made(new CudaDevice(config, driver.value(), host, device));
  if (Status status = made->warm_up(); !status.ok()) return status;
  return made;
}

CudaDevice::CudaDevice(const DeviceConfig& config, DriverRef driver, DeviceHost* host, CUdevice device)
    : config_(config),
      driver_(std::move(driver)),
      host_(host),
      device_(device),
      graph_memory_(std::make_unique<GraphMemory>(driver_, host, device)),
      local_charge_(host) {}

// All that takes long and needs no guest.
Status CudaDevice::warm_up() {
  if (Status status = output_.capture(); !status.ok()) return status;
  if (config_.sm_step > 0) {
    auto partition = Partition::make(driver_, device_, config_);
    if (!partition.ok()) return partition.status();
    partition_ = std::move(partition.value());
  }
  // Whoever waits here has nothing better to do, and a spinning wait sees the end of a kernel soonest.
  driver_->cuDevicePrimaryCtxSetFlags(device_, CU_CTX_SCHED_SPIN);
  if (const CUresult result = retain_primary()) {
    return Status::error(ENODEV, "a context on {} of the GPU: {}",
                         partition_ ? fmt::format("{} SMs", partition_->sms()) : "all SMs", driver_->describe(result));
  }
  auto heap = Heap::make(driver_, host_, device_, config_.window_base + VGPU_WINDOW_DEVICE_OFFSET,
                         VGPU_WINDOW_BYTES - VGPU_WINDOW_DEVICE_OFFSET);
  if (!heap.ok()) return heap.status();
  heap_ = std::move(heap.value());
  reservations_ = std::make_unique<Reservations>(driver_, heap_.get(), device_);
  pinned_ = std::make_unique<Pinned>(driver_);
  if (std::byte* slot = pinned_->take_slot()) pinned_->give_slot(slot);
  marks_ = std::make_unique<Marks>(driver_, pinned_.get());
  split_ = std::make_unique<SplitCopy>(driver_, pinned_.get());
  completions_ = std::make_unique<Completions>(driver_);
  slices_ = std::make_unique<SliceMeter>(driver_, completions_.get(), host_);
  CUmemoryPool pool = nullptr;
  if (driver_->cuDeviceGetDefaultMemPool(&pool, device_) == CUDA_SUCCESS) {
    const auto wrapped = std::make_shared<CudaPool>(driver_, host_, pool, false);
    default_pool_ = wrapped;
    pools_.push_back(wrapped);
  }
  walk_driver_paths(*driver_, device_);
  waiter_.run([this] { enter(); });
  return {};
}

CudaDevice::~CudaDevice() = default;

CUresult CudaDevice::check(CUresult result) {
  if (is_sticky(result)) host_->poisoned(result);
  return result;
}

CudaContextRef CudaDevice::own_context() {
  std::lock_guard lock(contexts_mutex_);
  return primary_;
}

CUresult CudaDevice::enter(const CudaContextRef& context) {
  if (!context) return make_current(*driver_, *own_context());
  if (!context->alive) return CUDA_ERROR_CONTEXT_IS_DESTROYED;
  return make_current(*driver_, *context);
}

CUresult CudaDevice::enter(const Code& code) { return code.function ? enter(as(code.function).context) : enter(); }

bool CudaDevice::is_capturing(CUstream stream, CUresult* error) {
  CUstreamCaptureStatus status = CU_STREAM_CAPTURE_STATUS_NONE;
  *error = driver_->cuStreamIsCapturing(stream, &status);
  return status != CU_STREAM_CAPTURE_STATUS_NONE;
}

void CudaDevice::tell_output() {
  if (!may_print_) return;
  if (const std::string text = output_.take(); !text.empty()) host_->print(text);
}

void CudaDevice::measure(unsigned engine, const StreamRef& stream, uint64_t bytes) {
  CUresult error = CUDA_SUCCESS;
  if (captures_active_ > 0 && is_capturing(as(stream).handle, &error)) return;  // nothing runs now
  slices_->touch(engine, std::static_pointer_cast<CudaStream>(stream), bytes);
}

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
  enter();
  driver_->cuCtxGetStreamPriorityRange(&info->least_priority, &info->greatest_priority);
  // As many as kernels find: a cooperative one that needs more is refused.
  if (partition_) info->attributes[CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT] = static_cast<int>(partition_->sms());
  info->driver_version = kApiVersion;
  info->piece_bytes = kPieceBytes;
  info->look_us = kLookUs;
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

CUresult CudaDevice::host_pin(void* pointer, uint64_t bytes, bool read_only) {
  if (const CUresult result = enter()) return result;
  return pinned_->add(pointer, bytes, read_only);
}

void CudaDevice::host_unpin(void* pointer) {
  if (enter() == CUDA_SUCCESS) pinned_->remove(pointer);
}

}  // namespace bandsaw::cuda
