#include "backend/device/soft/timing/cache.h"

#include <utility>

#include "backend/device/soft/timing/trace.h"

namespace bandsaw::soft::timing {

size_t Cache::set_of(uint64_t line) const { return line / kLineBytes % sets_ * shape_.ways; }

Cache::Line* Cache::find(uint64_t line) { return const_cast<Line*>(static_cast<const Cache*>(this)->find(line)); }

const Cache::Line* Cache::find(uint64_t line) const {
  const size_t first = set_of(line);
  for (size_t i = first; i < first + shape_.ways; ++i)
    if ((lines_[i].valid | lines_[i].awaited) != 0 && lines_[i].address == line) return &lines_[i];
  return nullptr;
}

// The way that was not used for longest and waits for nothing; nullptr: all wait.
Cache::Line* Cache::victim(uint64_t line) {
  const size_t first = set_of(line);
  Line* oldest = nullptr;
  for (size_t i = first; i < first + shape_.ways; ++i) {
    Line& one = lines_[i];
    if (one.awaited) continue;
    if (!oldest || one.used < oldest->used) oldest = &one;
  }
  return oldest;
}

Cache::Line* Cache::replace(uint64_t line, uint64_t* evicted) {
  Line* const way = victim(line);
  if (!way) return nullptr;
  displaced_ = way->valid ? way->address : 0;
  *evicted = way->changed ? displaced_ : 0;
  *way = {};
  way->address = line;
  return way;
}

Access Cache::read(uint64_t line, uint32_t sectors, uint64_t waiter, uint64_t* evicted) {
  *evicted = displaced_ = 0;
  Line* found = find(line);
  if (found) found->used = ++clock_;
  if (found && (found->valid & sectors) == sectors) return Access::kHit;
  if (const auto miss = pending_.find(line); miss != pending_.end()) return join(&miss->second, sectors, waiter);
  if (pending_.size() >= misses_most_) return Access::kRefused;
  if (!found && !(found = replace(line, evicted))) return Access::kRefused;
  found->used = ++clock_;
  found->awaited = wanted_ = (shape_.sectored ? sectors : kAllSectors) & ~found->valid;
  pending_[line] = {found, {{waiter, sectors}}};
  return Access::kMiss;
}

// A line of which some is on its way: what else is wanted of it is one more request, but takes no other MSHR.
Access Cache::join(Miss* miss, uint32_t sectors, uint64_t waiter) {
  if (miss->waiters.size() >= merged_most_) return Access::kRefused;
  miss->waiters.push_back({waiter, sectors});
  wanted_ = sectors & ~(miss->line->valid | miss->line->awaited);
  miss->line->awaited |= wanted_;
  return wanted_ ? Access::kMiss : Access::kMerged;
}

bool Cache::write(uint64_t line, uint32_t sectors, uint64_t* evicted) {
  *evicted = 0;
  Line* found = find(line);
  if (!found && !(found = replace(line, evicted))) return false;
  found->valid |= sectors;
  found->changed = true;
  found->used = ++clock_;
  return true;
}

void Cache::bring(uint64_t line, uint64_t* evicted) {
  *evicted = 0;
  Line* found = find(line);
  if (!found && !(found = replace(line, evicted))) return;
  found->valid = kAllSectors & ~found->awaited;
  found->used = ++clock_;
}

bool Cache::holds(uint64_t line, uint32_t sectors) const {
  const Line* const found = find(line);
  return found && (found->valid & sectors) == sectors;
}

void Cache::drop(uint64_t line) {
  Line* const found = find(line);
  if (found && !found->awaited) *found = {};
}

std::vector<uint64_t> Cache::fill(uint64_t line, uint32_t sectors) {
  const auto miss = pending_.find(line);
  if (miss == pending_.end()) return {};
  Line& filled = *miss->second.line;
  filled.valid |= filled.awaited & sectors;
  filled.awaited &= ~sectors;
  std::vector<uint64_t> served;
  std::erase_if(miss->second.waiters, [&](const Waiter& one) {
    const bool has_all = (one.sectors & ~filled.valid) == 0;
    if (has_all) served.push_back(one.waiter);
    return has_all;
  });
  if (filled.awaited == 0) pending_.erase(miss);
  return served;
}

}  // namespace bandsaw::soft::timing
