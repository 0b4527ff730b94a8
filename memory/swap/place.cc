#include <algorithm>

#include "memory/swap/book.h"

namespace bandsaw::swap {
namespace {

uint64_t round_up(uint64_t bytes, uint64_t unit) { return (bytes + unit - 1) / unit * unit; }

}  // namespace

std::vector<Piece> place(Book& book, uint64_t bytes, uint64_t unit) {
  std::vector<Piece> pieces;
  uint64_t most = round_up(std::clamp(book.chunk_bytes(), unit, kLargestChunk), unit);
  for (uint64_t at = 0; at < bytes;) {
    const uint64_t wanted = std::min(most, bytes - at);
    const auto charge = static_cast<int64_t>(wanted);
    const bool on_device = book.charge(charge, true);
    if (on_device || book.charge(charge, false)) {
      pieces.push_back({at, wanted, on_device});
      at += wanted;
    } else if (wanted > unit) {
      most = round_up(wanted / 2, unit);  // what is left on both sides may do together
    } else {
      give_back(book, pieces);
      return {};
    }
  }
  return pieces;
}

void give_back(Book& book, const std::vector<Piece>& pieces) {
  for (const Piece& piece : pieces) book.charge(-static_cast<int64_t>(piece.bytes), piece.on_device);
}

}  // namespace bandsaw::swap
