#include "backend/device/soft/memory_table.h"

#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <iterator>

#include "backend/device/given.h"
#include "backend/device/soft/shared_memory.h"
#include "guest-driver/uapi/vgpu_control.h"
#include "memory/base/log.h"

namespace bandsaw::soft {

namespace {

constexpr uint64_t kHugePage = 2ull << 20;
// Linux allows some 65,000 mappings a process. With many allocations the guards are left out, and neighbours
// share a mapping.
constexpr size_t kGuardedAllocations = 12'000;
constexpr uint64_t kSpareBytes = 64ull << 20;

uint64_t pages(uint64_t bytes) { return (bytes + kPage - 1) & ~(kPage - 1); }

}  // namespace

Memory::Memory(uint64_t window_base, uint64_t share, DeviceHost* host)
    : window_base_(window_base),
      share_(share),
      host_(host),
      space_(window_base + VGPU_WINDOW_DEVICE_OFFSET, VGPU_WINDOW_PART_BYTES),
      part_(window_base + VGPU_WINDOW_DEVICE_OFFSET) {}

bool Memory::use_part(uint32_t part) {
  std::lock_guard lock(mutex_);
  if (!table_.empty()) return false;
  part_ = window_base_ + VGPU_WINDOW_DEVICE_OFFSET + part * VGPU_WINDOW_PART_BYTES;
  space_ = AddressSpace(part_, VGPU_WINDOW_PART_BYTES);
  return true;
}

bool Memory::use_area(uint64_t base, uint32_t bits, uint64_t slack) {
  std::lock_guard lock(mutex_);
  if (!table_.empty()) return false;
  spare_ = UniqueFd(::memfd_create("bandsaw-spare", MFD_CLOEXEC));
  if (!spare_ || ::ftruncate(spare_.get(), kSpareBytes) != 0) return false;
  const uint64_t bytes = uint64_t{1} << bits;
  space_ = AddressSpace(base, bytes);
  return seal(base - slack, bytes + 2 * slack);
}

// Neighbours have neighbouring bytes of the file, so that Linux keeps them as one mapping.
bool Memory::seal(uint64_t address, uint64_t bytes) const {
  constexpr int kFlags = MAP_FIXED | MAP_NORESERVE;
  if (!spare_) {
    void* const at = reinterpret_cast<void*>(address);
    return ::mmap(at, bytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | kFlags, -1, 0) != MAP_FAILED;
  }
  for (const uint64_t end = address + bytes; address < end;) {
    const uint64_t offset = address % kSpareBytes, part = std::min(end - address, kSpareBytes - offset);
    void* const at = reinterpret_cast<void*>(address);
    const void* const made =
        ::mmap(at, part, PROT_READ | PROT_WRITE, MAP_SHARED | kFlags, spare_.get(), static_cast<off_t>(offset));
    if (made == MAP_FAILED) return false;
    address += part;
  }
  return true;
}

Memory::~Memory() {
  for (auto& [address, allocation] : table_) {
    if (allocation.mapped) unmap_locked(allocation);
  }
  drop_spare_pages();
  for (const auto& [address, bytes] : managed_) host_->charge_memory(-static_cast<int64_t>(bytes));
}

// Of a call that is made again, where it was before, or nowhere.
void Memory::place(Allocation* allocation, uint64_t guard) {
  const Given* const given = Given::current();
  const uint64_t bytes = pages(allocation->bytes);
  allocation->reserved = bytes + guard;
  allocation->given = given && allocation->use != Use::kGraph && allocation->use != Use::kHeap;
  if (!given || !given->again()) {
    allocation->address = space_.take(allocation->reserved, allocation->bytes >= kHugePage ? kHugePage : kPage);
    return;
  }
  const uint64_t at = given->next();
  if (at % kPage != 0) return;
  bool taken = space_.take_at(at, allocation->reserved);
  if (!taken && space_.take_at(at, bytes)) {  // it had no guard
    allocation->reserved = bytes;
    taken = true;
  }
  if (taken) allocation->address = at;
}

CUresult Memory::take_range(uint64_t bytes, Use use, const void* owner, uint64_t* address) {
  if (bytes == 0) return CUDA_ERROR_INVALID_VALUE;
  if (bytes > VGPU_WINDOW_PART_BYTES / 2) return CUDA_ERROR_OUT_OF_MEMORY;
  const uint64_t guard = table_.size() < kGuardedAllocations && !spare_ ? kPage : 0;
  Allocation allocation;
  allocation.bytes = bytes;
  allocation.use = use;
  allocation.owner = owner;
  place(&allocation, guard);
  if (!allocation.address) return CUDA_ERROR_OUT_OF_MEMORY;
  *address = allocation.address;
  table_.emplace(allocation.address, allocation);
  return CUDA_SUCCESS;
}

bool Memory::map_pages(Allocation& allocation, uint64_t bytes) {
  int flags = MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED | MAP_NORESERVE, fd = -1;
  if (share_new_ && allocation.use == Use::kPlain) {
    allocation.file = std::make_shared<const UniqueFd>(make_sealed_file("bandsaw-shared", bytes));
    fd = allocation.file->get();
    if (fd < 0) return false;
    flags = MAP_SHARED | MAP_FIXED;
  }
  void* const at = reinterpret_cast<void*>(allocation.address);
  return ::mmap(at, bytes, PROT_READ | PROT_WRITE, flags, fd, 0) != MAP_FAILED;
}

// Pages that other processes may have stay where they are.
bool Memory::charge_locked(Allocation& allocation, uint64_t bytes) {
  swap::Book* const book = allocation.use == Use::kPlain && !share_new_ ? host_->swap_book() : nullptr;
  if (!book || book->chunk_bytes() == 0) return host_->charge_memory(static_cast<int64_t>(bytes));
  allocation.chunks = swap::place(*book, bytes, std::min(pages(bytes), kHugePage));
  for (const swap::Piece& chunk : allocation.chunks) {
    book->add(allocation.address, allocation.address + chunk.offset, chunk.bytes, chunk.on_device);
  }
  return !allocation.chunks.empty();
}

void Memory::uncharge_locked(Allocation& allocation, uint64_t bytes) {
  if (allocation.chunks.empty()) return static_cast<void>(host_->charge_memory(-static_cast<int64_t>(bytes)));
  swap::Book* const book = host_->swap_book();
  for (const swap::Piece& chunk : allocation.chunks) {
    book->remove(allocation.address + chunk.offset);
    apart_.erase(allocation.address + chunk.offset);
  }
  swap::give_back(*book, std::exchange(allocation.chunks, {}));
  drop_spare_pages();
}

bool Memory::is_elsewhere(uint64_t address, uint64_t bytes) const {
  const uint64_t base = window_base_ + VGPU_WINDOW_DEVICE_OFFSET;
  constexpr uint64_t kAll = VGPU_WINDOW_BYTES - VGPU_WINDOW_DEVICE_OFFSET;
  if (address < base || address - base >= kAll || bytes > kAll - (address - base)) return false;
  return address >= part_ + VGPU_WINDOW_PART_BYTES || (address < part_ && bytes <= part_ - address);
}

CUresult Memory::map_locked(Allocation& allocation) {
  const uint64_t bytes = pages(allocation.bytes);
  if (!charge_locked(allocation, bytes)) return CUDA_ERROR_OUT_OF_MEMORY;
  if (!map_pages(allocation, bytes)) {
    log::error("device memory: mapping {} bytes: {}", bytes, std::strerror(errno));
    uncharge_locked(allocation, bytes);
    return CUDA_ERROR_OUT_OF_MEMORY;
  }
  if (bytes >= kHugePage) ::madvise(reinterpret_cast<void*>(allocation.address), bytes, MADV_HUGEPAGE);
  allocation.mapped = bytes;
  used_ += bytes;
  return CUDA_SUCCESS;
}

void Memory::unmap_locked(Allocation& allocation) {
  if (!seal(allocation.address, allocation.mapped)) {
    // Out of mappings: the address stays readable, but the pages go.
    ::madvise(reinterpret_cast<void*>(allocation.address), allocation.mapped, MADV_DONTNEED);
  }
  uncharge_locked(allocation, allocation.mapped);
  used_ -= allocation.mapped;
  allocation.mapped = 0;
  allocation.file.reset();
}

CUresult Memory::allocate(uint64_t bytes, Use use, const void* owner, uint64_t* address) {
  std::lock_guard lock(mutex_);
  uint64_t at = 0;
  if (const CUresult result = take_range(bytes, use, owner, &at)) return result;
  Allocation& allocation = table_.find(at)->second;
  if (const CUresult result = map_locked(allocation)) {
    space_.give_back(allocation.address, allocation.reserved);
    table_.erase(at);
    return result;
  }
  if (Given* const given = Given::current()) given->give(at);
  *address = at;
  return CUDA_SUCCESS;
}

CUresult Memory::reserve(uint64_t bytes, const void* owner, uint64_t* address) {
  std::lock_guard lock(mutex_);
  if (const CUresult result = take_range(bytes, Use::kGraph, owner, address)) return result;
  table_.find(*address)->second.live = false;
  return CUDA_SUCCESS;
}

std::vector<GraphMemoryAgain> Memory::graph_memory() const {
  std::lock_guard lock(mutex_);
  std::vector<GraphMemoryAgain> all;
  for (const auto& [address, allocation] : table_) {
    if (allocation.use == Use::kGraph) all.push_back({address, allocation.bytes, allocation.claims, allocation.live});
  }
  return all;
}

CUresult Memory::reserve_again(const GraphMemoryAgain& memory) {
  uint64_t address = 0;
  {
    const Given::Bytes none;
    Given given({memory.address}, none);
    const Given::Scope scope(&given);
    if (const CUresult refused = reserve(memory.bytes, nullptr, &address)) return refused;
  }
  if (memory.claims == 0) return memory.live ? CUDA_ERROR_INVALID_VALUE : CUDA_SUCCESS;
  if (const CUresult refused = claim(address)) return refused;
  std::lock_guard lock(mutex_);
  Allocation& allocation = table_.find(address)->second;
  allocation.claims = memory.claims;
  allocation.live = memory.live != 0;
  return CUDA_SUCCESS;
}

CUresult Memory::claim(uint64_t address) {
  std::lock_guard lock(mutex_);
  const auto found = table_.find(address);
  if (found == table_.end()) return CUDA_ERROR_INVALID_VALUE;
  if (!found->second.mapped) {
    if (const CUresult result = map_locked(found->second)) return result;
    count_graph_locked(found->second, true);
  }
  ++found->second.claims;
  return CUDA_SUCCESS;
}

void Memory::drop_claim(uint64_t address) {
  std::lock_guard lock(mutex_);
  const auto found = table_.find(address);
  if (found == table_.end() || found->second.claims == 0) return;
  if (--found->second.claims != 0) return;
  if (found->second.abandoned) return forget_locked(found);
  count_graph_locked(found->second, false);
  unmap_locked(found->second);
}

void Memory::abandon(uint64_t address) {
  std::lock_guard lock(mutex_);
  const auto found = table_.find(address);
  if (found == table_.end()) return;
  found->second.abandoned = true;
  if (found->second.claims == 0) forget_locked(found);
}

void Memory::count_graph_locked(const Allocation& allocation, bool mapped) {
  if (allocation.use != Use::kGraph) return;
  graph_bytes_ = mapped ? graph_bytes_ + allocation.mapped : graph_bytes_ - allocation.mapped;
  for (uint64_t& high : graph_high_) high = std::max(high, graph_bytes_);
}

uint64_t Memory::graph_bytes() const {
  std::lock_guard lock(mutex_);
  return graph_bytes_;
}

uint64_t Memory::graph_high(bool used) const {
  std::lock_guard lock(mutex_);
  return graph_high_[used];
}

void Memory::reset_graph_high(bool used) {
  std::lock_guard lock(mutex_);
  graph_high_[used] = graph_bytes_;
}

CUresult Memory::release(uint64_t address) {
  std::lock_guard lock(mutex_);
  const auto found = table_.find(address);
  if (found == table_.end()) return CUDA_ERROR_INVALID_VALUE;
  forget_locked(found);
  return CUDA_SUCCESS;
}

void Memory::forget_locked(std::map<uint64_t, Allocation>::iterator found) {
  if (found->second.mapped) {
    count_graph_locked(found->second, false);
    unmap_locked(found->second);
  }
  space_.give_back(found->first, found->second.reserved);
  table_.erase(found);
}

void Memory::release_owner(const void* owner) {
  std::vector<uint64_t> addresses;
  {
    std::lock_guard lock(mutex_);
    for (const auto& [address, allocation] : table_) {
      if (allocation.owner == owner) addresses.push_back(address);
    }
  }
  for (const uint64_t address : addresses) release(address);
}

void Memory::retire_owner(const void* owner) {
  std::lock_guard lock(mutex_);
  for (auto& [address, allocation] : table_) {
    if (allocation.owner == owner) allocation.live = false;
  }
}

CUresult Memory::set_live(uint64_t address, bool live) {
  std::lock_guard lock(mutex_);
  const auto found = table_.find(address);
  if (found == table_.end() || found->second.live == live) return CUDA_ERROR_INVALID_VALUE;
  found->second.live = live;
  return CUDA_SUCCESS;
}

std::optional<Allocation> Memory::find(uint64_t address) const {
  std::lock_guard lock(mutex_);
  const auto found = table_.find(address);
  if (found == table_.end()) return std::nullopt;
  return found->second;
}

bool Memory::is_given(uint64_t address) const {
  std::lock_guard lock(mutex_);
  const auto found = table_.find(address);
  if (found == table_.end()) return managed_.contains(address);  // always to a call
  return found->second.given && found->second.live && found->second.mapped != 0;
}

// Plain memory that nobody was given is the runner's own, and so are variables of code that it has made.
std::string Memory::not_given() const {
  std::lock_guard lock(mutex_);
  const bool shared = std::any_of(table_.begin(), table_.end(), [](const auto& one) { return one.second.file; });
  return shared ? "memory that other processes may have" : "";
}

bool Memory::accessible(uint64_t address, uint64_t bytes) const {
  const uint64_t offset = address - window_base_;
  if (offset >= VGPU_WINDOW_BYTES || bytes > VGPU_WINDOW_BYTES - offset) return false;
  if (offset < VGPU_WINDOW_DEVICE_OFFSET) return offset + bytes <= VGPU_WINDOW_DEVICE_OFFSET;
  std::lock_guard lock(mutex_);
  auto after = table_.upper_bound(address);
  if (after == table_.begin()) return false;
  const Allocation& allocation = std::prev(after)->second;
  const uint64_t from = address - allocation.address;
  return (allocation.live || allocation.use == Use::kGraph) && from <= allocation.bytes &&
         bytes <= allocation.bytes - from;
}

CUresult Memory::share_pages(uint64_t address, std::shared_ptr<const UniqueFd>* file, uint64_t* bytes) {
  std::lock_guard lock(mutex_);
  const auto found = table_.find(address);
  if (found == table_.end() || found->second.use != Use::kPlain || !found->second.live) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  Allocation& allocation = found->second;
  if (!allocation.file) {
    auto made = std::make_shared<const UniqueFd>(make_sealed_file("bandsaw-shared", allocation.mapped));
    if (!*made) return CUDA_ERROR_OUT_OF_MEMORY;
    const auto* const pages = reinterpret_cast<const std::byte*>(address);
    for (uint64_t at = 0; at < allocation.mapped;) {
      const ssize_t written = ::pwrite(made->get(), pages + at, allocation.mapped - at, static_cast<off_t>(at));
      if (written <= 0) return CUDA_ERROR_OUT_OF_MEMORY;
      at += static_cast<uint64_t>(written);
    }
    if (::mmap(reinterpret_cast<void*>(address), allocation.mapped, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED,
               made->get(), 0) == MAP_FAILED) {
      return CUDA_ERROR_OUT_OF_MEMORY;
    }
    allocation.file = std::move(made);
    for (const swap::Piece& chunk : allocation.chunks) host_->swap_book()->pin(address + chunk.offset);
  }
  *file = allocation.file;
  *bytes = allocation.mapped;
  return CUDA_SUCCESS;
}

uint64_t Memory::reserve_addresses(uint64_t bytes, uint64_t alignment) {
  std::lock_guard lock(mutex_);
  return space_.take(bytes, alignment);
}

bool Memory::reserve_addresses_at(uint64_t address, uint64_t bytes) {
  std::lock_guard lock(mutex_);
  return space_.take_at(address, bytes);
}

void Memory::give_back_addresses(uint64_t address, uint64_t bytes) {
  std::lock_guard lock(mutex_);
  space_.give_back(address, bytes);
}

bool Memory::count(uint64_t bytes) {
  std::lock_guard lock(mutex_);
  if (bytes > INT64_MAX || !host_->charge_memory(static_cast<int64_t>(bytes))) return false;
  used_ += bytes;
  return true;
}

void Memory::uncount(uint64_t bytes) {
  std::lock_guard lock(mutex_);
  host_->charge_memory(-static_cast<int64_t>(bytes));
  used_ -= bytes;
}

CUresult Memory::managed_add(uint64_t address, uint64_t bytes) {
  const uint64_t offset = address - window_base_;
  if (bytes == 0 || offset >= VGPU_WINDOW_DEVICE_OFFSET || bytes > VGPU_WINDOW_DEVICE_OFFSET - offset) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  std::lock_guard lock(mutex_);
  if (managed_.contains(address)) return CUDA_ERROR_INVALID_VALUE;
  if (!host_->charge_memory(static_cast<int64_t>(bytes))) return CUDA_ERROR_OUT_OF_MEMORY;
  managed_.emplace(address, bytes);
  if (Given* const given = Given::current()) given->give(address);
  used_ += bytes;
  return CUDA_SUCCESS;
}

CUresult Memory::managed_remove(uint64_t address) {
  std::lock_guard lock(mutex_);
  const auto found = managed_.find(address);
  if (found == managed_.end()) return CUDA_ERROR_INVALID_VALUE;
  host_->charge_memory(-static_cast<int64_t>(found->second));
  used_ -= found->second;
  managed_.erase(found);
  return CUDA_SUCCESS;
}

uint64_t Memory::next_physical() {
  std::lock_guard lock(mutex_);
  return std::exchange(next_physical_, next_physical_ + kPage);
}

bool Memory::claim_physical(uint64_t key) {
  std::lock_guard lock(mutex_);
  if (key == 0 || key % kPage != 0 || key >= window_base_ || physical_.contains(key)) return false;
  next_physical_ = std::max(next_physical_, key + kPage);
  return true;
}

void Memory::enter_physical(uint64_t key, int file, uint64_t bytes) {
  std::lock_guard lock(mutex_);
  physical_[key] = {file, bytes};
}

void Memory::leave_physical(uint64_t key) {
  std::lock_guard lock(mutex_);
  physical_.erase(key);
}

bool Memory::has_physical(uint64_t key) const {
  std::lock_guard lock(mutex_);
  return physical_.contains(key);
}

uint64_t Memory::used() const {
  std::lock_guard lock(mutex_);
  return used_;
}

}  // namespace bandsaw::soft
