// A host's model of texture fetches, after the CUDA C++ Programming Guide, and arrays with contents for tests of them.
#pragma once

#include <algorithm>
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
  const int first = addressed(i, n, mode), second = addressed(i + 1, n, mode);
  const double weight = mode == Mode::kClamp && first == second ? 0 : from - static_cast<double>(i);
  return {{first, 1 - weight}, {second, weight}};
}

// The guide leaves it to a GPU where a level's arithmetic is rounded; the software device is held to the model.
inline bool on_software_device() {
  static const bool is = [] {
    cudaDeviceProp found{};
    CHECK(cudaGetDeviceProperties(&found, 0));
    return std::strstr(found.name, "software") != nullptr;
  }();
  return is;
}

// What the taps of 1 to 3 axes make of texels; read(x, y, z) gives one. A linear filter's weights are shared out along
// z, x and y, in 256ths; one part is rounded each time, halves upwards.
template <typename Read>
double filtered(const std::vector<std::vector<Tap>>& axes, Read read) {
  const size_t count = axes.size();
  const auto texel = [&](size_t corner) {
    const auto at = [&](size_t axis) { return axis < count ? axes[axis][corner >> axis & 1].texel : 0; };
    return static_cast<double>(read(at(0), at(1), at(2)));
  };
  if (axes[0].size() == 1) return texel(0);
  const auto second = [&](size_t axis) { return axis < count ? std::lround(axes[axis][1].weight * 256) : 0; };
  const auto part = [](long of, long steps) { return (of * steps + 128) / 256; };
  double sum = 0;
  for (size_t plane = 0; plane < (count > 2 ? 2u : 1u); ++plane) {
    const long all = plane ? second(2) : 256 - second(2), right = part(all, second(0)), left = all - right;
    const long up_right = part(right, second(1)), down_left = part(left, 256 - second(1));
    const long steps[4] = {down_left, right - up_right, left - down_left, up_right};
    for (size_t corner = 0; corner < 4; ++corner)
      if (steps[corner]) sum += static_cast<double>(steps[corner]) * texel(4 * plane + corner);
  }
  return sum / 256;
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
