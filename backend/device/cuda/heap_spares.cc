// Memory for chunks that are to move. Device memory is made and mapped in no time. Host memory is not: the driver finds
// and pins its pages (5 GB/s on an H100), and maps each of them (100 GB/s). So what a chunk has left behind there is
// kept for the next one that leaves the device, and stays mapped at an address of its own, beside that of the chunk.
#include <algorithm>

#include "backend/device/cuda/heap.h"

namespace bandsaw::cuda {

// Null: there is none any more that lies there.
Heap::Mapping* Heap::find_chunk(uint64_t address, bool on_device) {
  const auto after = allocations_.upper_bound(address);
  if (after == allocations_.begin()) return nullptr;
  for (Mapping& chunk : std::prev(after)->second.chunks) {
    if (chunk.address == address) return chunk.on_device == on_device ? &chunk : nullptr;
  }
  return nullptr;
}

bool Heap::has_spare(uint64_t bytes) const {
  return std::ranges::find(spares_, bytes, &Mapping::bytes) != spares_.end();
}

CUresult Heap::create(Mapping* made) {
  const CUmemAllocationProp prop = properties(made->on_device);
  return move_times_.time(MoveTimes::kMakes,
                          [&] { return driver_->cuMemCreate(&made->handle, made->bytes, &prop, 0); });
}

CUresult Heap::map_timed(uint64_t address, const Mapping& memory) {
  if (memory.apart) return CUDA_SUCCESS;
  return move_times_.time(memory.on_device ? MoveTimes::kMapsDevice : MoveTimes::kMapsHost,
                          [&] { return map_at(address, memory.bytes, memory.handle); });
}

CUresult Heap::unmap_timed(uint64_t address, const Mapping& memory) {
  if (memory.apart) return CUDA_SUCCESS;
  return move_times_.time(memory.on_device ? MoveTimes::kUnmapsDevice : MoveTimes::kUnmapsHost,
                          [&] { return unmap_at(address, memory.bytes); });
}

// Takes memory for the bytes of a chunk, mapped at an address of its own.
CUresult Heap::map_made(Mapping* made) {
  const auto spare = std::ranges::find(spares_, made->bytes, &Mapping::bytes);
  const bool reuses = !made->on_device && spare != spares_.end();
  CUresult result = CUDA_SUCCESS;
  if (reuses) {
    *made = *spare;
    made->apart = false;
  } else {
    result = create(made);
    if (result == CUDA_SUCCESS && !made->on_device) host_->swap_book()->made(made->bytes);
  }
  if (result == CUDA_SUCCESS && made->beside == 0) {
    const auto range = ranges_.take(made->bytes, granularity_);
    result = range ? map_timed(*range, *made) : CUDA_ERROR_OUT_OF_MEMORY;
    if (result != CUDA_SUCCESS && range) ranges_.give_back(*range, made->bytes);
    if (result != CUDA_SUCCESS && !reuses) driver_->cuMemRelease(made->handle);
    if (result == CUDA_SUCCESS) made->address = *range;
    if (result == CUDA_SUCCESS && !made->on_device) made->beside = *range;
  }
  if (result != CUDA_SUCCESS) return result;
  if (!made->on_device) made->address = made->beside;
  if (reuses) spares_.erase(spare);
  if (reuses) host_->swap_book()->keep(-static_cast<int64_t>(made->bytes));
  return CUDA_SUCCESS;
}

// Memory that is no chunk's any more.
void Heap::discard(const Mapping& memory) {
  swap::Book* const book = host_->swap_book();
  if (!memory.on_device && book && book->keep(static_cast<int64_t>(memory.bytes))) return spares_.push_back(memory);
  move_times_.time(MoveTimes::kReleases, [&] { return drop(memory); });
}

// An address that is still in use is not given to anybody.
CUresult Heap::vacate(uint64_t address, uint64_t bytes) {
  const CUresult result = unmap_at(address, bytes);
  if (result == CUDA_SUCCESS) ranges_.give_back(address, bytes);
  return result;
}

CUresult Heap::drop(const Mapping& memory) {
  if (memory.beside != 0) vacate(memory.beside, memory.bytes);
  return driver_->cuMemRelease(memory.handle);
}

void Heap::drop_spares(uint64_t most) {
  for (uint64_t bytes = spare_bytes(); !spares_.empty() && bytes > most;) {
    const Mapping last = spares_.back();
    spares_.pop_back();
    bytes -= last.bytes;
    drop(last);
    if (swap::Book* const book = host_->swap_book()) book->keep(-static_cast<int64_t>(last.bytes));
  }
}

uint64_t Heap::spare_bytes() const {
  uint64_t bytes = 0;
  for (const Mapping& spare : spares_) bytes += spare.bytes;
  return bytes;
}

bool Heap::wants_spare() const { return prepared_.chunk != 0 && spare_bytes() + prepared_.chunk <= prepared_.bytes; }

// No more than all chunks that are left could need.
void Heap::trim_spares() {
  uint64_t chunks = 0;
  for (const auto& [address, allocation] : allocations_) {
    for (const Mapping& chunk : allocation.chunks) chunks += chunk.bytes;
  }
  prepared_.bytes = std::min(prepared_.bytes, chunks);
  drop_spares(chunks);
}

// Kernels that are guarded wait for every mapping.
void Heap::prepare_chunks(const CudaContextRef& context, uint64_t chunk_bytes, uint64_t bytes) {
  if (is_guarded()) return;
  {
    std::lock_guard lock(mutex_);
    prepared_ = {context, chunk_bytes, bytes};
    if (!wants_spare()) return;
  }
  spare_maker_.go_on();
}

// False: there are enough, or no more may be kept, or the driver has none.
bool Heap::make_spare() {
  swap::Book* const book = host_->swap_book();
  Mapping made{.on_device = false};
  {
    std::lock_guard lock(mutex_);
    if (!wants_spare()) return false;
    made.bytes = prepared_.chunk;
    if (make_current(*driver_, *prepared_.context) != CUDA_SUCCESS) return false;
    if (!book->keep(static_cast<int64_t>(made.bytes))) return false;
  }
  const auto range = ranges_.take(made.bytes, granularity_);
  CUresult result = CUDA_ERROR_OUT_OF_MEMORY;
  if (range) {
    made.address = made.beside = *range;
    result = map_chunk(&made);
  }
  std::lock_guard lock(mutex_);
  if (result == CUDA_SUCCESS) {
    book->made(made.bytes);
    spares_.push_back(made);
    return true;
  }
  if (range) ranges_.give_back(*range, made.bytes);
  book->keep(-static_cast<int64_t>(made.bytes));
  return false;
}

}  // namespace bandsaw::cuda
