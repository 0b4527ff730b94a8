// Device memory, pools, and managed memory (which is the guest's own pages, registered at their own addresses).
#include <sys/prctl.h>

#include "backend/device/cuda/cuda_device.h"
#include "memory/base/log.h"

namespace bandsaw::cuda {

CUresult CudaDevice::memory_alloc(const ContextRef& context, uint64_t bytes, uint64_t* address) {
  if (const CUresult result = enter(as(context))) return result;
  return check(with_room([&] { return heap_->allocate(as(context), bytes, address); }));
}

// Freeing waits for all work of the memory's context, as cuMemFree does; only then may it be unmapped.
void CudaDevice::memory_free(uint64_t address, Done done) {
  if (address == 0) return finished(CUDA_SUCCESS, done);
  // What is not the heap's is a pool's or a graph's, if it is anything: the driver knows.
  const bool drivers = !heap_->reserves(address);
  const CudaContextRef context = drivers ? own_context() : heap_->context_of(address);
  if (!context) return finished(CUDA_ERROR_INVALID_VALUE, done);
  const auto free = [this, address, drivers] {
    return drivers ? free_pooled(address, CU_STREAM_LEGACY) : heap_->release(address);
  };
  // Guarded kernels that the caller issues meanwhile must not run while the memory goes: it waits, too.
  if (guarded_) {
    CUresult result = enter(context);
    if (result == CUDA_SUCCESS) result = streams_->settle(context);
    return finished(result == CUDA_SUCCESS ? free() : result, done);
  }
  when_idle(context, free, std::move(done));
}

CUresult CudaDevice::chunks_move(const swap::Moves& moves) {
  if (const CUresult result = enter()) return result;
  return check(heap_->move_chunks(own_context(), moves));
}

CUresult CudaDevice::chunks_reach(const std::vector<uint64_t>& chunks) {
  if (const CUresult result = enter()) return result;
  return check(heap_->reach_chunks(chunks));
}

void CudaDevice::chunks_prepare(uint64_t chunk_bytes, uint64_t bytes) {
  heap_->prepare_chunks(own_context(), chunk_bytes, bytes);
}

// Pools keep what they do not need now.
CUresult CudaDevice::memory_leave() {
  keep_alive_->end();
  if (const CUresult result = enter()) return result;
  make_room();
  const CUresult result = check(heap_->leave(own_context()->handle));
  if (result != CUDA_SUCCESS) return result;
  stacks_.give_back(own_context());
  // So that the driver may do the rest, for another process of this user's.
  ::prctl(PR_SET_DUMPABLE, 1);
  return result;
}

CUresult CudaDevice::memory_return() {
  ::prctl(PR_SET_DUMPABLE, 0);
  if (const CUresult result = enter()) return result;
  CUresult result = check(stacks_.allow_again());
  if (result == CUDA_SUCCESS) result = check(heap_->come_back(own_context()->handle));
  if (result == CUDA_SUCCESS && along_) {
    result = check(along_->copy(own_context()->handle, true));
    if (result == CUDA_SUCCESS) along_ = nullptr;
  }
  return result;
}

// No call of the driver's: it answers none while it has taken the contexts off the GPU.
std::optional<std::vector<AwayMemory>> CudaDevice::memory_away() {
  std::vector<AwayMemory> all = heap_->away();
  if (along_) along_->away(&all);
  return all;
}

CUresult CudaDevice::managed_add(const ContextRef&, uint64_t address, uint64_t bytes) {
  // The region was registered when it was mapped; here it only begins to count.
  Charge charge(host_);
  if (const CUresult result = take_share(bytes, &charge)) return result;
  std::lock_guard lock(managed_mutex_);
  return managed_.emplace(address, std::move(charge)).second ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

void CudaDevice::managed_remove(uint64_t address, Done done) {
  const auto remove = [this, address] {
    const CUresult result = streams_->settle(own_context());
    std::lock_guard lock(managed_mutex_);
    return managed_.erase(address) != 0 ? result : CUDA_ERROR_INVALID_VALUE;
  };
  wait(nullptr, remove, std::move(done));
}

void CudaDevice::settle(Done done) {
  when_idle(own_context(), [] { return CUDA_SUCCESS; }, std::move(done));
}

CUresult CudaDevice::take_share(uint64_t bytes, Charge* charge) {
  return with_room([&] { return charge->resize(bytes) ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY; });
}

// The driver keeps local memory for as many threads as the GPU runs at once, of the size that the largest kernel needs.
// What a context has from its beginning is part of kContextBytes.
CUresult CudaDevice::take_local(uint64_t thread_bytes) {
  if (thread_bytes <= kLocalBytes) return CUDA_SUCCESS;
  std::lock_guard lock(local_mutex_);
  const uint64_t bytes = (thread_bytes - kLocalBytes) * resident_threads();
  return bytes > local_charge_.bytes() ? take_share(bytes, &local_charge_) : CUDA_SUCCESS;
}

uint64_t CudaDevice::resident_threads() const {
  int sms = 0, threads = 0;
  driver_->cuDeviceGetAttribute(&sms, CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT, device_);
  driver_->cuDeviceGetAttribute(&threads, CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_MULTIPROCESSOR, device_);
  return static_cast<uint64_t>(sms) * static_cast<uint64_t>(threads);
}

}  // namespace bandsaw::cuda
