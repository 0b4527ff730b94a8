// What a saved virtual GPU consists of, as bytes that follow one another: a head, and for each runner its pieces of
// memory with an empty piece at the end. Runners write and read their part of it through pipes; whoever is in between
// checks it and knows nothing of its meaning.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>

#include "memory/base/status.h"

namespace bandsaw::saved {

inline constexpr uint64_t kPage = 4096, kPieceMost = uint64_t{1} << 44;
inline constexpr uint32_t kRunnersMost = 256;

using Id = std::array<uint8_t, 16>;  // of what was saved once

struct Head {
  Id id{};
  Id vgpu{};  // its UUID
  uint32_t runners = 0;
  uint32_t reserved = 0;
};

struct RunnerHead {
  Id program{};  // by its return key, of this virtual GPU's programs
};

// First of what a runner writes: bytes that make another runner what this one is, in the runners' own terms, and words.
// Where these are not empty they say what another runner could not have, and of bytes there are none.
struct StateHead {
  uint64_t bytes = 0, words = 0;
};
inline constexpr uint64_t kStateMost = uint64_t{1} << 30, kWordsMost = 256;

// `bytes` bytes of memory follow, whole pages; 0: it was the runner's last, and `address` is 0 too.
struct Piece {
  uint64_t address = 0, bytes = 0;
};

class Source {
 public:
  virtual ~Source() = default;
  // All of it, or an error.
  virtual Status read(std::span<std::byte> bytes) = 0;
};

class Sink {
 public:
  virtual ~Sink() = default;
  virtual Status write(std::span<const std::byte> bytes) = 0;
};

template <typename T>
Status read_one(Source* source, T* one) {
  return source->read(std::as_writable_bytes(std::span(one, 1)));
}
template <typename T>
Status write_one(Sink* sink, const T& one) {
  return sink->write(std::as_bytes(std::span(&one, 1)));
}

// EPROTO: it is none that we write.
Status read_head(Source* source, Head* head);
// One runner's StateHead and what it announces, from `source` to `sink` (null: nowhere). EPROTO: it makes no sense.
// `room`: as below.
Status copy_state(Source* source, Sink* sink, std::string* words, uint64_t* room = nullptr);
// One runner's pieces, the last one included, from `source` to `sink` (null: nowhere). Adds to `*bytes` what memory
// there was. EPROTO: they make no sense. `room`: bytes, those of pieces' heads among them, that may still come; null:
// any. EDQUOT: more would.
Status copy_pieces(Source* source, Sink* sink, uint64_t* bytes, uint64_t* room = nullptr);

}  // namespace bandsaw::saved
