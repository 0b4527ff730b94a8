// Allocations of chunks that lie on the device or in host memory, at the same address: what may be allocated beyond
// what is resident.
#include <algorithm>

#include "backend/device/cuda/heap.h"

namespace bandsaw::cuda {

// Host memory that belongs to nobody's address space: the driver keeps it, and the device reaches it over the bus. It
// is not exported.
CUmemAllocationProp Heap::properties(bool on_device) const {
  if (on_device) return allocation_properties(device_);
  CUmemAllocationProp prop{};
  prop.type = CU_MEM_ALLOCATION_TYPE_PINNED;
  prop.location.type = CU_MEM_LOCATION_TYPE_HOST_NUMA;
  int node = 0;
  driver_->cuDeviceGetAttribute(&node, CU_DEVICE_ATTRIBUTE_HOST_NUMA_ID, device_);
  prop.location.id = node > 0 ? node : 0;
  return prop;
}

CUresult Heap::map_at(uint64_t address, uint64_t bytes, CUmemGenericAllocationHandle handle) {
  CUresult result = open(address, bytes);
  if (result != CUDA_SUCCESS) return result;
  result = driver_->cuMemMap(address, bytes, 0, handle, 0);
  if (result != CUDA_SUCCESS) close(address, bytes);
  if (result != CUDA_SUCCESS) return result;
  CUmemAccessDesc access{};
  access.location = allocation_properties(device_).location;
  access.flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE;
  result = driver_->cuMemSetAccess(address, bytes, &access, 1);
  if (result != CUDA_SUCCESS) unmap_at(address, bytes);
  return result;
}

CUresult Heap::map_chunk(Mapping* chunk) {
  const CUmemAllocationProp prop = properties(chunk->on_device);
  CUresult result = driver_->cuMemCreate(&chunk->handle, chunk->bytes, &prop, 0);
  if (result != CUDA_SUCCESS) return result;
  result = map_at(chunk->address, chunk->bytes, chunk->handle);
  if (result != CUDA_SUCCESS) driver_->cuMemRelease(chunk->handle);
  return result;
}

CUresult Heap::allocate_chunks(const CudaContextRef& context, uint64_t bytes, swap::Book* book, uint64_t* address) {
  const uint64_t whole = (bytes + granularity_ - 1) / granularity_ * granularity_;
  std::vector<swap::Piece> pieces = swap::place(*book, whole, granularity_);
  if (pieces.empty()) return CUDA_ERROR_OUT_OF_MEMORY;
  // What follows is nobody's: a pointer just past the end is none into another allocation.
  const auto range = ranges_.take(whole + granularity_, granularity_);
  CUresult result = range ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY;
  Allocation allocation;
  allocation.context = context;
  allocation.bytes = whole;
  for (swap::Piece& piece : pieces) {
    if (result != CUDA_SUCCESS) break;
    Mapping chunk{.address = *range + piece.offset, .bytes = piece.bytes, .on_device = piece.on_device};
    result = map_chunk(&chunk);
    // Others' memory may still be on its way off the device.
    if (result == CUDA_ERROR_OUT_OF_MEMORY && chunk.on_device && book->charge_move(piece.bytes, false)) {
      chunk.on_device = piece.on_device = false;
      result = map_chunk(&chunk);
    }
    if (result == CUDA_SUCCESS) allocation.chunks.push_back(chunk);
  }
  if (result != CUDA_SUCCESS) {
    for (const Mapping& chunk : allocation.chunks) {
      unmap_at(chunk.address, chunk.bytes);
      driver_->cuMemRelease(chunk.handle);
    }
    if (range) ranges_.give_back(*range, whole + granularity_);
    swap::give_back(*book, pieces);
    return result;
  }
  *address = *range;
  std::lock_guard lock(mutex_);
  for (const Mapping& chunk : allocation.chunks) book->add(*address, chunk.address, chunk.bytes, chunk.on_device);
  allocations_.emplace(*address, std::move(allocation));
  return CUDA_SUCCESS;
}

// Nobody finds the allocation any more.
CUresult Heap::unmap_chunks(uint64_t address, const Allocation& allocation) {
  swap::Book* const book = host_->swap_book();
  CUresult result = CUDA_SUCCESS;
  for (const Mapping& chunk : allocation.chunks) {
    book->remove(chunk.address);
    CUresult gone = chunk.apart ? CUDA_SUCCESS : unmap_at(chunk.address, chunk.bytes);
    if (gone == CUDA_SUCCESS) gone = drop(chunk);
    if (gone == CUDA_SUCCESS) book->charge(-static_cast<int64_t>(chunk.bytes), chunk.on_device);
    if (result == CUDA_SUCCESS) result = gone;
  }
  {
    std::lock_guard lock(mutex_);
    trim_spares();
  }
  if (result == CUDA_SUCCESS) ranges_.give_back(address, allocation.bytes + granularity_);
  return result;
}

bool Heap::has_chunks() const {
  std::lock_guard lock(mutex_);
  return std::any_of(allocations_.begin(), allocations_.end(),
                     [](const auto& one) { return !one.second.chunks.empty(); });
}

bool Heap::has_chunks(uint64_t address) const {
  std::lock_guard lock(mutex_);
  const auto found = allocations_.find(address);
  return found != allocations_.end() && !found->second.chunks.empty();
}

}  // namespace bandsaw::cuda
