// Copies between global and shared memory by tensor maps (PTX ISA 5.5, 9.7.9.27).
#include <algorithm>
#include <bit>
#include <cstring>

#include "backend/device/soft/codegen/atomics.h"
#include "backend/device/soft/codegen/runtime.h"
#include "backend/device/soft/codegen/tensor.h"
#include "backend/device/soft/tensor_map.h"
#include "guest-driver/uapi/vgpu_control.h"

namespace bandsaw::soft {
namespace {

constexpr uint32_t kChunkBytes = 16;     // what swizzling keeps together
constexpr uint32_t kRowBytes = 256 * 8;  // the widest

[[noreturn]] void bad_map(WarpState* warp, uint64_t address) {
  bandsaw_fault(warp, static_cast<uint32_t>(Fault::kIllegalInstruction), address);
}

// A copy of the map that a lane names, as far as this device can use it.
TensorMap read_map(WarpState* warp, uint32_t lane, uint64_t address, const TensorForm& form) {
  std::byte bytes[sizeof(TensorMap)];
  for (uint32_t at = 0; at < sizeof bytes; at += kChunkBytes)
    read_bytes(warp, lane, address + at, bytes + at, kChunkBytes, AccessSpace::kGeneric);
  const auto map = std::bit_cast<TensorMap>(bytes);
  const bool im2col = map.form == VGPU_TENSOR_IM2COL;
  if (map.mark != kTensorMapMark || map.rank != form.rank || im2col != (form.im2col != 0) || map.interleave ||
      map.swizzle > CU_TENSOR_MAP_SWIZZLE_128B || !tensor_element_bytes(map.type) || map.address % kChunkBytes ||
      (im2col && map.rank < 3))
    bad_map(warp, address);
  const uint32_t row = tensor_element_bytes(map.type) * (im2col ? map.channels : map.box[0]);
  if (row == 0 || row > kRowBytes || row % kChunkBytes) bad_map(warp, address);
  return map;
}

// Rows of one copy: the first coordinate runs along a row; `visit` gets the others of each row.
struct TensorWalk {
  const TensorMap& map;
  int64_t from[kTensorRank];
  int64_t offset[3];  // im2col: of the kernel's element, width first

  // visit(coordinates)
  template <class F>
  void tiles(F&& visit) const {
    uint32_t counts[kTensorRank] = {1, 1, 1, 1, 1};
    for (uint32_t i = 1; i < map.rank; ++i) {
      const uint32_t step = std::max<uint32_t>(map.element_strides[i], 1);
      counts[i] = (map.box[i] + step - 1) / step;
    }
    int64_t at[kTensorRank];
    std::copy(std::begin(from), std::end(from), at);
    for (uint32_t w = 0; w < counts[4]; ++w)
      for (uint32_t z = 0; z < counts[3]; ++z)
        for (uint32_t y = 0; y < counts[2]; ++y)
          for (uint32_t x = 0; x < counts[1]; ++x) {
            const uint32_t steps[kTensorRank] = {0, x, y, z, w};
            for (uint32_t i = 1; i < map.rank; ++i) at[i] = from[i] + int64_t{steps[i]} * map.element_strides[i];
            visit(at);
          }
  }

  // Pixels of the bounding box one after another, from the given one on: along the width, the height and the depth,
  // then in the next image.
  template <class F>
  void pixels(F&& visit) const {
    const uint32_t axes = map.rank - 2;
    int64_t at[kTensorRank];
    std::copy(std::begin(from), std::end(from), at);
    for (uint32_t n = 0; n < map.pixels; ++n) {
      int64_t shifted[kTensorRank];
      std::copy(std::begin(at), std::end(at), shifted);
      for (uint32_t i = 0; i < axes; ++i) shifted[i + 1] += offset[i];
      visit(shifted);
      uint32_t axis = 0;
      for (; axis < axes; ++axis) {
        at[axis + 1] += std::max<uint32_t>(map.element_strides[axis + 1], 1);
        if (at[axis + 1] < int64_t{map.last[axis + 1]} + 1 + map.upper[axis]) break;
        at[axis + 1] = map.lower[axis];
      }
      if (axis == axes) ++at[map.rank - 1];
    }
  }

