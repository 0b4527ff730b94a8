// Copies the lines of a small matrix by columns, through registers of 16 bytes.
#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <utility>

namespace bandsaw::soft {

template <class T>
struct Square {
  static constexpr int kSide = 16 / sizeof(T);
  typedef T Vector __attribute__((vector_size(16)));

  // Half of two vectors, from their elements `kFirst` on, next to each other.
  template <int kFirst, int... kPlaces>
  static Vector mixed(Vector one, Vector other, std::integer_sequence<int, kPlaces...>) {
    return __builtin_shufflevector(one, other, (kFirst + kPlaces / 2 + kPlaces % 2 * kSide)...);
  }

  // As many lines as a vector has elements. Bringing the first half of the lines next to the second, line by line, as
  // often as the number of lines has binary digits, leaves columns.
  static void transpose(const std::byte* const* lines, size_t first_byte, std::byte* to, size_t step) {
    constexpr auto kPlaces = std::make_integer_sequence<int, kSide>();
    Vector rows[kSide];
    for (int i = 0; i < kSide; ++i) std::memcpy(&rows[i], lines[i] + first_byte, sizeof rows[i]);
    for (int round = 1; round < kSide; round *= 2) {
      Vector next[kSide];
      for (int i = 0; i < kSide / 2; ++i) {
        next[2 * i] = mixed<0>(rows[i], rows[i + kSide / 2], kPlaces);
        next[2 * i + 1] = mixed<kSide / 2>(rows[i], rows[i + kSide / 2], kPlaces);
      }
      for (int i = 0; i < kSide; ++i) rows[i] = next[i];
    }
    for (int i = 0; i < kSide; ++i) std::memcpy(to + i * step, &rows[i], sizeof rows[i]);
  }
};

template <class T>
bool transpose_as(const std::byte* const* lines, uint32_t count, uint32_t elements, std::byte* to) {
  constexpr uint32_t kSide = Square<T>::kSide;
  if (count % kSide != 0 || elements % kSide != 0) return false;
  for (uint32_t line = 0; line < count; line += kSide)
    for (uint32_t i = 0; i < elements; i += kSide)
      Square<T>::transpose(lines + line, i * sizeof(T), to + (size_t{i} * count + line) * sizeof(T), count * sizeof(T));
  return true;
}

// to[element][line] = lines[line][element], of elements of `size` bytes. False: not for these numbers, nothing is done.
inline bool transpose(const std::byte* const* lines, uint32_t count, uint32_t elements, uint32_t size, std::byte* to) {
  if (size == 1) return transpose_as<uint8_t>(lines, count, elements, to);
  if (size == 2) return transpose_as<uint16_t>(lines, count, elements, to);
  if (size == 4) return transpose_as<uint32_t>(lines, count, elements, to);
  return size == 8 && transpose_as<uint64_t>(lines, count, elements, to);
}

}  // namespace bandsaw::soft
