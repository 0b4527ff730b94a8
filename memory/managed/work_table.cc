#include "memory/managed/work_table.h"

#include <algorithm>

namespace bandsaw::managed {

std::shared_ptr<StreamWork> WorkTable::of(const WorkStream& stream) {
  std::lock_guard lock(mutex_);
  std::shared_ptr<StreamWork>& work = streams_[stream];
  if (!work) work = std::make_shared<StreamWork>();
  work->last_ = false;  // another stream may have been given the handle
  return work;
}

void WorkTable::stream_ended(const WorkStream& stream) {
  std::lock_guard lock(mutex_);
  const auto found = streams_.find(stream);
  if (found != streams_.end()) found->second->last_ = true;
}

bool WorkTable::quiet(const WorkStream& stream) const {
  std::lock_guard lock(mutex_);
  const auto found = streams_.find(stream);
  return found == streams_.end() || found->second->quiet();
}

bool WorkTable::all_quiet() const {
  std::lock_guard lock(mutex_);
  return std::all_of(streams_.begin(), streams_.end(), [](const auto& entry) { return entry.second->quiet(); });
}

template <typename Wanted>
WorkWait::WorkWait(WorkTable& table, Wanted wanted, int) {
  std::lock_guard lock(table.mutex_);
  std::erase_if(table.streams_, [](const auto& entry) { return entry.second->last_ && entry.second->quiet(); });
  for (const auto& [stream, work] : table.streams_) {
    if (wanted(stream)) add(work);
  }
}

WorkWait::WorkWait(WorkTable& table, const WorkStream& stream)
    : WorkWait(table, [&](const WorkStream& one) { return one.key() == stream.key(); }, 0) {}

WorkWait::WorkWait(WorkTable& table, uint64_t context)
    : WorkWait(table, [&](const WorkStream& one) { return one.context == context; }, 0) {}

WorkWait::WorkWait(WorkTable& table) : WorkWait(table, [](const WorkStream&) { return true; }, 0) {}

// Published first: then all that had begun when the second number was read had been published.
void WorkWait::add(const std::shared_ptr<StreamWork>& work) {
  const uint64_t published = work->published_.load();
  if (published == work->begun_.load()) covered_.push_back({work, published});
}

void WorkWait::succeeded() const {
  for (const Covered& covered : covered_) {
    uint64_t known = covered.work->ended_.load();
    while (known < covered.count && !covered.work->ended_.compare_exchange_weak(known, covered.count)) {
    }
  }
}

}  // namespace bandsaw::managed
