// Memory shares: whoever holds memory holds a Charge for it, so that what is gone no longer counts.
#pragma once

#include <cstdint>
#include <utility>

namespace bandsaw {

// Bytes that count against a share, given back at the latest with this object. `Host` outlives the charge and has
// `bool charge_memory(int64_t bytes)`: more than 0 reserves bytes of the share (false: over it), less gives them back.
// Not thread-safe.
template <typename Host>
class Charge {
 public:
  Charge() = default;
  // Holds nothing yet.
  explicit Charge(Host* host) : host_(host) {}
  Charge(Charge&& other) noexcept : host_(other.host_), bytes_(std::exchange(other.bytes_, 0)) {}
  Charge& operator=(Charge&& other) noexcept {
    give_back();
    host_ = other.host_;
    bytes_ = std::exchange(other.bytes_, 0);
    return *this;
  }
  ~Charge() { give_back(); }

  uint64_t bytes() const { return bytes_; }

  // From now on it holds `bytes`. False: that would pass the share, and nothing has changed; less always succeeds.
  bool resize(uint64_t bytes) {
    if (bytes > INT64_MAX) return false;
    const int64_t change = static_cast<int64_t>(bytes) - static_cast<int64_t>(bytes_);
    if (change != 0 && (!host_ || !host_->charge_memory(change))) return false;
    bytes_ = bytes;
    return true;
  }
  void give_back() { resize(0); }

 private:
  Host* host_ = nullptr;
  uint64_t bytes_ = 0;  // at most INT64_MAX
};

}  // namespace bandsaw
