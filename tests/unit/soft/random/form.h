// Instructions that random programs are made of: their text, and what PTX says of them as a function of one lane's
// values.
#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <string>
#include <vector>

namespace bandsaw::soft::test {

inline constexpr unsigned kAreaBytes = 64;    // of each space in which a thread has bytes of its own
inline constexpr unsigned kTableBytes = 128;  // that all threads read

// One lane's bytes, and what it knows of itself.
struct LaneMemory {
  std::array<std::byte, kAreaBytes> global{}, shared{}, local{};
  const std::byte* table = nullptr;
  uint32_t thread = 0, block = 0, threads = 0, blocks = 0;  // in one dimension
};

// `operands`: a letter each, results before the colon: h 16, r 32, d 64 bits, p predicate; f and g are r and d that may
// be written as floating-point constants; e, x and y are h, r and d that are never constants. $0, $1 .. in the text.
struct Form {
  std::string text, operands;
  std::function<void(LaneMemory& memory, uint64_t* results, const uint64_t* sources)> evaluate;
};

// One between the lanes of a warp, all of which take part.
struct CrossForm {
  std::string text, operands;
  std::function<uint64_t(unsigned lane, const std::array<std::array<uint64_t, 3>, 32>& sources)> evaluate;
};

using Sources = const uint64_t*;

// A form with one result; what it computes is cut to `bits` by the caller of evaluate.
inline Form pure(std::string text, std::string operands, std::function<uint64_t(Sources)> f) {
  return {std::move(text), std::move(operands),
          [f = std::move(f)](LaneMemory&, uint64_t* results, Sources sources) { results[0] = f(sources); }};
}

void add_integer_forms(std::vector<Form>* forms);
void add_bit_forms(std::vector<Form>* forms);
void add_float_forms(std::vector<Form>* forms);
void add_half_forms(std::vector<Form>* forms);
void add_convert_forms(std::vector<Form>* forms);
void add_memory_forms(std::vector<Form>* forms);
std::vector<CrossForm> cross_forms();

inline uint64_t low(uint64_t value, unsigned bits) { return bits >= 64 ? value : value & ((uint64_t{1} << bits) - 1); }
inline int64_t extend(uint64_t value, unsigned bits) {
  return static_cast<int64_t>(value << (64 - bits)) >> (64 - bits);
}
inline char letter(unsigned bits) { return bits <= 16 ? 'h' : bits == 32 ? 'r' : 'd'; }

}  // namespace bandsaw::soft::test
