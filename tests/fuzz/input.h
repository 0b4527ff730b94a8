// The fuzzer's bytes, taken from the front; zeros when they have run out.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>

namespace bandsaw {

class Input {
 public:
  explicit Input(std::span<const std::byte> bytes) : bytes_(bytes) {}
  bool empty() const { return bytes_.empty(); }
  template <typename Number>
  Number number() {
    Number value = 0;
    const auto raw = take(sizeof(value));
    if (!raw.empty()) std::memcpy(&value, raw.data(), raw.size());
    return value;
  }
  uint8_t byte() { return number<uint8_t>(); }
  std::span<const std::byte> take(size_t count) {
    const auto front = bytes_.first(std::min(count, bytes_.size()));
    bytes_ = bytes_.subspan(front.size());
    return front;
  }

 private:
  std::span<const std::byte> bytes_;
};

}  // namespace bandsaw
