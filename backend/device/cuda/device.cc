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

namespace {

// Where kernels reach whatever the process has mapped, they reach the runner: its keys, and what other threads do.
Status check_reach(const cuda::Driver& driver, CUdevice device) {
  constexpr const char* kAllow = "BANDSAW_ALLOW_PAGEABLE_ACCESS";
  int reaches = 0;
  driver.cuDeviceGetAttribute(&reaches, CU_DEVICE_ATTRIBUTE_PAGEABLE_MEMORY_ACCESS, device);
  const char* const allowed = std::getenv(kAllow);
  if (reaches == 0 || (allowed && std::string_view(allowed) == "1")) return {};
  return Status::error(EPERM,
                       "on this host kernels reach all memory of their process (HMM or ATS), and so a tenant's would "
                       "reach its runner's; load nvidia-uvm with uvm_disable_hmm=1, or set {}=1 for vgpud if you trust "
                       "all tenants",
                       kAllow);
}

}  // namespace

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
  if (Status status = check_reach(driver, device); !status.ok()) return status;
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

Result<std::unique_ptr<CudaDevice>> CudaDevice::make(const DeviceConfig& config, int index, DeviceHost* host) {
  auto driver = Driver::load();
  if (!driver.ok()) return driver.status();
  CUdevice device = 0;
  if (const CUresult result = driver.value()->cuDeviceGet(&device, index); result != CUDA_SUCCESS) {
    return Status::error(ENODEV, "GPU number {}: {}", index, driver.value()->describe(result));
  }
  if (Status status = check_reach(*driver.value(), device); !status.ok()) return status;
  std::unique_ptr<CudaDevice> made(new CudaDevice(config, driver.value(), host, device));
  if (Status status = made->warm_up(); !status.ok()) return status;
  return made;
}

CudaDevice::CudaDevice(const DeviceConfig& config, DriverRef driver, DeviceHost* host, CUdevice device)
    : config_(config),
      driver_(std::move(driver)),
      host_(host),
      device_(device),
      stacks_(driver_),
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
  if (Status status = reserve_part(0); !status.ok()) return status;
  pinned_ = std::make_unique<Pinned>(driver_);
  if (std::byte* slot = pinned_->take_slot()) pinned_->give_slot(slot);
  split_ = std::make_unique<SplitCopy>(driver_, pinned_.get());
  completions_ = std::make_unique<Completions>(driver_);
  streams_ = std::make_unique<Streams>(driver_, completions_.get());
  time_slices_ = std::make_unique<TimeSliceMeter>(driver_, completions_.get(), host_);
  keep_alive_ = std::make_unique<KeepAlive>(driver_, pinned_.get());
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

// The addresses of device memory.
Status CudaDevice::reserve_part(uint32_t part, const ptx::GuardArea* area) {
  auto heap = Heap::make(driver_, host_, device_,
                         config_.window_base + VGPU_WINDOW_DEVICE_OFFSET + part * VGPU_WINDOW_PART_BYTES,
                         VGPU_WINDOW_PART_BYTES, area);
  if (!heap.ok()) return heap.status();
  reservations_ = nullptr;
  heap_ = std::move(heap.value());
  reservations_ = std::make_unique<Reservations>(driver_, heap_.get(), device_, config_.window_base);
  return {};
}

Status CudaDevice::use_part(uint32_t part) {
  CUresult result = enter();
  if (result != CUDA_SUCCESS) return Status::error(ENODEV, "the warm context: {}", driver_->describe(result));
  if (!heap_->empty()) return Status::error(EBUSY, "device memory is in use: it cannot move to part {}", part);
  if (Status status = reserve_part(part); !status.ok()) return status;
  part_ = part;
  // The driver gives pools addresses of its own, the same ones in each process. What is reserved first moves them, so
  // that pools of two parts do not meet.
  constexpr uint64_t kApart = 1ull << 38;
  CUdeviceptr kept = 0;
  result = driver_->cuMemAddressReserve(&kept, part * kApart, 0, 0, 0);
  if (result != CUDA_SUCCESS) log::warn("addresses of pools are not moved: {}", driver_->describe(result));
  return {};
}

CudaDevice::~CudaDevice() = default;

CUresult CudaDevice::check(CUresult result) {
  if (is_sticky(result)) host_->poisoned(result);
  return result == CUDA_SUCCESS && guarded_ ? host_->guard_error() : result;
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
  *error = CUDA_SUCCESS;
  if (!streams_->some_capture()) return false;
  CUstreamCaptureStatus status = CU_STREAM_CAPTURE_STATUS_NONE;
  *error = driver_->cuStreamIsCapturing(stream, &status);
  return status != CU_STREAM_CAPTURE_STATUS_NONE;
}

void CudaDevice::tell_output() {
  if (!may_print_) return;
  if (const std::string text = output_.take(); !text.empty()) host_->print(text);
}

void CudaDevice::measure(unsigned engine, const StreamRef& stream, uint64_t bytes, bool is_plain_copy) {
  CUresult error = CUDA_SUCCESS;
  if (is_capturing(as(stream).handle, &error)) return;  // nothing runs now
  time_slices_->touch(engine, std::static_pointer_cast<CudaStream>(stream), bytes, is_plain_copy);
}

CUresult CudaDevice::host_pin(void* pointer, uint64_t bytes, bool read_only) {
  if (const CUresult result = enter()) return result;
  return pinned_->add(pointer, bytes, read_only);
}

void CudaDevice::host_unpin(void* pointer) {
  if (enter() == CUDA_SUCCESS) pinned_->remove(pointer);
}

}  // namespace bandsaw::cuda
