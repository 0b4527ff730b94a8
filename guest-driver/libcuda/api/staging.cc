#include "guest-driver/libcuda/api/staging.h"

#include <algorithm>
#include <atomic>
#include <cstring>

#include "guest-driver/libcuda/core/process.h"
#include "guest-driver/libcuda/core/shared_memory.h"
#include "guest-driver/libcuda/wire_client.h"

namespace bandsaw::libcuda {
namespace {

constexpr uint64_t kPinFrom = 1u << 20;       // pinning costs a few microseconds and a round trip
constexpr uint64_t kSmallestPiece = 64u << 10;

std::byte* at(const vgpu_copy_end& end, uint64_t x, uint64_t y, uint64_t z) {
  return reinterpret_cast<std::byte*>(end.address + (z * end.height + y) * end.pitch + x);
}

// A part of a copy that fits into one bounce buffer: rows of one plane, or a part of one row.
struct Piece {
  uint64_t x = 0, y = 0, z = 0, width = 0, rows = 0;
};

// Cuts a copy into pieces, in address order.
class Pieces {
 public:
  explicit Pieces(const vgpu_copy& copy) : copy_(copy) {
    const uint64_t total = copy.width_bytes * copy.height * copy.depth;
    // A short copy is cut too, so that both sides work at once.
    most_ = std::clamp<uint64_t>(total / kBounceSlots, kSmallestPiece, kBounceBytes);
  }

  bool next(Piece* piece) {
    if (z_ == copy_.depth) return false;
    *piece = {x_, y_, z_, std::min<uint64_t>(copy_.width_bytes - x_, most_), 1};
    if (copy_.width_bytes <= most_) piece->rows = std::min<uint64_t>(copy_.height - y_, most_ / copy_.width_bytes);
    x_ += piece->width;
    if (x_ < copy_.width_bytes) return true;
    x_ = 0;
    y_ += piece->rows;
    if (y_ < copy_.height) return true;
    y_ = 0;
    ++z_;
    return true;
  }

 private:
  const vgpu_copy& copy_;
  uint64_t most_ = 0, x_ = 0, y_ = 0, z_ = 0;
};

void set_staged(const Bounce& bounce, const Piece& piece, vgpu_copy_end* end) {
  *end = {};
  end->address = reinterpret_cast<uint64_t>(bounce.data);
  end->pitch = piece.width;
  end->height = piece.rows;
  end->kind = VGPU_MEMORY_HOST;
}

void set_piece(const Piece& piece, vgpu_copy_end* end) {
  end->address = reinterpret_cast<uint64_t>(at(*end, piece.x, piece.y, piece.z));
}

vgpu_copy copy_of(const vgpu_copy& whole, const Piece& piece) {
  vgpu_copy copy = whole;
  copy.width_bytes = piece.width;
  copy.height = piece.rows;
  copy.depth = 1;
  return copy;
}

void gather(const vgpu_copy_end& program, const Piece& piece, std::byte* to) {
  for (uint64_t row = 0; row < piece.rows; ++row) {
    std::memcpy(to + row * piece.width, at(program, piece.x, piece.y + row, piece.z), piece.width);
  }
}

void scatter(const std::byte* from, const Piece& piece, const vgpu_copy_end& program) {
  for (uint64_t row = 0; row < piece.rows; ++row) {
    std::memcpy(at(program, piece.x, piece.y + row, piece.z), from + row * piece.width, piece.width);
  }
}

// Pins the program's end and copies in place. False: staging it is (direct mode cannot pin, pages may be pinned by
// somebody else already, or the copy is short).
bool copy_pinned(Call& call, const vgpu_copy& copy, const vgpu_copy_end& program, uint32_t flags, uint64_t stream,
                 CUresult* result) {
  static std::atomic<bool> never{false};
  const uint64_t span = ((copy.depth - 1) * program.height + copy.height - 1) * program.pitch + copy.width_bytes;
  if (span < kPinFrom || never.load(std::memory_order_relaxed)) return false;
  if (span / 2 > copy.width_bytes * copy.height * copy.depth) return false;  // mostly gaps
  SharedMemory& memory = *process().memory;
  void* const address = reinterpret_cast<void*>(program.address);
  SharedBlock block;
  const CUresult pinned = memory.pin(address, span, flags, &block);
  if (pinned == CUDA_ERROR_NOT_SUPPORTED) never.store(true, std::memory_order_relaxed);
  if (pinned != CUDA_SUCCESS) return false;
  Bounce completion;
  *result = call.completion(&completion);
  if (*result == CUDA_SUCCESS) *result = wire::copy(call, copy, stream, completion.done);
  if (*result == CUDA_SUCCESS) {
    call.bounce_used(completion);
    *result = call.wait_done(completion);
  }
  const CUresult unpinned = memory.unpin(address);
  if (*result == CUDA_SUCCESS) *result = unpinned;
  return true;
}

}  // namespace

CUresult copy_from_program(Call& call, const vgpu_copy& copy, uint64_t stream) {
  CUresult result = CUDA_SUCCESS;
  if (copy_pinned(call, copy, copy.source, VGPU_REGION_READ_ONLY, stream, &result)) return result;
  Pieces pieces(copy);
  Piece piece;
  while (pieces.next(&piece)) {
    Bounce bounce;
    result = call.bounce(&bounce);
    if (result != CUDA_SUCCESS) return result;
    gather(copy.source, piece, bounce.data);
    vgpu_copy part = copy_of(copy, piece);
    set_staged(bounce, piece, &part.source);
    set_piece(piece, &part.destination);
    result = wire::copy(call, part, stream, bounce.done);
    if (result != CUDA_SUCCESS) return result;
    call.bounce_used(bounce);
  }
  return CUDA_SUCCESS;
}

CUresult copy_to_program(Call& call, const vgpu_copy& copy, uint64_t stream) {
  CUresult result = CUDA_SUCCESS;
  if (copy_pinned(call, copy, copy.destination, 0, stream, &result)) return result;
  struct {
    Bounce bounce;
    Piece piece;
  } flying[kBounceSlots];
  uint64_t issued = 0, landed = 0;
  Pieces pieces(copy);
  Piece piece;
  bool more = pieces.next(&piece);
  while (more || landed < issued) {
    if (more && issued - landed < kBounceSlots) {
      auto& slot = flying[issued % kBounceSlots];
      slot.piece = piece;
      result = call.bounce(&slot.bounce);
      if (result != CUDA_SUCCESS) return result;
      vgpu_copy part = copy_of(copy, piece);
      set_staged(slot.bounce, piece, &part.destination);
      set_piece(piece, &part.source);
      result = wire::copy(call, part, stream, slot.bounce.done);
      if (result != CUDA_SUCCESS) return result;
      call.bounce_used(slot.bounce);
      ++issued;
      more = pieces.next(&piece);
      continue;
    }
    const auto& slot = flying[landed % kBounceSlots];
    result = call.wait_done(slot.bounce);
    if (result != CUDA_SUCCESS) return result;
    scatter(slot.bounce.data, slot.piece, copy.destination);
    ++landed;
  }
  return CUDA_SUCCESS;
}

}  // namespace bandsaw::libcuda
