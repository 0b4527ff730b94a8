#include "backend/device/soft/codegen/pieces.h"

#include "backend/device/soft/codegen/opinfo.h"

namespace bandsaw::soft {

std::string piece_symbol(const std::string& kernel, uint32_t piece) {
  return "p." + std::to_string(piece) + "." + kernel;
}

Pieces::Pieces(const FlatFunction& function, const Analysis& analysis, size_t instructions)
    : piece_of_(function.blocks.size(), -1),
      entered_(function.blocks.size()),
      shared_(function.registers.size()),
      user_(function.registers.size(), -1) {
  cut(function, analysis, instructions);
  find_entered(function, analysis);
  find_shared(function, analysis);
}

void Pieces::cut(const FlatFunction& function, const Analysis& analysis, size_t instructions) {
  size_t filled = instructions;
  for (const int block : analysis.order) {
    if (filled >= instructions) {
      blocks_.emplace_back();
      filled = 0;
    }
    const auto at = static_cast<size_t>(block);
    piece_of_[at] = static_cast<int>(blocks_.size() - 1);
    blocks_.back().push_back(block);
    filled += function.blocks[at].ops.size() + 1;
  }
}

// By a branch, or because the lanes of a region are scheduled by whichever piece they are in: to any of its blocks, and
// to its stop.
void Pieces::find_entered(const FlatFunction& function, const Analysis& analysis) {
  entered_[static_cast<size_t>(analysis.order.front())] = true;
  for (const int block : analysis.order) {
    for (const int next : function.blocks[static_cast<size_t>(block)].successors)
      if (of(next) != of(block)) entered_[static_cast<size_t>(next)] = true;
  }
  for (const Region& region : analysis.regions) {
    const uint32_t first = of(region.blocks.front());
    bool several = region.stop >= 0 && of(region.stop) != first;
    for (const int block : region.blocks) several = several || of(block) != first;
    if (!several) continue;
    for (const int block : region.blocks) entered_[static_cast<size_t>(block)] = true;
    if (region.stop >= 0) entered_[static_cast<size_t>(region.stop)] = true;
  }
}

void Pieces::find_shared(const FlatFunction& function, const Analysis& analysis) {
  const auto note = [&](int reg, int piece) {
    const auto r = static_cast<size_t>(reg);
    if (user_[r] < 0) user_[r] = piece;
    if (user_[r] != piece) shared_[r] = true;
  };
  for (const int block : analysis.order) {
    const int piece = piece_of_[static_cast<size_t>(block)];
    for (const Op& op : function.blocks[static_cast<size_t>(block)].ops) {
      const int definitions = op_info(op, function.source->entry).definitions;
      for_uses(op, definitions, [&](int r) { note(r, piece); });
      for_definitions(op, definitions, [&](int r) { note(r, piece); });
    }
    if (is_entered(block)) analysis.live[static_cast<size_t>(block)].each([&](size_t r) { shared_[r] = true; });
  }
}

}  // namespace bandsaw::soft
