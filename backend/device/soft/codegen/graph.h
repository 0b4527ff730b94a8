// Small graph algorithms over block numbers.
#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>
#include <vector>

namespace bandsaw::soft {

using Graph = std::vector<std::vector<int>>;  // successors

class BitSet {
 public:
  explicit BitSet(size_t bits = 0, bool value = false) : words_((bits + 63) / 64, value ? ~0ull : 0) {}
  bool operator[](size_t i) const { return words_[i / 64] >> (i % 64) & 1; }
  void set(size_t i) { words_[i / 64] |= 1ull << (i % 64); }
  void reset(size_t i) { words_[i / 64] &= ~(1ull << (i % 64)); }
  void unite(const BitSet& o) {
    for (size_t i = 0; i < words_.size(); ++i) words_[i] |= o.words_[i];
  }
  void remove(const BitSet& o) {
    for (size_t i = 0; i < words_.size(); ++i) words_[i] &= ~o.words_[i];
  }
  void intersect(const BitSet& o) {
    for (size_t i = 0; i < words_.size(); ++i) words_[i] &= o.words_[i];
  }
  template <typename Visit>
  void each(Visit visit) const {
    for (size_t i = 0; i < words_.size(); ++i)
      for (uint64_t left = words_[i]; left; left &= left - 1)
        visit(i * 64 + static_cast<size_t>(std::countr_zero(left)));
  }
  bool operator==(const BitSet&) const = default;

 private:
  std::vector<uint64_t> words_;
};

// Reverse post-order from block 0. `rank`: of a block's successors the one with the smaller rank comes later.
std::vector<int> reverse_post_order(const Graph& graph, const std::vector<int>& rank);
// Immediate dominators by position in `order` (Cooper, Harvey, Kennedy); -1 for the entry and unreachable blocks.
std::vector<int> dominators(const Graph& graph, const std::vector<int>& order, const std::vector<int>& position);
bool dominates(const std::vector<int>& idom, const std::vector<int>& position, int a, int b);
// Number of natural loops around each block.
std::vector<int> loop_depths(const Graph& graph, const std::vector<int>& order, const std::vector<int>& position,
                             const std::vector<int>& idom);
// Strongly connected components; result: component number, and whether the component has a cycle.
std::vector<int> components(const Graph& graph, const std::vector<bool>& included, std::vector<bool>* cyclic);
// For each block the blocks that every path from it meets unless it ends in a function exit (itself included).
std::vector<BitSet> meeting_blocks(const Graph& graph, const std::vector<int>& order);
// Blocks reachable from b's successors without passing `stop`.
std::vector<bool> between(const Graph& graph, int b, int stop);

}  // namespace bandsaw::soft
