// Where a warp is in its trace.
#pragma once

#include <cstdint>
#include <span>

#include "backend/device/soft/timing/trace.h"

namespace bandsaw::soft::timing {

// Of a trace that decode() has checked. Code and words must outlive it.
class Cursor {
 public:
  Cursor() = default;
  Cursor(const Code* code, std::span<const uint32_t> words) : code_(code), words_(words) { begin_stretch(); }

  bool done() const { return done_; }
  uint32_t counter() const { return counter_; }
  uint32_t lanes() const { return lanes_; }
  const Instruction& instruction() const { return code_->instructions[counter_]; }
  // The access of this instruction, which has one. Once for each instruction.
  struct Access {
    uint32_t bank_turns = 0;               // of shared memory, or
    std::span<const uint32_t> lines = {};  // pairs of words
  };
  Access take_access() {
    const uint32_t word = words_[at_++];
    if ((word & kEventMask) == kBanks) return {counter_of(word), {}};
    const size_t length = 2 * size_t{lanes_of(word)};
    const auto lines = words_.subspan(at_, length);
    at_ += length;
    return {0, lines};
  }
  void advance() {
    if (instruction().ends_stretch)
      begin_stretch();
    else
      ++counter_;
  }

 private:
  void begin_stretch() {
    done_ = at_ >= words_.size();
    if (done_) return;
    lanes_ = lanes_of(words_[at_]);
    counter_ = counter_of(words_[at_++]);
  }

  const Code* code_ = nullptr;
  std::span<const uint32_t> words_;
  size_t at_ = 0;
  uint32_t counter_ = 0, lanes_ = 0;
  bool done_ = true;
};

inline uint64_t line_at(std::span<const uint32_t> lines, size_t index) {
  return (uint64_t{lines[2 * index + 1]} << 32 | lines[2 * index]) & ~uint64_t{kLineBytes - 1};
}
inline uint32_t sectors_at(std::span<const uint32_t> lines, size_t index) { return lines[2 * index] & kAllSectors; }

}  // namespace bandsaw::soft::timing
