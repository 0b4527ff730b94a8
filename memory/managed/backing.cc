#include "memory/managed/backing.h"

#include <algorithm>
#include <tuple>

namespace bandsaw::managed {
namespace {

constexpr uint64_t kPiecesWanted = 8, kLargestPiece = 64u << 20;

uint64_t piece_size(uint64_t bytes, bool whole) {
  if (whole) return bytes;
  const uint64_t units = (bytes / kMapUnit + kPiecesWanted - 1) / kPiecesWanted;
  return std::min(kLargestPiece, units * kMapUnit);
}

}  // namespace

Backing::Backing(uint64_t bytes, bool whole) : bytes_(bytes), piece_bytes_(piece_size(bytes, whole)) {
  for (uint64_t at = 0; at < bytes_; at += piece_bytes_) {
    pieces_.push_back({.run = {at, std::min(piece_bytes_, bytes_ - at)}});
  }
}

std::vector<size_t> Backing::missing(Run run) const {
  std::vector<size_t> found;
  if (backed_ == bytes_ || !run.bytes) return found;
  for (size_t i = first_of(run); i < pieces_.size() && pieces_[i].run.offset < run.end(); ++i) {
    if (!pieces_[i].memory) found.push_back(i);
  }
  return found;
}

void Backing::came(size_t piece, uint64_t memory, uint64_t now_ns) {
  Piece& one = pieces_[piece];
  one.memory = memory;
  one.used_ns = now_ns;
  one.returns = one.gone_ns && now_ns - one.gone_ns < kQuickReturnNs ? one.returns + 1 : 0;
  backed_ += one.run.bytes;
}

uint64_t Backing::went(size_t piece, uint64_t now_ns) {
  Piece& one = pieces_[piece];
  const uint64_t memory = one.memory;
  one.memory = 0;
  one.gone_ns = now_ns;
  backed_ -= one.run.bytes;
  return memory;
}

void Backing::used(Run run, uint64_t now_ns) {
  if (!run.bytes) return;
  for (size_t i = first_of(run); i < pieces_.size() && pieces_[i].run.offset < run.end(); ++i) {
    pieces_[i].used_ns = now_ns;
  }
}

std::optional<size_t> choose_victim(std::span<const Victim> victims) {
  const auto rank = [](const Victim& one) {
    const uint64_t turn = one.thrashes ? ~one.used_ns : one.used_ns;
    return std::tuple(one.copy_bytes != 0, one.at_work, !one.prefers_host, one.thrashes, turn);
  };
  const auto least = std::min_element(victims.begin(), victims.end(),
                                      [&](const Victim& a, const Victim& b) { return rank(a) < rank(b); });
  if (least == victims.end()) return std::nullopt;
  return static_cast<size_t>(least - victims.begin());
}

}  // namespace bandsaw::managed
