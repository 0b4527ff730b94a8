// A kernel too long to be compiled at once is compiled in pieces: runs of blocks, each made when a warp first comes to
// one of them. Kernels that choose among many types or sizes run few of their blocks. What several pieces share, above
// all registers, lies in a frame on the warp's stack.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "backend/device/soft/codegen/analysis.h"
#include "backend/device/soft/codegen/flat.h"
#include "backend/device/soft/codegen/piece_table.h"

namespace bandsaw::soft {

std::string piece_symbol(const std::string& kernel, uint32_t piece);

class Pieces {
 public:
  // `analysis` as of `function`. A piece ends with the block with which it has so many instructions.
  Pieces(const FlatFunction& function, const Analysis& analysis, size_t instructions);

  uint32_t count() const { return static_cast<uint32_t>(blocks_.size()); }
  const std::vector<int>& blocks(uint32_t piece) const { return blocks_[piece]; }  // in the analysis's order
  bool has(uint32_t piece, int block) const { return piece_of_[static_cast<size_t>(block)] == static_cast<int>(piece); }
  uint32_t of(int block) const { return static_cast<uint32_t>(piece_of_[static_cast<size_t>(block)]); }
  uint64_t place(int block) const { return place_of(of(block), static_cast<uint32_t>(block)); }
  // Whether a warp may come to the block from another piece.
  bool is_entered(int block) const { return entered_[static_cast<size_t>(block)]; }
  // Whether the register's value is needed in several pieces, or again after another piece has run. If not, one piece
  // alone has it.
  bool shares(size_t reg) const { return shared_[reg]; }
  bool owns(uint32_t piece, size_t reg) const { return !shared_[reg] && user_[reg] == static_cast<int>(piece); }

 private:
  void cut(const FlatFunction& function, const Analysis& analysis, size_t instructions);
  void find_entered(const FlatFunction& function, const Analysis& analysis);
  void find_shared(const FlatFunction& function, const Analysis& analysis);

  std::vector<std::vector<int>> blocks_;
  std::vector<int> piece_of_;  // per block; -1: unreachable
  std::vector<bool> entered_;  // per block
  std::vector<bool> shared_;   // per register
  std::vector<int> user_;      // per register: the first piece that names it; -1: none does
};

}  // namespace bandsaw::soft
