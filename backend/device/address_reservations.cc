#include "backend/device/address_reservations.h"

#include <algorithm>
#include <utility>

namespace bandsaw {

void AddressReservations::clear() {
  std::lock_guard lock(mutex_);
  for (const auto& [base, reservation] : reservations_) {
    for (const auto& [address, mapping] : reservation.mappings) unmap_memory(address, mapping.bytes);
    give_back_range(base, reservation.bytes);
  }
  reservations_.clear();
}

AddressReservations::Reservation* AddressReservations::holder(uint64_t address, uint64_t bytes) {
  auto next = reservations_.upper_bound(address);
  if (next == reservations_.begin()) return nullptr;
  auto& [base, reservation] = *std::prev(next);
  const uint64_t offset = address - base;
  return bytes <= reservation.bytes && offset <= reservation.bytes - bytes ? &reservation : nullptr;
}

// Mappings cover exactly [address, address + bytes), from one's beginning to one's end.
bool AddressReservations::is_mapped(const Reservation& reservation, uint64_t address, uint64_t bytes) const {
  uint64_t at = address;
  for (auto next = reservation.mappings.find(address); at != address + bytes; ++next) {
    if (next == reservation.mappings.end() || next->first != at) return false;
    if (next->second.bytes > address + bytes - at) return false;
    at += next->second.bytes;
  }
  return true;
}

CUresult AddressReservations::reserve(uint64_t bytes, uint64_t alignment, uint64_t* address) {
  Reservation made;
  made.asked = bytes;
  const auto base = take_range(bytes, alignment, &made.bytes);
  if (!base) return CUDA_ERROR_OUT_OF_MEMORY;
  *address = *base;
  std::lock_guard lock(mutex_);
  reservations_.emplace(*base, std::move(made));
  return CUDA_SUCCESS;
}

CUresult AddressReservations::adopt(uint64_t address, uint64_t bytes) {
  if (address == 0 || bytes == 0 || bytes > UINT64_MAX - address) return CUDA_ERROR_INVALID_VALUE;
  std::lock_guard lock(mutex_);
  const auto next = reservations_.lower_bound(address);
  const bool before = next != reservations_.begin() && address - std::prev(next)->first < std::prev(next)->second.bytes;
  const bool behind = next != reservations_.end() && next->first - address < bytes;
  if (before || behind || !take_range_at(address, bytes)) return CUDA_ERROR_INVALID_VALUE;
  reservations_.emplace(address, Reservation{bytes, bytes, {}});
  return CUDA_SUCCESS;
}

CUresult AddressReservations::free(uint64_t address, uint64_t bytes) {
  uint64_t whole = 0;
  {
    std::lock_guard lock(mutex_);
    const auto found = reservations_.find(address);
    if (found == reservations_.end() || found->second.asked != bytes || !found->second.mappings.empty()) {
      return CUDA_ERROR_INVALID_VALUE;
    }
    whole = found->second.bytes;
    reservations_.erase(found);
  }
  give_back_range(address, whole);
  return CUDA_SUCCESS;
}

CUresult AddressReservations::map(uint64_t address, uint64_t bytes, uint64_t offset, const MemoryRef& memory,
                                  uint64_t size) {
  std::lock_guard lock(mutex_);
  Reservation* const into = holder(address, bytes);
  if (memory->revoked) return CUDA_ERROR_INVALID_VALUE;
  if (!into || bytes == 0 || bytes > size || offset > size - bytes) return CUDA_ERROR_INVALID_VALUE;
  // The first mapping that ends behind the new one's beginning must begin behind its end.
  auto next = into->mappings.upper_bound(address);
  if (next != into->mappings.begin() && address - std::prev(next)->first < std::prev(next)->second.bytes) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  if (next != into->mappings.end() && next->first - address < bytes) return CUDA_ERROR_INVALID_VALUE;
  const CUresult result = map_memory(address, bytes, offset, memory);
  if (result == CUDA_SUCCESS) into->mappings.emplace(address, Mapping{bytes, offset, memory});
  return result;
}

CUresult AddressReservations::unmap(uint64_t address, uint64_t bytes) {
  std::lock_guard lock(mutex_);
  Reservation* const from = holder(address, bytes);
  if (!from || bytes == 0 || !is_mapped(*from, address, bytes)) return CUDA_ERROR_INVALID_VALUE;
  for (uint64_t at = address; at != address + bytes;) {
    const auto mapping = from->mappings.find(at);
    if (const CUresult result = unmap_memory(at, mapping->second.bytes)) return result;
    at += mapping->second.bytes;
    from->mappings.erase(mapping);
  }
  return CUDA_SUCCESS;
}

void AddressReservations::revoke(const MemoryRef& memory) {
  std::lock_guard lock(mutex_);
  memory->revoked = true;
  for (auto& [base, reservation] : reservations_) {
    std::erase_if(reservation.mappings, [&](const auto& entry) {
      if (entry.second.memory != memory) return false;
      return unmap_memory(entry.first, entry.second.bytes) == CUDA_SUCCESS;
    });
  }
}

CUresult AddressReservations::set_access(uint64_t address, uint64_t bytes, uint32_t access) {
  std::lock_guard lock(mutex_);
  Reservation* const in = holder(address, bytes);
  if (!in || !is_mapped(*in, address, bytes)) return CUDA_ERROR_INVALID_VALUE;
  if (access == CU_MEM_ACCESS_FLAGS_PROT_READWRITE) {
    for (auto next = in->mappings.find(address); next != in->mappings.end() && next->first < address + bytes; ++next) {
      if (next->second.memory->read_only) return CUDA_ERROR_NOT_PERMITTED;
    }
  }
  if (const CUresult result = protect(address, bytes, access)) return result;
  for (auto next = in->mappings.find(address); next != in->mappings.end() && next->first < address + bytes; ++next) {
    next->second.access = access;
  }
  return CUDA_SUCCESS;
}

std::vector<ReservedAgain> AddressReservations::all() {
  std::lock_guard lock(mutex_);
  std::vector<ReservedAgain> all;
  for (const auto& [base, reservation] : reservations_) {
    ReservedAgain& one = all.emplace_back(ReservedAgain{base, reservation.asked, {}});
    for (const auto& [address, of] : reservation.mappings) {
      one.mappings.push_back({address, of.bytes, of.offset, of.memory, of.access});
    }
  }
  return all;
}

CUresult AddressReservations::reserve_again(uint64_t address, uint64_t bytes) {
  const auto whole = take_range_again(address, bytes);
  if (!whole) return CUDA_ERROR_OUT_OF_MEMORY;
  std::lock_guard lock(mutex_);
  reservations_.emplace(address, Reservation{bytes, *whole, {}});
  return CUDA_SUCCESS;
}

bool AddressReservations::covers(uint64_t address, uint64_t bytes) {
  std::lock_guard lock(mutex_);
  const Reservation* const in = holder(address, bytes);
  if (!in) return false;
  auto next = in->mappings.upper_bound(address);
  if (next == in->mappings.begin()) return false;
  uint64_t covered_to = address;
  for (--next; next != in->mappings.end() && next->first <= covered_to; ++next) {
    covered_to = std::max(covered_to, next->first + next->second.bytes);
    if (covered_to > address && covered_to - address >= bytes) return true;
  }
  return false;
}

CUresult AddressReservations::get_access(uint64_t address, uint32_t* access) {
  std::lock_guard lock(mutex_);
  Reservation* const in = holder(address, 1);
  if (!in) return CUDA_ERROR_INVALID_VALUE;
  auto next = in->mappings.upper_bound(address);
  const bool mapped = next != in->mappings.begin() && address - std::prev(next)->first < std::prev(next)->second.bytes;
  *access = mapped ? std::prev(next)->second.access : static_cast<uint32_t>(CU_MEM_ACCESS_FLAGS_PROT_NONE);
  return access_at(address, mapped, access);
}

}  // namespace bandsaw
