// tex, tld4, txq, and where surface accesses go (PTX ISA 9.7.10, 9.7.11). A lane's handle and coordinates are the
// guest's: the handle is looked up, and no coordinate leads out of what it stands for.
#include <bit>

#include "backend/device/soft/codegen/runtime.h"
#include "backend/device/soft/codegen/sample.h"
#include "backend/device/soft/codegen/texture_ops.h"

namespace bandsaw::soft {
namespace {

// The state of one lane's handle after another; lanes mostly have the same.
class StateReader {
 public:
  StateReader(WarpState* warp, bool surface) : warp_(warp), surface_(surface) {}
  const TextureState& of(uint64_t handle) {
    auto* const state = reinterpret_cast<TextureState*>(bytes_);
    if (handle != 0 && handle == handle_) return *state;
    handle_ = 0;
    if (!warp_->textures || !warp_->textures->read(handle, state) || (state->surface != 0) != surface_) {
      bandsaw_fault(warp_, uint32_t(Fault::kIllegalAddress), handle);
    }
    handle_ = handle;
    return *state;
  }

 private:
  WarpState* const warp_;
  const bool surface_;
  uint64_t handle_ = 0;                                          // of the state; 0 is no handle
  alignas(TextureState) std::byte bytes_[sizeof(TextureState)];  // a state, once one was read: it is large
};

Coordinates coordinates_of(const FetchForm& form, const uint32_t* words, uint32_t lane) {
  Coordinates made;
  uint32_t at = 0;
  if (is_layered(form.geometry)) made.layer = words[kWarpLanes * at++ + lane];
  for (uint32_t i = 0; i < dimensions(form.geometry); ++i, ++at) {
    const uint32_t word = words[kWarpLanes * at + lane];
    made.at[i] = std::bit_cast<float>(word);
    made.texel[i] = static_cast<int32_t>(word);
  }
  return made;
}

// OpenCL's numbers, as PTX has them.
uint32_t channel_type(const TextureState& state) {
  const uint32_t size = static_cast<uint32_t>(std::countr_zero(state.channel_bytes));
  const bool sign = state.kind == TexelKind::kSigned;
  if (state.kind == TexelKind::kFloat) return state.channel_bytes == 2 ? 0x10DD : 0x10DE;
  if (state.normalized_values) return (sign ? 0x10D0 : 0x10D2) + size;
  return (sign ? 0x10D7 : 0x10DA) + size;
}

uint32_t answer(const TextureState& state, TextureQuery query, uint32_t level) {
  const TextureLevel& at = state.levels[level < state.level_count ? level : state.level_count - 1];
  const bool layers = state.layered || state.cube;
  switch (query) {
    case TextureQuery::kWidth:
      return at.width;
    case TextureQuery::kHeight:
      return at.height;
    case TextureQuery::kDepth:
      return layers ? 1 : at.depth;
    case TextureQuery::kChannelType:
      return channel_type(state);
    case TextureQuery::kChannelOrder:
      return state.channels == 1 ? 0x10B0 : state.channels == 2 ? 0x10B2 : 0x10B5;
    case TextureQuery::kNormalizedCoordinates:
      return state.normalized_coordinates;
    case TextureQuery::kLayers:
      return !layers ? 1 : state.cube ? at.depth / 6 : at.depth;
    case TextureQuery::kLevels:
      return state.level_count;
    case TextureQuery::kSamples:
      return 1;
    case TextureQuery::kUnnormalizedForced:
      return 0;
    case TextureQuery::kFilterMode:
      return state.filter_linear;
    case TextureQuery::kAddressMode0:
    case TextureQuery::kAddressMode1:
    case TextureQuery::kAddressMode2:
      return uint32_t(state.address[uint32_t(query) - uint32_t(TextureQuery::kAddressMode0)]);
    case TextureQuery::kMemoryLayout:
      return 1;
  }
  return 0;
}

struct SurfacePoint {
  int64_t x = 0, y = 0, z = 0;  // x in bytes
};

SurfacePoint surface_point(Geometry geometry, const uint32_t* words, uint32_t lane) {
  const auto word = [&](uint32_t i) { return int64_t{static_cast<int32_t>(words[kWarpLanes * i + lane])}; };
  switch (geometry) {
    case Geometry::k1d:
      return {word(0), 0, 0};
    case Geometry::k2d:
      return {word(0), word(1), 0};
    case Geometry::k3d:
      return {word(0), word(1), word(2)};
    case Geometry::kLayered1d:
      return {word(1), 0, word(0)};
    default:
      return {word(1), word(2), word(0)};
  }
}

}  // namespace

extern "C" {

static void bsw_texture(WarpState* warp, uint32_t mask, const uint64_t* handles, const uint32_t* coordinates,
                        const uint32_t* more, uint32_t* out, uint32_t packed_form) {
  const FetchForm form = FetchForm::of(packed_form);
  const uint32_t extra = form.level == LevelMode::kBase ? 0 : form.level == LevelMode::kExplicit ? 1 : 6;
  StateReader states(warp, false);
  if (const uint64_t first = mask ? handles[std::countr_zero(mask)] : 0; mask) {
    bool same = true;
    for_lanes(mask, [&](uint32_t lane) { same = same && handles[lane] == first; });
    if (same && Sampler(warp, states.of(first)).fetch_all(form, mask, coordinates, out)) return;
  }
  for_lanes(mask, [&](uint32_t lane) {
    const TextureState& state = states.of(handles[lane]);
    std::array<float, 6> numbers{};
    for (uint32_t i = 0; i < extra; ++i) numbers[i] = std::bit_cast<float>(more[kWarpLanes * i + lane]);
    const Words words = Sampler(warp, state).fetch(form, coordinates_of(form, coordinates, lane), numbers);
    for (uint32_t i = 0; i < 4; ++i) out[kWarpLanes * i + lane] = words[i];
  });
}

static void bsw_texture_query(WarpState* warp, uint32_t mask, const uint64_t* handles, const uint32_t* levels,
                              uint32_t* out, uint32_t query, uint32_t surface) {
  StateReader states(warp, surface != 0);
  for_lanes(mask,
            [&](uint32_t lane) { out[lane] = answer(states.of(handles[lane]), TextureQuery(query), levels[lane]); });
}

// Where each lane's `bytes` bytes lie. Returns the lanes whose access takes place.
static uint32_t bsw_surface(WarpState* warp, uint32_t mask, const uint64_t* handles, const uint32_t* coordinates,
                            uint64_t* addresses, uint32_t geometry, uint32_t bounds, uint32_t bytes) {
  StateReader states(warp, true);
  uint32_t inside = 0;
  for_lanes(mask, [&](uint32_t lane) {
    const TextureLevel& level = states.of(handles[lane]).levels[0];
    SurfacePoint at = surface_point(Geometry(geometry), coordinates, lane);
    const int64_t row = int64_t{level.width} * states.of(handles[lane]).texel_bytes() - bytes;
    if (row < 0) bandsaw_fault(warp, uint32_t(Fault::kIllegalAddress), handles[lane]);
    const bool fits = at.x >= 0 && at.x <= row && at.y >= 0 && at.y < level.height && at.z >= 0 && at.z < level.depth;
    if (!fits) {
      if (SurfaceBounds(bounds) == SurfaceBounds::kZero) return;
      if (SurfaceBounds(bounds) == SurfaceBounds::kTrap) {
        bandsaw_fault(warp, uint32_t(Fault::kIllegalAddress), handles[lane]);
      }
      at.x = at.x < 0 ? 0 : at.x > row ? row : at.x;
      at.y = at.y < 0 ? 0 : at.y >= level.height ? level.height - 1 : at.y;
      at.z = at.z < 0 ? 0 : at.z >= level.depth ? level.depth - 1 : at.z;
    }
    addresses[lane] = level.base + static_cast<uint64_t>(at.z) * level.plane +
                      static_cast<uint64_t>(at.y) * level.pitch + static_cast<uint64_t>(at.x);
    inside |= 1u << lane;
  });
  return inside;
}
}

void add_texture_symbols(SymbolTable* table) {
  table->push_back({"bsw_texture", (void*)bsw_texture});
  table->push_back({"bsw_texture_query", (void*)bsw_texture_query});
  table->push_back({"bsw_surface", (void*)bsw_surface});
}

}  // namespace bandsaw::soft
