// Tensor maps are made by the host's driver. Libraries encode the same ones again before every launch, so the last ones
// are kept here.
#include <algorithm>
#include <cstring>
#include <mutex>
#include <string_view>

#include "guest-driver/libcuda/core/call.h"
#include "guest-driver/libcuda/wire_client.h"

namespace bandsaw::libcuda {
namespace {

constexpr uint32_t kRankMost = 5;

// Direct-mapped by the shape's hash.
class MapCache {
 public:
  static MapCache& get() {
    static MapCache& cache = *new MapCache;
    return cache;
  }

  bool find(const vgpu_tensor_shape& shape, vgpu_tensor_map* map) {
    Entry& entry = entries_[slot_of(shape)];
    std::lock_guard lock(mutex_);
    if (!entry.filled || std::memcmp(&entry.shape, &shape, sizeof shape) != 0) return false;
    *map = entry.map;
    return true;
  }
  void put(const vgpu_tensor_shape& shape, const vgpu_tensor_map& map) {
    Entry& entry = entries_[slot_of(shape)];
    std::lock_guard lock(mutex_);
    entry = {shape, map, true};
  }

 private:
  struct Entry {
    vgpu_tensor_shape shape;
    vgpu_tensor_map map;
    bool filled = false;
  };
  static constexpr size_t kSlots = 1024;

  static size_t slot_of(const vgpu_tensor_shape& shape) {
    const std::string_view bytes(reinterpret_cast<const char*>(&shape), sizeof shape);
    return std::hash<std::string_view>()(bytes) % kSlots;
  }

  std::mutex mutex_;
  Entry entries_[kSlots];  // guarded by mutex_
};

// Sets the members that all forms share. The rest is zero, so that shapes can be compared as bytes.
CUresult common(const CUtensorMap* map, vgpu_tensor_form form, CUtensorMapDataType type, uint32_t rank,
                const void* address, const cuuint64_t* dimensions, const cuuint64_t* strides,
                const cuuint32_t* element_strides, vgpu_tensor_shape* shape) {
  if (!map || reinterpret_cast<uintptr_t>(map) % 64 != 0 || rank == 0 || rank > kRankMost || !dimensions ||
      !element_strides || !strides) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  std::memset(shape, 0, sizeof *shape);
  shape->form = form;
  shape->data_type = static_cast<uint32_t>(type);
  shape->rank = rank;
  shape->address = reinterpret_cast<uint64_t>(address);
  std::copy_n(dimensions, rank, shape->dimensions);
  std::copy_n(strides, rank - 1, shape->strides);
  std::copy_n(element_strides, rank, shape->element_strides);
  return CUDA_SUCCESS;
}

CUresult finish(vgpu_tensor_shape* shape, CUtensorMapInterleave interleave, CUtensorMapSwizzle swizzle,
                CUtensorMapL2promotion promotion, CUtensorMapFloatOOBfill fill, CUtensorMap* map) {
  shape->interleave = static_cast<uint32_t>(interleave);
  shape->swizzle = static_cast<uint32_t>(swizzle);
  shape->promotion = static_cast<uint32_t>(promotion);
  shape->fill = static_cast<uint32_t>(fill);
  vgpu_tensor_map made;
  if (!MapCache::get().find(*shape, &made)) {
    Call call;
    const CUresult result = wire::tensor_map_encode(call, *shape, &made);
    if (result != CUDA_SUCCESS) return result;
    MapCache::get().put(*shape, made);
  }
  std::memcpy(map, &made, sizeof *map);
  return CUDA_SUCCESS;
}

}  // namespace
}  // namespace bandsaw::libcuda

using namespace bandsaw::libcuda;  // NOLINT: entry points below
namespace wire = bandsaw::wire;

extern "C" {

CUresult cuTensorMapEncodeTiled(CUtensorMap* map, CUtensorMapDataType type, cuuint32_t rank, void* address,
                                const cuuint64_t* dimensions, const cuuint64_t* strides, const cuuint32_t* box,
                                const cuuint32_t* element_strides, CUtensorMapInterleave interleave,
                                CUtensorMapSwizzle swizzle, CUtensorMapL2promotion promotion,
                                CUtensorMapFloatOOBfill fill) {
  vgpu_tensor_shape shape;
  const CUresult result =
      common(map, VGPU_TENSOR_TILED, type, rank, address, dimensions, strides, element_strides, &shape);
  if (result != CUDA_SUCCESS) return result;
  if (!box) return CUDA_ERROR_INVALID_VALUE;
  std::copy_n(box, rank, shape.box);
  return finish(&shape, interleave, swizzle, promotion, fill, map);
}

CUresult cuTensorMapEncodeIm2col(CUtensorMap* map, CUtensorMapDataType type, cuuint32_t rank, void* address,
                                 const cuuint64_t* dimensions, const cuuint64_t* strides, const int* lower,
                                 const int* upper, cuuint32_t channels, cuuint32_t pixels,
                                 const cuuint32_t* element_strides, CUtensorMapInterleave interleave,
                                 CUtensorMapSwizzle swizzle, CUtensorMapL2promotion promotion,
                                 CUtensorMapFloatOOBfill fill) {
  vgpu_tensor_shape shape;
  const CUresult result =
      common(map, VGPU_TENSOR_IM2COL, type, rank, address, dimensions, strides, element_strides, &shape);
  if (result != CUDA_SUCCESS) return result;
  if (rank < 3 || !lower || !upper) return CUDA_ERROR_INVALID_VALUE;
  std::copy_n(lower, rank - 2, shape.lower);
  std::copy_n(upper, rank - 2, shape.upper);
  shape.channels = channels;
  shape.pixels = pixels;
  return finish(&shape, interleave, swizzle, promotion, fill, map);
}

CUresult cuTensorMapEncodeIm2colWide(CUtensorMap* map, CUtensorMapDataType type, cuuint32_t rank, void* address,
                                     const cuuint64_t* dimensions, const cuuint64_t* strides, int lower, int upper,
                                     cuuint32_t channels, cuuint32_t pixels, const cuuint32_t* element_strides,
                                     CUtensorMapInterleave interleave, CUtensorMapIm2ColWideMode mode,
                                     CUtensorMapSwizzle swizzle, CUtensorMapL2promotion promotion,
                                     CUtensorMapFloatOOBfill fill) {
  vgpu_tensor_shape shape;
  const CUresult result =
      common(map, VGPU_TENSOR_IM2COL_WIDE, type, rank, address, dimensions, strides, element_strides, &shape);
  if (result != CUDA_SUCCESS) return result;
  shape.lower[0] = lower;
  shape.upper[0] = upper;
  shape.channels = channels;
  shape.pixels = pixels;
  shape.mode = static_cast<uint32_t>(mode);
  return finish(&shape, interleave, swizzle, promotion, fill, map);
}

CUresult cuTensorMapReplaceAddress(CUtensorMap* map, void* address) {
  if (!map || reinterpret_cast<uintptr_t>(map) % 64 != 0) return CUDA_ERROR_INVALID_VALUE;
  vgpu_tensor_map old, moved;
  std::memcpy(&old, map, sizeof old);
  Call call;
  const CUresult result = wire::tensor_map_move(call, old, reinterpret_cast<uint64_t>(address), &moved);
  if (result == CUDA_SUCCESS) std::memcpy(map, &moved, sizeof moved);
  return result;
}

}  // extern "C"
