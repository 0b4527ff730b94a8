#include "backend/device/cuda/heap.h"

#include <algorithm>
#include <utility>

#include "backend/device/given.h"
#include "memory/base/log.h"

namespace bandsaw::cuda {
namespace {

constexpr uint64_t kAlign = 512;           // of small allocations, as the driver's own
constexpr uint64_t kSmallMost = 1u << 20;  // larger ones waste at most half of their last granule
constexpr uint64_t kSlabBytes = 2u << 20;
// Large ones that stay mapped for the next ones of their size, all together. Mapping memory and unmapping it takes 0.1
// ms each, and a program that needs memory for each of its steps would pay both every time. Nobody is charged for it:
// it is little beside the half GiB that a context takes.
constexpr uint64_t kKeptMost = 16u << 20;

uint64_t round_up(uint64_t bytes, uint64_t unit) { return (bytes + unit - 1) / unit * unit; }

}  // namespace

CUmemAllocationProp allocation_properties(CUdevice device) {
  CUmemAllocationProp prop{};
  prop.type = CU_MEM_ALLOCATION_TYPE_PINNED;
  prop.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
  prop.location.id = device;
  prop.requestedHandleTypes = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR;
  return prop;
}

Result<std::unique_ptr<Heap>> Heap::make(DriverRef driver, DeviceHost* host, CUdevice device, uint64_t base,
                                         uint64_t bytes, const ptx::GuardArea* area) {
  const CUmemAllocationProp prop = allocation_properties(device);
  size_t granularity = 0;
  CUresult result = driver->cuMemGetAllocationGranularity(&granularity, &prop, CU_MEM_ALLOC_GRANULARITY_MINIMUM);
  if (result != CUDA_SUCCESS) return Status::error(ENODEV, "memory granularity: {}", driver->describe(result));
  CUdeviceptr got = 0;
  result = driver->cuMemAddressReserve(&got, bytes, 0, base, 0);
  if (result != CUDA_SUCCESS || got != base) {
    return Status::error(ENOMEM, "{:#x} bytes of GPU address space at {:#x}: {}, got {:#x}", bytes, base,
                         driver->describe(result), static_cast<uint64_t>(got));
  }
  std::unique_ptr<Heap> heap(new Heap(driver, host, device, base, bytes, granularity, area));
  if (!area) return heap;
  if (!host->charge_memory(static_cast<int64_t>(Spare::held(granularity)))) {
    return Status::error(ENOMEM, "the memory share has no room for the {} bytes behind unused addresses",
                         Spare::held(granularity));
  }
  auto spare = Spare::make(std::move(driver), device, granularity, area->base - area->slack,
                           (uint64_t{1} << area->bits) + 2 * area->slack);
  if (!spare.ok()) return spare.status();
  heap->spare_ = std::move(spare.value());
  return heap;
}

Heap::Heap(DriverRef driver, DeviceHost* host, CUdevice device, uint64_t base, uint64_t bytes, uint64_t granularity,
           const ptx::GuardArea* area)
    : driver_(std::move(driver)),
      host_(host),
      device_(device),
      base_(base),
      bytes_(bytes),
      granularity_(granularity),
      ranges_(area ? area->base : base, area ? uint64_t{1} << area->bits : bytes),
      move_events_(driver_, CU_EVENT_DISABLE_TIMING) {}

Heap::~Heap() {
  spare_maker_.pause();
  for (auto& [address, allocation] : allocations_) give_back(address, std::move(allocation));
  for (const auto& slab : slabs_) unmap(slab->mapping);
  drop_uncharged();
  drop_spares();
  if (spare_) host_->charge_memory(-static_cast<int64_t>(Spare::held(granularity_)));
  spare_ = nullptr;
  driver_->cuMemAddressFree(base_, bytes_);
}

CUresult Heap::map(uint64_t bytes, uint64_t at, Mapping* mapping) {
  mapping->bytes = round_up(bytes, granularity_);
  if (!host_->charge_memory(static_cast<int64_t>(mapping->bytes))) return CUDA_ERROR_OUT_OF_MEMORY;
  const auto refund = [&](CUresult error) {
    host_->charge_memory(-static_cast<int64_t>(mapping->bytes));
    return error;
  };
  if (at != 0) {
    if (at % granularity_ != 0 || !ranges_.take_at(at, mapping->bytes)) return refund(CUDA_ERROR_INVALID_VALUE);
    mapping->address = at;
  } else {
    const auto range = ranges_.take(mapping->bytes, granularity_);
    if (!range) return refund(CUDA_ERROR_OUT_OF_MEMORY);
    mapping->address = *range;
  }
  const CUresult result = map_chunk(mapping);
  if (result == CUDA_SUCCESS) return result;
  ranges_.give_back(mapping->address, mapping->bytes);
  return refund(result);
}

CUresult Heap::open(uint64_t address, uint64_t bytes) {
  if (!spare_) return CUDA_SUCCESS;
  if (before_changes_) before_changes_();
  const CUresult result = spare_->open(address, bytes);
  if (result != CUDA_SUCCESS) log::error("guard: {:#x} bytes at {:#x}: {}", bytes, address, driver_->describe(result));
  return result;
}

CUresult Heap::close(uint64_t address, uint64_t bytes) {
  const CUresult result = spare_ ? spare_->close(address, bytes) : CUDA_SUCCESS;
  if (result != CUDA_SUCCESS) log::error("guard: {:#x} bytes at {:#x}: {}", bytes, address, driver_->describe(result));
  return result;
}

CUresult Heap::unmap_at(uint64_t address, uint64_t bytes) {
  if (spare_ && before_changes_) before_changes_();
  const CUresult result = driver_->cuMemUnmap(address, bytes);
  return result == CUDA_SUCCESS ? close(address, bytes) : result;
}

CUresult Heap::unmap(const Mapping& mapping) {
  CUresult result = unmap_at(mapping.address, mapping.bytes);
  if (result == CUDA_SUCCESS) result = driver_->cuMemRelease(mapping.handle);
  if (result != CUDA_SUCCESS) return result;  // the address is still in use, so it is not given to anybody
  ranges_.give_back(mapping.address, mapping.bytes);
  host_->charge_memory(-static_cast<int64_t>(mapping.bytes));
  return CUDA_SUCCESS;
}

// Called with mutex_ held.
CUresult Heap::allocate_small(uint64_t bytes, uint64_t at, Allocation* allocation, uint64_t* address) {
  const auto take = [&](const std::shared_ptr<Slab>& slab) {
    const auto range = at == 0 ? slab->ranges.take(bytes, kAlign) : std::optional<uint64_t>(at);
    if (!range || (at != 0 && (at % kAlign != 0 || !slab->ranges.take_at(at, bytes)))) return false;
    allocation->slab = slab;
    *address = *range;
    return true;
  };
  if (std::any_of(slabs_.begin(), slabs_.end(), take)) return CUDA_SUCCESS;
  if (const CUresult result = add_slab(at)) return result;
  return take(slabs_.back()) ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

// `at`: what is to lie in it; 0: whatever comes.
CUresult Heap::add_slab(uint64_t at) {
  if (at != 0) drop_uncharged();  // which may be in the way
  if (empty_slab_) {
    if (!host_->charge_memory(static_cast<int64_t>(empty_slab_->mapping.bytes))) return CUDA_ERROR_OUT_OF_MEMORY;
    slabs_.push_back(std::exchange(empty_slab_, nullptr));
    return CUDA_SUCCESS;
  }
  Mapping mapping;
  const uint64_t unit = std::max(granularity_, kSlabBytes);
  const CUresult result = map(kSlabBytes, at / unit * unit, &mapping);
  if (result == CUDA_SUCCESS) slabs_.push_back(std::make_shared<Slab>(mapping));
  return result;
}

void Heap::drop_uncharged() {
  if (const auto slab = std::exchange(empty_slab_, nullptr)) give_up(slab->mapping);
  drop_kept();
}

void Heap::give_up(const Mapping& mapping) {
  vacate(mapping.address, mapping.bytes);
  driver_->cuMemRelease(mapping.handle);
}

void Heap::trim() {
  std::lock_guard lock(mutex_);
  drop_uncharged();
}

bool Heap::may_keep(const Mapping& mapping) const { return !spare_ && !mapping.shared && mapping.bytes <= kKeptMost; }

std::optional<Heap::Mapping> Heap::take_kept(uint64_t bytes) {
  const auto found = std::ranges::find(kept_, bytes, &Mapping::bytes);
  if (found == kept_.end() || !host_->charge_memory(static_cast<int64_t>(bytes))) return std::nullopt;
  const Mapping mapping = *found;
  kept_.erase(found);
  return mapping;
}

void Heap::drop_kept(uint64_t most) {
  uint64_t bytes = 0;
  for (const Mapping& mapping : kept_) bytes += mapping.bytes;
  while (bytes > most) {
    const Mapping oldest = kept_.front();
    kept_.erase(kept_.begin());
    bytes -= oldest.bytes;
    give_up(oldest);
  }
}

CUresult Heap::allocate_large(uint64_t bytes, uint64_t at, Allocation* allocation, uint64_t* address) {
  std::optional<Mapping> kept;
  {
    std::lock_guard lock(mutex_);
    if (at != 0) drop_uncharged();  // which may be in the way
    kept = take_kept(round_up(bytes, granularity_));
  }
  Mapping mapping = kept.value_or(Mapping{});
  if (const CUresult result = kept ? CUDA_SUCCESS : map(bytes, at, &mapping)) return result;
  *address = mapping.address;
  allocation->bytes = mapping.bytes;
  allocation->own = mapping;
  return CUDA_SUCCESS;
}

// Of a call that is made again, where it was before, or nowhere.
CUresult Heap::allocate(const CudaContextRef& context, uint64_t bytes, uint64_t* address) {
  if (bytes == 0) return CUDA_ERROR_INVALID_VALUE;
  if (bytes > bytes_) return CUDA_ERROR_OUT_OF_MEMORY;
  Given* const given = Given::current();
  const uint64_t at = given && given->again() ? given->next() : 0;
  if (given && given->again() && at == 0) return CUDA_ERROR_INVALID_VALUE;
  swap::Book* const book = bytes > kSmallMost ? host_->swap_book() : nullptr;
  if (book && book->chunk_bytes() != 0)
    return at == 0 ? allocate_chunks(context, bytes, book, address) : CUDA_ERROR_NOT_SUPPORTED;
  Allocation allocation;
  allocation.context = context;
  CUresult result = CUDA_SUCCESS;
  if (bytes > kSmallMost) {
    result = allocate_large(bytes, at, &allocation, address);
  } else {
    allocation.bytes = round_up(bytes, kAlign);
  }
  std::lock_guard lock(mutex_);
  if (bytes <= kSmallMost) result = allocate_small(allocation.bytes, at, &allocation, address);
  if (result != CUDA_SUCCESS) return result;
  allocations_.emplace(*address, std::move(allocation));
  if (given) given->give(*address);
  return CUDA_SUCCESS;
}

CUresult Heap::give_back(uint64_t address, Allocation allocation) {
  if (!allocation.chunks.empty()) return unmap_chunks(address, allocation);
  if (allocation.own) return unmap(*allocation.own);
  allocation.slab->ranges.give_back(address, allocation.bytes);
  return CUDA_SUCCESS;
}

CUresult Heap::release(uint64_t address) {
  Allocation allocation;
  std::shared_ptr<Slab> empty;
  {
    std::lock_guard lock(mutex_);
    const auto found = allocations_.find(address);
    if (found == allocations_.end()) return CUDA_ERROR_INVALID_VALUE;
    allocation = std::move(found->second);
    allocations_.erase(found);
    if (!allocation.slab) {
      // Its memory goes below, outside the lock.
    } else if (allocation.slab->ranges.give_back(address, allocation.bytes); allocation.slab->ranges.untouched()) {
      std::erase(slabs_, allocation.slab);
      const bool keeps = !empty_slab_ && may_keep(allocation.slab->mapping);
      if (keeps) host_->charge_memory(-static_cast<int64_t>(allocation.slab->mapping.bytes));
      (keeps ? empty_slab_ : empty) = allocation.slab;
    }
    if (allocation.own && may_keep(*allocation.own)) {
      host_->charge_memory(-static_cast<int64_t>(allocation.own->bytes));
      kept_.push_back(*allocation.own);
      drop_kept(kKeptMost);
      return CUDA_SUCCESS;
    }
  }
  if (!allocation.chunks.empty()) return unmap_chunks(address, allocation);
  if (allocation.own) return unmap(*allocation.own);
  return empty ? unmap(empty->mapping) : CUDA_SUCCESS;
}

bool Heap::empty() const {
  std::lock_guard lock(mutex_);
  return allocations_.empty();
}

CudaContextRef Heap::context_of(uint64_t address) const {
  std::lock_guard lock(mutex_);
  const auto found = allocations_.find(address);
  return found == allocations_.end() ? nullptr : found->second.context;
}

bool Heap::covers(uint64_t address, uint64_t bytes) const {
  std::lock_guard lock(mutex_);
  auto next = allocations_.upper_bound(address);
  if (next == allocations_.begin()) return false;
  const auto& [base, allocation] = *std::prev(next);
  return address - base <= allocation.bytes && bytes <= allocation.bytes - (address - base);
}

bool Heap::share(uint64_t address, CUmemGenericAllocationHandle* handle, uint64_t* bytes, uint64_t* offset) {
  std::lock_guard lock(mutex_);
  const auto found = allocations_.find(address);
  if (found == allocations_.end() || !found->second.chunks.empty()) return false;
  Mapping& mapping = found->second.own ? *found->second.own : found->second.slab->mapping;
  mapping.shared = true;
  *handle = mapping.handle;
  *bytes = mapping.bytes;
  *offset = address - mapping.address;
  return true;
}

std::optional<uint64_t> Heap::reserve(uint64_t bytes, uint64_t alignment, uint64_t* reserved) {
  if (bytes > bytes_ || alignment > bytes_) return std::nullopt;
  *reserved = round_up(bytes, granularity_);
  return ranges_.take(*reserved, std::max(alignment, granularity_));
}

bool Heap::reserve_at(uint64_t address, uint64_t bytes, uint64_t* reserved) {
  if (bytes == 0 || bytes > bytes_ || address % granularity_ != 0) return false;
  trim();  // what is kept may be in the way
  *reserved = round_up(bytes, granularity_);
  return ranges_.take_at(address, *reserved);
}

void Heap::release_all(const CudaContextRef& context) {
  std::vector<uint64_t> addresses;
  {
    std::lock_guard lock(mutex_);
    for (const auto& [address, allocation] : allocations_) {
      if (allocation.context == context) addresses.push_back(address);
    }
  }
  for (const uint64_t address : addresses) {
    if (const CUresult result = release(address)) {
      log::warn("memory at {:#x} of a context that is gone: {}", address, driver_->describe(result));
    }
  }
}

}  // namespace bandsaw::cuda
