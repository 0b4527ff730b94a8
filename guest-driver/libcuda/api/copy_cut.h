// Long copies are cut into pieces that fit into staging memory.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>

#include "guest-driver/uapi/vgpu_wire.h"

namespace bandsaw::libcuda {

inline std::byte* byte_at(const vgpu_copy_end& end, uint64_t x, uint64_t y, uint64_t z) {
  return reinterpret_cast<std::byte*>(end.address + (z * end.height + y) * end.pitch + x);
}

// A part of a copy: rows of one plane, or a part of one row.
struct Piece {
  uint64_t x = 0, y = 0, z = 0, width = 0, rows = 0;
};

// Cuts a copy into pieces, in address order.
class Pieces {
 public:
  Pieces(const vgpu_copy& copy, uint64_t bytes) : copy_(copy), bytes_(bytes) {}

  bool next(Piece* piece) {
    if (z_ == copy_.depth) return false;
    *piece = {x_, y_, z_, std::min<uint64_t>(copy_.width_bytes - x_, bytes_), 1};
    if (copy_.width_bytes <= bytes_) piece->rows = std::min<uint64_t>(copy_.height - y_, bytes_ / copy_.width_bytes);
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
  const uint64_t bytes_;
  uint64_t x_ = 0, y_ = 0, z_ = 0;
};

// The record for one piece. `program` is the end that lies in staging memory.
inline vgpu_copy record_of(const vgpu_copy& whole, const Piece& piece, std::byte* staged,
                           vgpu_copy_end vgpu_copy::* program) {
  vgpu_copy copy = whole;
  vgpu_copy_end vgpu_copy::* const device =
      program == &vgpu_copy::source ? &vgpu_copy::destination : &vgpu_copy::source;
  copy.width_bytes = piece.width;
  copy.height = piece.rows;
  copy.depth = 1;
  copy.*program = {};
  (copy.*program).address = reinterpret_cast<uint64_t>(staged);
  (copy.*program).pitch = piece.width;
  (copy.*program).height = piece.rows;
  (copy.*program).kind = VGPU_MEMORY_HOST;
  vgpu_copy_end& end = copy.*device;
  if (end.kind == VGPU_MEMORY_ARRAY) {
    end.x_bytes += piece.x;
    end.y += piece.y;
    end.z += piece.z;
  } else {
    end.address = reinterpret_cast<uint64_t>(byte_at(whole.*device, piece.x, piece.y, piece.z));
  }
  return copy;
}

}  // namespace bandsaw::libcuda
