// How many time slices in flight have work of each stream: a stream with few of them need not wait for the ends of
// another's, which on the device it would run beside.
//
// Thread-safe.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <mutex>
#include <span>
#include <unordered_map>

namespace bandsaw::runner {

// The streams of one time slice.
class StreamSet {
 public:
  // False: it is there already.
  bool add(uint64_t stream) {
    if (contains(stream)) return false;
    any_ = stream == 0 || size_ == kMost;
    if (!any_) keys_[size_++] = stream;
    return true;
  }
  std::span<const uint64_t> streams() const { return {keys_.data(), size_}; }
  bool contains(uint64_t stream) const { return any_ || std::ranges::find(streams(), stream) != streams().end(); }
  // It may have work of every stream.
  bool any() const { return any_; }

 private:
  static constexpr size_t kMost = 4;
  std::array<uint64_t, kMost> keys_{};
  size_t size_ = 0;
  bool any_ = false;
};

class StreamDepths {
 public:
  // Work of the stream is put into the time slice whose streams these are. 0: it is not known which stream it is.
  void add(StreamSet* slice, uint64_t stream) {
    if (!slice->add(stream)) return;
    std::lock_guard lock(mutex_);
    slice->any() ? ++of_any_ : ++depths_[stream];
  }
  // That time slice has ended.
  void end(const StreamSet& slice) {
    std::lock_guard lock(mutex_);
    for (const uint64_t stream : slice.streams()) {
      const auto found = depths_.find(stream);
      if (--found->second == 0) depths_.erase(found);
    }
    of_any_ -= slice.any();
  }
  uint32_t of(uint64_t stream) const {
    std::lock_guard lock(mutex_);
    const auto found = depths_.find(stream);
    return of_any_ + (found == depths_.end() ? 0 : found->second);
  }

 private:
  mutable std::mutex mutex_;
  std::unordered_map<uint64_t, uint32_t> depths_;  // guarded by mutex_, as the next
  uint32_t of_any_ = 0;
};

}  // namespace bandsaw::runner
