#include "backend/device/soft/array.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <utility>

#include "backend/device/soft/half.h"
#include "backend/device/soft/srgb.h"
#include "memory/base/log.h"

namespace bandsaw::soft {
namespace {

constexpr uint32_t kKnownFlags = CUDA_ARRAY3D_LAYERED | CUDA_ARRAY3D_SURFACE_LDST | CUDA_ARRAY3D_CUBEMAP |
                                 CUDA_ARRAY3D_TEXTURE_GATHER | CUDA_ARRAY3D_COLOR_ATTACHMENT;
constexpr uint64_t kRowAlignment = 16;  // the largest texel: no access to a row's texel is misaligned

bool is_layered(uint32_t flags) { return (flags & (CUDA_ARRAY3D_LAYERED | CUDA_ARRAY3D_CUBEMAP)) != 0; }

CUresult refuse(std::string* why, std::string what, CUresult result = CUDA_ERROR_INVALID_VALUE) {
  *why = std::move(what);
  return result;
}

CUresult check_cube(const vgpu_array& asked, std::string* why) {
  if (asked.width != asked.height || asked.width > kArrayCubeSide) return refuse(why, "a cubemap's faces are squares");
  const bool layered = (asked.flags & CUDA_ARRAY3D_LAYERED) != 0;
  if (layered ? asked.depth == 0 || asked.depth % 6 != 0 || asked.depth > kArrayCubeLayers : asked.depth != 6) {
    return refuse(why, "a cubemap has 6 faces, a layered one a multiple of 6");
  }
  return CUDA_SUCCESS;
}

CUresult check_sides(const vgpu_array& asked, std::string* why) {
  const auto fits = [&](uint64_t width, uint64_t height, uint64_t depth) {
    return asked.width <= width && asked.height <= height && asked.depth <= depth
               ? CUDA_SUCCESS
               : refuse(why, "larger than the device's attributes say");
  };
  if (asked.width == 0) return refuse(why, "no width");
  if (asked.flags & CUDA_ARRAY3D_CUBEMAP) return check_cube(asked, why);
  if (asked.flags & CUDA_ARRAY3D_LAYERED) {
    if (asked.depth == 0) return refuse(why, "no layers");
    return fits(kArrayLayeredSide, kArrayLayeredSide, kArrayLayers);
  }
  if (asked.depth != 0) {
    if (asked.height == 0) return refuse(why, "depth without height");
    return fits(kArraySide3d, kArraySide3d, kArraySide3d);
  }
  return asked.height != 0 ? fits(kArrayWidth2d, kArrayHeight2d, 0) : fits(kArrayWidth1d, 0, 0);
}

CUresult check_flags(const vgpu_array& asked, std::string* why) {
  if (asked.flags & ~kKnownFlags) {
    return refuse(why, "sparse, deferred, depth and video arrays are not supported", CUDA_ERROR_NOT_SUPPORTED);
  }
  const bool plane = asked.height != 0 && asked.depth == 0;
  if ((asked.flags & CUDA_ARRAY3D_TEXTURE_GATHER) && !plane) return refuse(why, "gathers need two dimensions");
  return CUDA_SUCCESS;
}

uint32_t most_levels(const vgpu_array& asked) {
  const uint64_t side = std::max({asked.width, asked.height, is_layered(asked.flags) ? 0 : asked.depth});
  return static_cast<uint32_t>(std::bit_width(side));
}

}  // namespace

CUresult texel_format(uint32_t format, uint32_t channels, TexelFormat* made) {
  constexpr uint32_t kFirstNormalized = CU_AD_FORMAT_UNORM_INT8X1, kLastNormalized = CU_AD_FORMAT_SNORM_INT16X4;
  if (format >= kFirstNormalized && format <= kLastNormalized) {
    const uint32_t at = format - kFirstNormalized;
    const uint32_t packed = 1u << at % 3;
    *made = {at >= 6 ? TexelKind::kSigned : TexelKind::kUnsigned, at / 3 % 2 ? 2u : 1u, packed, true};
    return channels == packed ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
  }
  switch (format) {
    case CU_AD_FORMAT_UNSIGNED_INT8:
      *made = {TexelKind::kUnsigned, 1};
      break;
    case CU_AD_FORMAT_UNSIGNED_INT16:
      *made = {TexelKind::kUnsigned, 2};
      break;
    case CU_AD_FORMAT_UNSIGNED_INT32:
      *made = {TexelKind::kUnsigned, 4};
      break;
    case CU_AD_FORMAT_SIGNED_INT8:
      *made = {TexelKind::kSigned, 1};
      break;
    case CU_AD_FORMAT_SIGNED_INT16:
      *made = {TexelKind::kSigned, 2};
      break;
    case CU_AD_FORMAT_SIGNED_INT32:
      *made = {TexelKind::kSigned, 4};
      break;
    case CU_AD_FORMAT_HALF:
      *made = {TexelKind::kFloat, 2};
      break;
    case CU_AD_FORMAT_FLOAT:
      *made = {TexelKind::kFloat, 4};
      break;
    default:
      return format > 0 && format < 0x100 ? CUDA_ERROR_NOT_SUPPORTED : CUDA_ERROR_INVALID_VALUE;
  }
  made->channels = channels;
  return channels == 1 || channels == 2 || channels == 4 ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

CUresult lay_out(const vgpu_array& asked, ArrayLayout* layout, std::string* why) {
  *layout = {};
  if (const CUresult refused = texel_format(asked.format, asked.channels, &layout->format)) {
    return refuse(why, fmt::format("format {:#x} with {} channels", asked.format, asked.channels), refused);
  }
  if (const CUresult refused = check_flags(asked, why)) return refused;
  if (const CUresult refused = check_sides(asked, why)) return refused;
  if (asked.levels > most_levels(asked) || asked.levels > kTextureLevels) return refuse(why, "too many levels");
  const bool layered = is_layered(asked.flags);
  if (asked.levels && std::max(asked.width, asked.height) > kMipmapSide) return refuse(why, "too large for levels");
  for (uint32_t i = 0; i < std::max(asked.levels, 1u); ++i) {
    const auto half = [i](uint64_t side) { return static_cast<uint32_t>(std::max<uint64_t>(side >> i, 1)); };
    TextureLevel level;
    level.width = half(asked.width);
    level.height = half(asked.height);
    level.depth = layered ? static_cast<uint32_t>(asked.depth) : half(asked.depth);
    level.base = layout->bytes;
    level.pitch = (uint64_t{level.width} * layout->format.bytes() + kRowAlignment - 1) / kRowAlignment * kRowAlignment;
    level.plane = level.pitch * level.height;
    layout->bytes += level.plane * level.depth;  // at most 2^17 * 16 * 2^16 * 2^14 a level: no overflow
    layout->levels.push_back(level);
  }
  return CUDA_SUCCESS;
}

ArrayMemory::ArrayMemory(std::shared_ptr<Memory> memory, const ArrayLayout& of, uint64_t address)
    : layout([&] {
        ArrayLayout placed = of;
        for (TextureLevel& level : placed.levels) level.base += address;
        return placed;
      }()),
      memory_(std::move(memory)),
      address_(address) {}

CUresult ArrayMemory::make(const std::shared_ptr<Memory>& memory, const ArrayLayout& layout,
                           std::shared_ptr<ArrayMemory>* made) {
  uint64_t address = 0;
  if (const CUresult refused = memory->allocate(layout.bytes, Use::kPrivate, nullptr, &address)) return refused;
  made->reset(new ArrayMemory(memory, layout, address));
  return CUDA_SUCCESS;
}

CUresult ArrayMemory::release() {
  return alive_.exchange(false) ? memory_->release(address_) : CUDA_ERROR_INVALID_HANDLE;
}

vgpu_array level_of(const vgpu_array& mipmap, uint32_t level) {
  const auto half = [level](uint64_t side) { return side == 0 ? 0 : std::max<uint64_t>(side >> level, 1); };
  vgpu_array is = mipmap;
  is.width = half(mipmap.width);
  is.height = half(mipmap.height);
  if (!is_layered(mipmap.flags)) is.depth = half(mipmap.depth);
  is.levels = 0;
  return is;
}

CUresult find_box(const SoftArray& array, const Copy& copy, const CopyEnd& end, ArrayBox* box) {
  if (!array.memory->alive()) return CUDA_ERROR_INVALID_HANDLE;
  const TextureLevel& level = array.texels();
  const uint64_t texel = array.memory->layout.format.bytes();
  const auto inside = [](uint64_t from, uint64_t length, uint64_t size) {
    return length <= size && from <= size - length;
  };
  if (end.x_bytes % texel || copy.width_bytes % texel || !inside(end.x_bytes, copy.width_bytes, level.width * texel) ||
      !inside(end.y, copy.height, level.height) || !inside(end.z, copy.depth, level.depth)) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  box->address = level.base + end.z * level.plane + end.y * level.pitch + end.x_bytes;
  box->pitch = level.pitch;
  box->plane = level.plane;
  const bool empty = copy.width_bytes == 0 || copy.height == 0 || copy.depth == 0;
  box->extent = empty ? 0 : (copy.depth - 1) * level.plane + (copy.height - 1) * level.pitch + copy.width_bytes;
  return CUDA_SUCCESS;
}

void set_texels(const TexelFormat& format, TextureState* state) {
  state->kind = format.kind;
  state->channel_bytes = format.channel_bytes;
  state->channels = format.channels;
  state->normalized_values = format.normalized;
}

void set_levels(const ArrayLayout& layout, uint32_t first, uint32_t last, uint32_t flags, TextureState* state) {
  state->level_count = last - first + 1;
  std::copy_n(layout.levels.begin() + first, state->level_count, state->levels.begin());
  state->layered = (flags & CUDA_ARRAY3D_LAYERED) != 0;
  state->cube = (flags & CUDA_ARRAY3D_CUBEMAP) != 0;
}

// A view has its resource's own size, not its first level's: CUDA refuses others. An axis that is not there may be 0.
// Layers are chosen by number: the depth of what has layers says nothing.
bool has_size_of(const vgpu_view& asked, const TextureState& state) {
  const TextureLevel& level = state.levels[0];
  const auto same = [](uint64_t side, uint32_t of) { return side == of || (side == 0 && of == 1); };
  return asked.width == level.width && same(asked.height, level.height) &&
         (state.layered || state.cube || same(asked.depth, level.depth));
}

// CUresourceViewFormat counts 1, 2, 4 channels of each of these.
CUresult set_view(const vgpu_view& asked, const TexelFormat& array, TextureState* state, TexelFormat* format,
                  std::string* why) {
  constexpr std::pair<TexelKind, uint32_t> kKinds[] = {
      {TexelKind::kUnsigned, 1}, {TexelKind::kSigned, 1}, {TexelKind::kUnsigned, 2}, {TexelKind::kSigned, 2},
      {TexelKind::kUnsigned, 4}, {TexelKind::kSigned, 4}, {TexelKind::kFloat, 2},    {TexelKind::kFloat, 4}};
  *format = array;
  if (asked.format != CU_RES_VIEW_FORMAT_NONE) {
    const uint32_t at = asked.format - 1;
    if (at >= 3 * std::size(kKinds)) {
      return refuse(why, "a view with block compression is not supported", CUDA_ERROR_NOT_SUPPORTED);
    }
    *format = {kKinds[at / 3].first, kKinds[at / 3].second, 1u << at % 3, false};
    if (format->bytes() != array.bytes()) return refuse(why, "the view's texels have another size than the array's");
  }
  if (!has_size_of(asked, *state)) {
    return refuse(why, "the view has another size than the array; give the array's own, whatever its first level");
  }
  if (asked.first_level > asked.last_level || asked.last_level >= state->level_count) {
    return refuse(why, "the array does not have these levels");
  }
  std::copy_n(state->levels.begin() + asked.first_level, asked.last_level - asked.first_level + 1,
              state->levels.begin());
  state->level_count = asked.last_level - asked.first_level + 1;
  if (!state->layered && !state->cube) return CUDA_SUCCESS;
  if (asked.first_layer == 0 && asked.last_layer == 0) return CUDA_SUCCESS;  // not said: all
  if (asked.first_layer > asked.last_layer || asked.last_layer >= state->levels[0].depth) {
    return refuse(why, "the array does not have these layers");
  }
  for (uint32_t i = 0; i < state->level_count; ++i) {
    TextureLevel& level = state->levels[i];
    level.base += asked.first_layer * level.plane;
    level.depth = asked.last_layer - asked.first_layer + 1;
  }
  if (state->cube && state->levels[0].depth % 6 != 0) return refuse(why, "a view of a cubemap has whole cubes");
  return CUDA_SUCCESS;
}

// As a texel of the format, and then as the result has it. An H200 cuts normalized colours off to four bits more than a
// texel has, and rounds those in its own way.
uint32_t border_word(float colour, const TextureState& state, uint32_t channel) {
  if (state.decodes(channel)) return std::bit_cast<uint32_t>(from_srgb(to_srgb(colour)));
  if (state.kind == TexelKind::kFloat) {
    const bool half = state.channel_bytes == 2 && !std::isnan(colour);
    return std::bit_cast<uint32_t>(half ? from_f16(to_f16(colour, Rounding::kZero)) : colour);
  }
  const bool sign = state.kind == TexelKind::kSigned;
  const uint32_t bits = state.channel_bytes * 8;
  if (!state.normalized_values) {
    const uint32_t unused = 32 - bits, word = std::bit_cast<uint32_t>(colour) << unused;
    return sign ? static_cast<uint32_t>(static_cast<int32_t>(word) >> unused) : word >> unused;
  }
  const uint32_t magnitude = sign ? bits - 1 : bits, most = (1u << magnitude) - 1;
  const double size = std::isnan(colour) ? 0 : std::min(std::fabs(colour), 1.0f);
  const auto steps = static_cast<uint64_t>(std::ldexp(size, static_cast<int>(magnitude) + 4));
  const uint64_t code = (steps * most + (uint64_t{1} << (magnitude + 3)) - 1) >> (magnitude + 4);
  const float found = static_cast<float>(code) / static_cast<float>(most);
  return std::bit_cast<uint32_t>(colour < 0 ? (sign ? -found : 0) : found);
}

CUresult set_sampler(const vgpu_sampler& asked, TextureState* state, std::string* why) {
  constexpr uint32_t kFlags = CU_TRSF_READ_AS_INTEGER | CU_TRSF_NORMALIZED_COORDINATES | CU_TRSF_SRGB |
                              CU_TRSF_DISABLE_TRILINEAR_OPTIMIZATION | CU_TRSF_SEAMLESS_CUBEMAP;
  if (asked.flags & ~kFlags) return refuse(why, "unknown flags");
  if (asked.filter_mode > CU_TR_FILTER_MODE_LINEAR || asked.mipmap_filter_mode > CU_TR_FILTER_MODE_LINEAR) {
    return refuse(why, "unknown filter mode");
  }
  for (size_t i = 0; i < 3; ++i) {
    if (asked.address_mode[i] > CU_TR_ADDRESS_MODE_BORDER) return refuse(why, "unknown address mode");
    state->address[i] = static_cast<AddressMode>(asked.address_mode[i]);
  }
  const bool small_integer = state->kind != TexelKind::kFloat && state->channel_bytes < 4;
  if (small_integer && !(asked.flags & CU_TRSF_READ_AS_INTEGER)) state->normalized_values = 1;
  state->filter_linear = asked.filter_mode == CU_TR_FILTER_MODE_LINEAR;
  state->mip_linear = asked.mipmap_filter_mode == CU_TR_FILTER_MODE_LINEAR;
  state->normalized_coordinates = (asked.flags & CU_TRSF_NORMALIZED_COORDINATES) != 0;
  if (state->mipmapped && !state->normalized_coordinates) {  // levels have them nevertheless; they do not repeat
    state->normalized_coordinates = 1;
    for (AddressMode& mode : state->address) {
      if (mode == AddressMode::kWrap || mode == AddressMode::kMirror) mode = AddressMode::kClamp;
    }
  }
  state->srgb = (asked.flags & CU_TRSF_SRGB) != 0 && state->kind == TexelKind::kUnsigned && state->channel_bytes == 1 &&
                state->normalized_values;
  state->seamless = (asked.flags & CU_TRSF_SEAMLESS_CUBEMAP) != 0 && state->cube;
  state->level_bias = asked.mipmap_level_bias;
  state->level_least = asked.min_level;
  state->level_most = asked.max_level;
  for (uint32_t i = 0; i < 4; ++i) state->border[i] = border_word(asked.border_color[i], *state, i);
  return CUDA_SUCCESS;
}

}  // namespace bandsaw::soft
