// A random kernel: made from a seed, written as PTX, interpreted lane by lane.
#pragma once

#include <random>
#include <string>
#include <vector>

#include "tests/unit/soft/random/form.h"

namespace bandsaw::soft::test {

inline constexpr unsigned kRegisters = 8;  // of each kind
inline constexpr unsigned kThreads = 64, kBlocks = 2;
inline constexpr unsigned kResultBytes = kRegisters * (2 + 4 + 8 + 1) + 3 * kAreaBytes + 8;

struct Lane {
  uint64_t h[kRegisters] = {}, r[kRegisters] = {}, d[kRegisters] = {}, p[kRegisters] = {};
  uint32_t turns = 0, limit = 0;  // of all loops together; the lowest three bits count
  bool ended = false;
  LaneMemory memory;
};

struct Operand {
  char kind = 0;
  bool constant = false;
  uint64_t value = 0;  // of the constant, or the register's number
};

struct Item {
  enum class Kind { kForm, kCross, kBranch, kTable, kLoop, kEnd } kind = Kind::kForm;
  bool left_out = false;
  int guard = -1;  // a predicate register
  bool negated = false;
  size_t form = 0;
  std::vector<Operand> results, sources;
  std::vector<size_t> targets;  // items of the same segment; its size: the segment's end
};

// Within a segment lanes go their own ways; at its end they have met.
using Segment = std::vector<Item>;

const std::vector<Form>& all_forms();
const std::vector<CrossForm>& all_crosses();
inline char register_kind(char kind) {
  return kind == 'e' ? 'h' : kind == 'f' || kind == 'x' ? 'r' : kind == 'g' || kind == 'y' ? 'd' : kind;
}
inline unsigned register_bits(char kind) { return kind == 'h' ? 16 : kind == 'r' ? 32 : kind == 'd' ? 64 : 1; }

class RandomProgram {
 public:
  explicit RandomProgram(uint64_t seed, unsigned length);
  std::string text() const;
  // What the kernel leaves in its results, for each thread; `initial` has an element for each too.
  std::vector<std::byte> interpret(const std::vector<std::byte>& table, const std::vector<uint64_t>& initial) const;
  // All items, for whoever wants to leave some out.
  std::vector<Item*> items();
  // Which lanes start with the same value in a register (0 .. 4 * kRegisters).
  bool is_uniform(unsigned number) const { return uniform_ >> number & 1; }

 private:
  Segment segment(unsigned length, bool last);
  Item instruction();
  Item cross();
  void fill(Item* item, const std::string& operands);
  Operand operand(char kind, bool result);
  void run(const Segment& segment, Lane* lane) const;
  void run_cross(const Item& item, Lane* warp) const;

  std::mt19937_64 random_;
  std::vector<Segment> segments_;
  uint64_t uniform_ = 0;
};

}  // namespace bandsaw::soft::test
