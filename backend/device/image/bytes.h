// Reading at offsets of a byte string that nobody vouches for: every access is checked, no arithmetic overflows.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <optional>
#include <span>
#include <string_view>
#include <type_traits>

namespace bandsaw::image {

class Bytes {
 public:
  Bytes() = default;
  Bytes(std::span<const std::byte> all) : all_(all) {}  // NOLINT: conversion intended

  uint64_t size() const { return all_.size(); }
  std::span<const std::byte> span() const { return all_; }

  // The value that lies at `offset`, whatever its alignment; nothing if it does not lie inside.
  template <class T>
  std::optional<T> at(uint64_t offset) const {
    static_assert(std::is_trivially_copyable_v<T>);
    auto part = slice(offset, sizeof(T));
    if (!part) return std::nullopt;
    T value;
    std::memcpy(&value, part->all_.data(), sizeof(T));
    return value;
  }

  std::optional<Bytes> slice(uint64_t offset, uint64_t bytes) const {
    if (offset > size() || bytes > size() - offset) return std::nullopt;
    return Bytes(all_.subspan(offset, bytes));
  }

  // From `offset` to the NUL, which must be there within `limit` bytes.
  std::optional<std::string_view> string(uint64_t offset, uint64_t limit) const {
    if (offset >= size()) return std::nullopt;
    std::string_view rest(reinterpret_cast<const char*>(all_.data()) + offset, std::min(size() - offset, limit));
    size_t end = rest.find('\0');
    if (end == std::string_view::npos) return std::nullopt;
    return rest.substr(0, end);
  }

 private:
  std::span<const std::byte> all_;
};

}  // namespace bandsaw::image
