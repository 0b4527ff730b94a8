#include "guest-driver/libcuda/api/address_map.h"

#include <iterator>
#include <mutex>

namespace bandsaw::libcuda {

VirtualGpu& gpu_of(const Range& range) {
  // Memory may be mapped at addresses that were reserved while another device was current.
  const bool mapped = range.kind == RangeKind::kMapped;
  VirtualGpu* const by_address = mapped ? gpu_of_part(part_of_handle(range.owner)) : gpu_of_address(range.base);
  if (by_address) return *by_address;
  const uint64_t handle = range.context ? range.context : range.pool ? range.pool : range.owner;
  VirtualGpu* const by_handle = handle ? gpu_of_part(part_of_handle(handle)) : nullptr;
  return by_handle ? *by_handle : current_gpu();
}

AddressMap& AddressMap::get() {
  static AddressMap& map = *new AddressMap;  // leaked: used after static destructors
  return map;
}

AddressMap::Map::const_iterator AddressMap::holder(uint64_t address) const {
  auto next = ranges_.upper_bound(address);
  if (next == ranges_.begin()) return ranges_.end();
  const auto candidate = std::prev(next);
  return address - candidate->first < candidate->second.bytes ? candidate : ranges_.end();
}

void AddressMap::add(Range range) {
  std::unique_lock lock(mutex_);
  range.id = next_id_++;
  auto first = ranges_.lower_bound(range.base);
  if (const auto before = holder(range.base); before != ranges_.end()) first = ranges_.erase(before, std::next(before));
  while (first != ranges_.end() && first->first - range.base < range.bytes) first = ranges_.erase(first);
  ranges_.emplace(range.base, range);
}

std::optional<Range> AddressMap::find(uint64_t address) const {
  std::shared_lock lock(mutex_);
  const auto found = holder(address);
  if (found == ranges_.end()) return std::nullopt;
  return found->second;
}

bool AddressMap::covers(const Range& range, uint64_t address, uint64_t length) const {
  if (range.holds(address, length) || range.kind != RangeKind::kMapped) return range.holds(address, length);
  uint64_t end = 0;
  if (__builtin_add_overflow(address, length, &end)) return false;
  std::shared_lock lock(mutex_);
  for (uint64_t at = range.base + range.bytes; at < end;) {
    const auto next = ranges_.find(at);
    if (next == ranges_.end() || next->second.kind != RangeKind::kMapped) return false;
    at += next->second.bytes;
  }
  return true;
}

std::optional<Range> AddressMap::take(uint64_t base) {
  std::unique_lock lock(mutex_);
  const auto found = ranges_.find(base);
  if (found == ranges_.end()) return std::nullopt;
  const Range range = found->second;
  ranges_.erase(found);
  return range;
}

void AddressMap::forget(const Range& range) {
  std::unique_lock lock(mutex_);
  const auto found = ranges_.find(range.base);
  if (found != ranges_.end() && found->second.id == range.id) ranges_.erase(found);
}

bool AddressMap::remove(uint64_t base) { return take(base).has_value(); }

bool AddressMap::update(uint64_t address, const std::function<void(Range&)>& change) {
  std::unique_lock lock(mutex_);
  const auto found = holder(address);
  if (found == ranges_.end()) return false;
  change(ranges_.find(found->first)->second);
  return true;
}

std::vector<Range> AddressMap::select(const std::function<bool(const Range&)>& wanted) const {
  std::vector<Range> found;
  std::shared_lock lock(mutex_);
  for (const auto& [base, range] : ranges_) {
    if (wanted(range)) found.push_back(range);
  }
  return found;
}

void AddressMap::remove_if(const std::function<bool(const Range&)>& gone) {
  std::unique_lock lock(mutex_);
  std::erase_if(ranges_, [&](const auto& entry) { return gone(entry.second); });
}

}  // namespace bandsaw::libcuda
