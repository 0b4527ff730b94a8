// Cuts a copy or a fill into pieces, in address order: whole planes, else rows of one plane, else parts of one row.
#pragma once

#include <cstdint>

#include "backend/device/device.h"

namespace bandsaw::runner {

// Where the next piece begins in a box of rows and planes, and how large it is.
class BoxCutter {
 public:
  struct Piece {
    uint64_t x = 0, y = 0, z = 0;               // bytes, rows, planes
    uint64_t width = 0, height = 1, depth = 1;  // the same
    uint64_t bytes() const { return width * height * depth; }
  };

  // `width` in bytes; the product of all three fits in 64 bits. A row is cut only at multiples of `unit` bytes, and
  // rows of a plane are taken `row_step` at a time; 0 for `unit`: rows are not cut.
  BoxCutter(uint64_t width, uint64_t height, uint64_t depth, uint64_t unit, uint64_t row_step)
      : width_(width), height_(height), depth_(depth), unit_(unit), row_step_(row_step) {}

  uint64_t left() const { return ((depth_ - z_) * height_ - y_) * width_ - x_; }  // bytes
  // The next piece: at most `most` bytes, but at least what cannot be cut. Call while something is left.
  Piece next(uint64_t most);

 private:
  Piece measure(uint64_t most) const;

  const uint64_t width_, height_, depth_, unit_, row_step_;
  uint64_t x_ = 0, y_ = 0, z_ = 0;
};

// Copies. An array's rows are not cut, and are taken four at a time, as blocks of compressed formats are.
class CopyCutter {
 public:
  explicit CopyCutter(const Copy& copy);
  uint64_t left() const { return box_.left(); }
  // `more` of the piece is set while others follow.
  Copy next(uint64_t most);

 private:
  const Copy copy_;
  BoxCutter box_;
};

class FillCutter {
 public:
  explicit FillCutter(const vgpu_fill& fill);
  uint64_t left() const { return box_.left(); }
  vgpu_fill next(uint64_t most);

 private:
  const vgpu_fill fill_;
  BoxCutter box_;
};

}  // namespace bandsaw::runner
