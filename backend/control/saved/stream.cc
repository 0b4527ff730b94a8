#include "backend/control/saved/stream.h"

#include <algorithm>
#include <cerrno>
#include <vector>

namespace bandsaw::saved {
namespace {

constexpr uint64_t kAtOnce = uint64_t{256} << 10;

bool makes_sense(const Piece& piece) {
  return piece.address % kPage == 0 && piece.bytes % kPage == 0 && piece.bytes <= kPieceMost &&
         piece.address <= UINT64_MAX - piece.bytes && (piece.bytes != 0 || piece.address == 0);
}

}  // namespace

Status read_head(Source* source, Head* head) {
  if (Status status = read_one(source, head); !status.ok()) return status;
  if (head->runners <= kRunnersMost && head->reserved == 0) return {};
  return Status::error(EPROTO, "it is damaged: it says that it has {} programs", head->runners);
}

Status copy_state(Source* source, Sink* sink, std::string* words, uint64_t* room) {
  StateHead head;
  if (Status status = read_one(source, &head); !status.ok()) return status;
  if (head.bytes > kStateMost || head.words > kWordsMost || (head.bytes != 0 && head.words != 0)) {
    return Status::error(EPROTO, "it is damaged: {} bytes of a program's objects", head.bytes);
  }
  if (room && head.bytes > *room) return Status::error(EDQUOT, "its programs have too many objects");
  if (room) *room -= head.bytes;
  if (sink) {
    if (Status status = write_one(sink, head); !status.ok()) return status;
  }
  std::vector<std::byte> buffer(std::min(std::max(head.bytes, head.words), kAtOnce));
  for (uint64_t left = head.bytes + head.words; left > 0;) {
    const auto part = std::span(buffer).first(std::min<uint64_t>(left, buffer.size()));
    if (Status status = source->read(part); !status.ok()) return status;
    if (sink) {
      if (Status status = sink->write(part); !status.ok()) return status;
    }
    if (head.words != 0) words->assign(reinterpret_cast<const char*>(part.data()), part.size());
    left -= part.size();
  }
  return {};
}

Status copy_pieces(Source* source, Sink* sink, uint64_t* bytes, uint64_t* room) {
  std::vector<std::byte> buffer(kAtOnce);
  for (;;) {
    Piece piece;
    if (Status status = read_one(source, &piece); !status.ok()) return status;
    if (!makes_sense(piece))
      return Status::error(EPROTO, "it is damaged: {} bytes at {:#x}", piece.bytes, piece.address);
    const uint64_t takes = sizeof piece + piece.bytes;
    if (room && takes > *room) return Status::error(EDQUOT, "there is more of it than the virtual GPU has memory");
    if (room) *room -= takes;
    if (sink) {
      if (Status status = write_one(sink, piece); !status.ok()) return status;
    }
    if (piece.bytes == 0) return {};
    for (uint64_t left = piece.bytes; left > 0;) {
      const auto part = std::span(buffer).first(std::min(left, kAtOnce));
      if (Status status = source->read(part); !status.ok()) return status;
      if (sink) {
        if (Status status = sink->write(part); !status.ok()) return status;
      }
      left -= part.size();
    }
    *bytes += piece.bytes;
  }
}

}  // namespace bandsaw::saved
