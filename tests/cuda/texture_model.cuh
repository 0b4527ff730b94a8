// A host's model of texture fetches, after the CUDA C++ Programming Guide, and arrays with contents for tests of them.
#pragma once

#include <cmath>
#include <cstring>
#include <vector>

#include "check.h"

enum class Mode { kWrap, kClamp, kMirror, kBorder };  // values are cudaTextureAddressMode

struct Tap {
  int texel;  // -1: the border
  double weight;
};

// The texel that address mode `mode` makes of number i of n; -1: the border.
inline int addressed(long i, int n, Mode mode) {
  if (i >= 0 && i < n) return static_cast<int>(i);
  switch (mode) {
    case Mode::kWrap:
      return static_cast<int>(((i % n) + n) % n);
    case Mode::kMirror: {  // 0 1 2 ... n-1 n-1 ... 1 0 0 1 ...
      const long at = ((i % (2 * n)) + 2 * n) % (2 * n);
      return static_cast<int>(at < n ? at : 2 * n - 1 - at);
    }
    case Mode::kClamp:
      return i < 0 ? 0 : n - 1;
    default:
      return -1;
  }
}

// The texels that count at a coordinate along one axis of n.
inline std::vector<Tap> taps(double coordinate, int n, Mode mode, bool linear, bool normalized) {
  const double x = normalized ? coordinate * n : coordinate;
  if (!linear) return {{addressed(static_cast<long>(std::floor(x)), n, mode), 1}};
  const double from = std::floor((x - 0.5) * 256 + 0.5) / 256;
  const long i = static_cast<long>(std::floor(from));
  const double weight = from - static_cast<double>(i);
  return {{addressed(i, n, mode), 1 - weight}, {addressed(i + 1, n, mode), weight}};
}

// Of `data`, row after row without gaps. Height and depth may be 0, as cudaMalloc3DArray takes them.
inline cudaArray_t filled_array(const void* data, const cudaChannelFormatDesc& format, size_t width, size_t height,
                                size_t depth, unsigned flags) {
  cudaArray_t array;
  CHECK(cudaMalloc3DArray(&array, &format, make_cudaExtent(width, height, depth), flags));
  const size_t texel = static_cast<size_t>(format.x + format.y + format.z + format.w) / 8;
  const size_t rows = height ? height : 1;
  cudaMemcpy3DParms in{};
  in.srcPtr = make_cudaPitchedPtr(const_cast<void*>(data), width * texel, width, rows);
  in.dstArray = array;
  in.extent = make_cudaExtent(width, rows, depth ? depth : 1);
  in.kind = cudaMemcpyHostToDevice;
  CHECK(cudaMemcpy3D(&in));
  return array;
}

inline cudaTextureObject_t texture_of(cudaArray_t array, const cudaTextureDesc& how) {
  cudaResourceDesc what{};
  what.resType = cudaResourceTypeArray;
  what.res.array.array = array;
  cudaTextureObject_t texture;
  CHECK(cudaCreateTextureObject(&texture, &what, &how, nullptr));
  return texture;
}