  template <class F>
  void rows(F&& visit) const {
    map.form == VGPU_TENSOR_IM2COL ? pixels(visit) : tiles(visit);
  }
};

// A part of global memory, checked.
std::byte* global_range(WarpState* warp, uint64_t address, uint32_t bytes) {
  if (in_window(*warp, address, bytes)) return reinterpret_cast<std::byte*>(address);
  return static_cast<std::byte*>(bandsaw_translate(warp, address, bytes));
}

struct TensorCopy {
  WarpState* warp;
  uint32_t lane;
  TensorForm form;
  TensorMap map;
  uint64_t shared;
  uint32_t blocks;
  uint32_t element, row;  // bytes

  uint64_t swizzled(uint64_t address) const {
    const uint64_t mask = map.swizzle ? (1u << map.swizzle) - 1 : 0;
    return address ^ (address >> 7 & mask) << 4;
  }
  // f(address) for each block that gets the data.
  template <class F>
  void each_block(uint64_t address, F&& f) const {
    if (!blocks) return f(address);
    for (uint32_t m = blocks; m; m &= m - 1)
      f(address % kClusterStep + uint64_t{static_cast<uint32_t>(std::countr_zero(m)) + 1} * kClusterStep);
  }

  // Where the row lies in global memory, and which of its elements are inside of the tensor: [*first, *end).
  uint64_t place(const int64_t* at, uint32_t* first, uint32_t* end) const {
    *first = *end = 0;
    uint64_t address = map.address;
    for (uint32_t i = 1; i < map.rank; ++i) {
      if (at[i] < 0 || at[i] > int64_t{map.last[i]}) return 0;
      address += static_cast<uint64_t>(at[i]) * map.strides[i - 1];
    }
    const int64_t elements = row / element, dimension = int64_t{map.last[0]} + 1;
    *first = static_cast<uint32_t>(std::clamp<int64_t>(-at[0], 0, elements));
    *end = static_cast<uint32_t>(std::clamp<int64_t>(dimension - at[0], *first, elements));
    return address + static_cast<uint64_t>(at[0] * int64_t{element});
  }

  void fill(std::byte* data) const {
    std::memset(data, 0, row);
    if (map.fill != CU_TENSOR_MAP_FLOAT_OOB_FILL_NAN_REQUEST_ZERO_FMA) return;
    const uint64_t nan = element == 2 ? 0x7fff : element == 4 ? 0x7fffffff : 0x7fffffffffffffff;
    for (uint32_t i = 0; i < row; i += element) std::memcpy(data + i, &nan, element);
  }
  void flush(std::byte* data) const {
    if (map.type != CU_TENSOR_MAP_DATA_TYPE_FLOAT32_FTZ && map.type != CU_TENSOR_MAP_DATA_TYPE_TFLOAT32_FTZ) return;
    for (uint32_t i = 0; i < row; i += 4) {
      uint32_t bits;
      std::memcpy(&bits, data + i, 4);
      if (!(bits & 0x7f800000)) bits &= 0x80000000;
      std::memcpy(data + i, &bits, 4);
    }
  }

