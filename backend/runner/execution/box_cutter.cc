#include "backend/runner/execution/box_cutter.h"

#include <algorithm>

namespace bandsaw::runner {
namespace {

constexpr uint64_t kArrayRows = 4;

// A piece's place in one end of the copy.
void move_to(const BoxCutter::Piece& piece, CopyEnd* end) {
  if (end->array) {
    end->x_bytes += piece.x;
    end->y += piece.y;
    end->z += piece.z;
  } else {
    end->address += (piece.z * end->height + piece.y) * end->pitch + piece.x;
  }
}

bool has_array(const Copy& copy) { return copy.destination.array || copy.source.array; }

}  // namespace

BoxCutter::Piece BoxCutter::measure(uint64_t most) const {
  Piece piece{.x = x_, .y = y_, .z = z_, .width = width_};
  const uint64_t plane = width_ * height_;
  if (x_ == 0 && y_ == 0 && plane <= most) {
    piece.height = height_;
    piece.depth = std::min(depth_ - z_, most / plane);
  } else if (x_ == 0 && (width_ <= most || unit_ == 0)) {
    const uint64_t rows = std::max<uint64_t>(most / width_ / row_step_, 1) * row_step_;
    piece.height = std::min(height_ - y_, rows);
  } else {
    piece.width = std::min(width_ - x_, std::max(most / unit_, uint64_t{1}) * unit_);
  }
  return piece;
}

BoxCutter::Piece BoxCutter::next(uint64_t most) {
  const Piece piece = measure(most);
  x_ += piece.width;
  if (x_ < width_) return piece;
  x_ = 0;
  y_ += piece.height;
  if (y_ < height_) return piece;
  y_ = 0;
  z_ += piece.depth;
  return piece;
}

CopyCutter::CopyCutter(const Copy& copy)
    : copy_(copy),
      box_(copy.width_bytes, copy.height, copy.depth, has_array(copy) ? 0 : 1, has_array(copy) ? kArrayRows : 1) {}

Copy CopyCutter::next(uint64_t most) {
  const BoxCutter::Piece place = box_.next(most);
  Copy piece = copy_;
  move_to(place, &piece.destination);
  move_to(place, &piece.source);
  piece.width_bytes = place.width;
  piece.height = place.height;
  piece.depth = place.depth;
  piece.more = left() != 0;
  return piece;
}

FillCutter::FillCutter(const vgpu_fill& fill)
    : fill_(fill), box_(fill.width * fill.element_bytes, fill.height, 1, fill.element_bytes, 1) {}

vgpu_fill FillCutter::next(uint64_t most) {
  const BoxCutter::Piece place = box_.next(most);
  vgpu_fill piece = fill_;
  piece.address += place.y * fill_.pitch + place.x;
  piece.width = place.width / fill_.element_bytes;
  piece.height = place.height;
  return piece;
}

}  // namespace bandsaw::runner
