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
#include <utility>
#include <vector>

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
    if (slice->any()) {
      ++of_any_;
    } else if (const auto found = find(stream); found != depths_.end()) {
      ++found->second;
    } else {
      depths_.emplace_back(stream, 1);
    }
  }
  // That time slice has ended.
  void end(const StreamSet& slice) {
    std::lock_guard lock(mutex_);
    for (const uint64_t stream : slice.streams()) {
      const auto found = find(stream);
      if (--found->second != 0) continue;
      *found = depths_.back();
      depths_.pop_back();
    }
    of_any_ -= slice.any();
  }
  uint32_t of(uint64_t stream) const {
    std::lock_guard lock(mutex_);
    const auto found = std::ranges::find(depths_, stream, &Depth::first);
    return of_any_ + (found == depths_.end() ? 0 : found->second);
  }

 private:
  using Depth = std::pair<uint64_t, uint32_t>;  // of a stream

  std::vector<Depth>::iterator find(uint64_t stream) { return std::ranges::find(depths_, stream, &Depth::first); }

  mutable std::mutex mutex_;
  std::vector<Depth> depths_;  // guarded by mutex_, as the next; of few streams, for few time slices are in flight
  uint32_t of_any_ = 0;
};

}  // namespace bandsaw::runner
