// Memory and events that other processes of the same virtual GPU use.
#include <cstring>

#include "backend/device/cuda/cuda_device.h"
#include "memory/base/log.h"

namespace bandsaw::cuda {

void CudaDevice::memory_export(const MemoryRef& memory, uint64_t address, const Exported& done) {
  if (const CUresult result = enter()) return done(result, {}, 0, 0);
  CUmemGenericAllocationHandle handle = 0;
  uint64_t bytes = 0, offset = 0;
  if (memory) {
    handle = static_cast<const CudaMemory&>(*memory).handle;
    bytes = static_cast<const CudaMemory&>(*memory).bytes;
  } else if (heap_->has_chunks(address)) {
    log::info("memory of a virtual GPU whose programs may allocate more than is resident cannot be opened by others");
    return done(CUDA_ERROR_NOT_SUPPORTED, {}, 0, 0);
  } else if (!heap_->share(address, &handle, &bytes, &offset)) {
    return done(CUDA_ERROR_INVALID_VALUE, {}, 0, 0);
  }
  int made = -1;
  const CUresult result =
      check(driver_->cuMemExportToShareableHandle(&made, handle, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0));
  done(result, UniqueFd(result == CUDA_SUCCESS ? made : -1), bytes, offset);
}

// The same memory counts in each process that has it: nobody can tell which of them keeps it the longest.
CUresult CudaDevice::memory_import(int fd, uint64_t bytes, MemoryRef* memory) {
  if (const CUresult result = enter()) return result;
  if (bytes > INT64_MAX) return CUDA_ERROR_INVALID_VALUE;
  Charge charge(host_);
  if (const CUresult result = take_share(bytes, &charge)) return result;
  return import_charged(fd, bytes, std::move(charge), memory);
}

// Another virtual GPU is charged for it.
CUresult CudaDevice::memory_borrow(int fd, uint64_t bytes, MemoryRef* memory) {
  if (const CUresult result = enter()) return result;
  return import_charged(fd, bytes, Charge(host_), memory);
}

CUresult CudaDevice::import_charged(int fd, uint64_t bytes, Charge charge, MemoryRef* memory) {
  CUmemGenericAllocationHandle handle = 0;
  void* const shared = reinterpret_cast<void*>(static_cast<intptr_t>(fd));
  const CUresult result =
      check(driver_->cuMemImportFromShareableHandle(&handle, shared, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR));
  if (result == CUDA_SUCCESS) *memory = std::make_shared<CudaMemory>(driver_, handle, bytes, std::move(charge));
  return result;
}

// Without waiting for work that uses it: that belongs to a program that has freed the memory on its own device, or
// whose device is gone.
void CudaDevice::memory_revoke(const MemoryRef& memory) {
  if (enter() == CUDA_SUCCESS) reservations_->revoke(memory);
}

CUresult CudaDevice::event_export(const EventRef& event, EventToken* token, UniqueFd*) {
  if (const CUresult result = enter(as(event).context)) return result;
  CUipcEventHandle handle;
  static_assert(sizeof(handle) == sizeof(*token));
  const CUresult result = check(driver_->cuIpcGetEventHandle(&handle, as(event).handle));
  std::memcpy(token->data(), &handle, sizeof(handle));
  return result;
}

CUresult CudaDevice::event_import(const ContextRef& context, const EventToken& token, int, EventRef* event) {
  if (const CUresult result = enter(as(context))) return result;
  CUipcEventHandle handle;
  std::memcpy(&handle, token.data(), sizeof(handle));
  CUevent made = nullptr;
  const CUresult result = check(driver_->cuIpcOpenEventHandle(&made, handle));
  if (result == CUDA_SUCCESS) *event = std::make_shared<CudaEvent>(driver_, made, as(context));
  return result;
}

}  // namespace bandsaw::cuda

namespace bandsaw::cuda {

Result<SegmentDescriptors> make_segment(const Driver& driver, uint64_t bytes, int index) {
  CUdevice device = 0;
  if (const CUresult result = driver.cuDeviceGet(&device, index); result != CUDA_SUCCESS) {
    return Status::error(ENODEV, "no GPU number {}: {}", index, driver.describe(result));
  }
  const CUmemAllocationProp prop = allocation_properties(device);
  CUmemGenericAllocationHandle handle = 0;
  CUresult result = driver.cuMemCreate(&handle, bytes, &prop, 0);
  if (result != CUDA_SUCCESS) {
    return Status::error(result == CUDA_ERROR_OUT_OF_MEMORY ? ENOMEM : EIO, "{}", driver.describe(result));
  }
  int fd = -1;
  result = driver.cuMemExportToShareableHandle(&fd, handle, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0);
  driver.cuMemRelease(handle);  // the descriptor holds the memory
  if (result != CUDA_SUCCESS) return Status::error(EIO, "{}", driver.describe(result));
  return SegmentDescriptors{UniqueFd(fd), {}};
}

}  // namespace bandsaw::cuda

namespace bandsaw {

Result<SegmentDescriptors> make_cuda_segment(uint64_t bytes, int index) {
  const auto driver = cuda::Driver::load();
  return driver.ok() ? cuda::make_segment(*driver.value(), bytes, index) : driver.status();
}

}  // namespace bandsaw