  void load_row(const int64_t* at, uint64_t offset) const {
    alignas(16) std::byte data[kRowBytes];
    uint32_t first, end;
    const uint64_t address = place(at, &first, &end);
    if (first != 0 || end * element != row) fill(data);
    if (end > first) {
      const uint32_t bytes = (end - first) * element;
      std::memcpy(data + first * element, global_range(warp, address + first * element, bytes), bytes);
      flush(data);
    }
    for (uint32_t i = 0; i < row; i += kChunkBytes)
      each_block(swizzled(shared + offset + i),
                 [&](uint64_t to) { write_bytes(warp, lane, to, data + i, kChunkBytes, AccessSpace::kShared); });
  }
  void store_row(const int64_t* at, uint64_t offset) const {
    alignas(16) std::byte data[kRowBytes];
    for (uint32_t i = 0; i < row; i += kChunkBytes)
      read_bytes(warp, lane, swizzled(shared + offset + i), data + i, kChunkBytes, AccessSpace::kShared);
    uint32_t first, end;
    const uint64_t address = place(at, &first, &end);
    if (end == first) return;
    const uint64_t to = address + first * element;
    if (form.move == TensorMove::kStore) {
      const uint32_t bytes = (end - first) * element;
      std::memcpy(global_range(warp, to, bytes), data + first * element, bytes);
      return;
    }
    reduce_elements(warp, to, data + first * element, end - first, AccessSpace::kGlobal, form.reduction,
                    static_cast<uint32_t>(reduced_type()));
  }
  AtomicType reduced_type() const {
    switch (map.type) {
      case CU_TENSOR_MAP_DATA_TYPE_UINT32:
        return AtomicType::kU32;
      case CU_TENSOR_MAP_DATA_TYPE_INT32:
        return AtomicType::kS32;
      case CU_TENSOR_MAP_DATA_TYPE_UINT64:
        return AtomicType::kU64;
      case CU_TENSOR_MAP_DATA_TYPE_INT64:
        return AtomicType::kS64;
      case CU_TENSOR_MAP_DATA_TYPE_FLOAT16:
        return AtomicType::kF16;
      case CU_TENSOR_MAP_DATA_TYPE_BFLOAT16:
        return AtomicType::kBf16;
      case CU_TENSOR_MAP_DATA_TYPE_FLOAT64:
        return AtomicType::kF64;
      case CU_TENSOR_MAP_DATA_TYPE_UINT8:
      case CU_TENSOR_MAP_DATA_TYPE_UINT16:
        bad_map(warp, map.address);
      default:
        return AtomicType::kF32;
    }
  }
};

// The swizzling of a map that counts as tensormap.replace numbers types.
constexpr uint8_t kReplacedTypes[] = {
    CU_TENSOR_MAP_DATA_TYPE_UINT8,       CU_TENSOR_MAP_DATA_TYPE_UINT16,   CU_TENSOR_MAP_DATA_TYPE_UINT32,
    CU_TENSOR_MAP_DATA_TYPE_INT32,       CU_TENSOR_MAP_DATA_TYPE_UINT64,   CU_TENSOR_MAP_DATA_TYPE_INT64,
    CU_TENSOR_MAP_DATA_TYPE_FLOAT16,     CU_TENSOR_MAP_DATA_TYPE_FLOAT32,  CU_TENSOR_MAP_DATA_TYPE_FLOAT32_FTZ,
    CU_TENSOR_MAP_DATA_TYPE_FLOAT64,     CU_TENSOR_MAP_DATA_TYPE_BFLOAT16, CU_TENSOR_MAP_DATA_TYPE_TFLOAT32,
    CU_TENSOR_MAP_DATA_TYPE_TFLOAT32_FTZ};

bool replace_field(TensorMap* map, TensorField field, uint32_t which, uint64_t value) {
  if (which >= kTensorRank || (field == TensorField::kStride && which >= kTensorRank - 1)) return false;
  switch (field) {
    case TensorField::kAddress:
      map->address = value;
      break;
    case TensorField::kRank:
      if (value >= kTensorRank) return false;
      map->rank = static_cast<uint8_t>(value + 1);
      break;
    case TensorField::kBox:
      map->box[which] = static_cast<uint16_t>(value);
      break;
    case TensorField::kDimension:
      map->last[which] = static_cast<uint32_t>(value - 1);
      break;
    case TensorField::kStride:
      map->strides[which] = value;
      break;
    case TensorField::kElementStride:
      map->element_strides[which] = static_cast<uint8_t>(value);
      break;
    case TensorField::kType:
      if (value >= std::size(kReplacedTypes)) return false;
      map->type = kReplacedTypes[value];
      break;
    case TensorField::kInterleave:
      map->interleave = static_cast<uint8_t>(value);
      break;
    case TensorField::kSwizzle:
      map->swizzle = static_cast<uint8_t>(value);
      break;
    case TensorField::kFill:
      map->fill = static_cast<uint8_t>(value);
      break;
  }
  return true;
}

}  // namespace

extern "C" {
// `words`: TensorWord::kCount arrays, one word a lane.
static void bsw_tensor(WarpState* warp, uint32_t mask, const uint64_t* words, uint32_t form_word) {
  const auto form = std::bit_cast<TensorForm>(form_word);
  for_lanes(mask, [&](uint32_t l) {
    const auto word = [&](TensorWord which, uint32_t i = 0) {
      return words[(static_cast<uint32_t>(which) + i) * kWarpLanes + l];
    };
    TensorCopy copy{warp,
                    l,
                    form,
                    read_map(warp, l, word(TensorWord::kMap), form),
                    word(TensorWord::kShared),
                    static_cast<uint32_t>(word(TensorWord::kBlocks)),
                    0,
                    0};
    copy.element = tensor_element_bytes(copy.map.type);
    copy.row = copy.element * (form.im2col ? copy.map.channels : copy.map.box[0]);
    TensorWalk walk{copy.map, {}, {}};
    for (uint32_t i = 0; i < kTensorRank; ++i)
      walk.from[i] = i < form.rank ? static_cast<int32_t>(word(TensorWord::kCoordinate, i)) : 0;
    for (uint32_t i = 0; i < 3; ++i)
      walk.offset[i] = i + 2 < form.rank ? static_cast<uint16_t>(word(TensorWord::kOffset, i)) : 0;
    // A GPU cannot begin a row between two chunks of global memory, inside of the tensor or outside (seen on an H200).
    if (walk.from[0] * int64_t{copy.element} % kChunkBytes) bad_map(warp, copy.map.address);
    // Nor can it store anything below 0, where it loads what stands for the outside (seen on an H100).
    const bool below = std::ranges::any_of(walk.from, [](int64_t at) { return at < 0; });
    if (below && form.move != TensorMove::kLoad && !form.im2col) bad_map(warp, copy.map.address);
    uint64_t offset = 0;
    walk.rows([&](const int64_t* at) {
      form.move == TensorMove::kLoad ? copy.load_row(at, offset) : copy.store_row(at, offset);
      offset += copy.row;
    });
    if (form.move != TensorMove::kLoad) return;
    copy.each_block(word(TensorWord::kBarrier), [&](uint64_t barrier) { complete_bytes(warp, l, barrier, offset); });
  });
}

// tensormap.replace of one field; maps are 128 bytes. Whether it is a map is asked of who copies by it, as on a GPU.
static void bsw_tensor_replace(WarpState* warp, uint32_t mask, const uint64_t* addresses, const uint64_t* values,
                               uint32_t field, uint32_t which, uint32_t space) {
  for_lanes(mask, [&](uint32_t l) {
    std::byte bytes[sizeof(TensorMap)];
    for (uint32_t at = 0; at < sizeof bytes; at += kChunkBytes)
      read_bytes(warp, l, addresses[l] + at, bytes + at, kChunkBytes, AccessSpace(space));
    auto map = std::bit_cast<TensorMap>(bytes);
    if (!replace_field(&map, TensorField(field), which, values[l])) bad_map(warp, addresses[l]);
    std::memcpy(bytes, &map, sizeof bytes);
    for (uint32_t at = 0; at < sizeof bytes; at += kChunkBytes)
      write_bytes(warp, l, addresses[l] + at, bytes + at, kChunkBytes, AccessSpace(space));
  });
}
}

void add_tensor_symbols(SymbolTable* table) {
  table->push_back({"bsw_tensor", (void*)bsw_tensor});
  table->push_back({"bsw_tensor_replace", (void*)bsw_tensor_replace});
}

}  // namespace bandsaw::soft
