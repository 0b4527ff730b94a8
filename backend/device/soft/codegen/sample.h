// What a texture fetch gives: the CUDA C++ Programming Guide's formulas (appendix "Texture Fetching"), PTX ISA 9.7.10,
// and where both are silent what an H200 does.
#pragma once

#include <array>
#include <cstdint>

#include "backend/device/soft/texture.h"
#include "backend/device/soft/warp.h"

namespace bandsaw::soft {

enum class Geometry : uint32_t { k1d, k2d, k3d, kLayered1d, kLayered2d, kCube, kLayeredCube };
enum class LevelMode : uint32_t { kBase, kExplicit, kGradient };

constexpr uint32_t dimensions(Geometry geometry) {
  constexpr uint32_t kOf[] = {1, 2, 3, 1, 2, 3, 3};
  return kOf[static_cast<uint32_t>(geometry)];
}
constexpr bool is_layered(Geometry geometry) {
  return geometry == Geometry::kLayered1d || geometry == Geometry::kLayered2d || geometry == Geometry::kLayeredCube;
}
constexpr bool is_cube(Geometry geometry) { return geometry == Geometry::kCube || geometry == Geometry::kLayeredCube; }

// What compiled code says of a fetch, in one number.
struct FetchForm {
  Geometry geometry{};
  LevelMode level{};
  bool integers = false;  // coordinates are whole texels
  uint32_t gather = 0;    // 1 to 4: the component of a gather
  constexpr uint32_t packed() const {
    return static_cast<uint32_t>(geometry) | static_cast<uint32_t>(level) << 4 | integers << 8 | gather << 12;
  }
  static constexpr FetchForm of(uint32_t bits) {
    return {Geometry(bits & 15), LevelMode(bits >> 4 & 15), (bits >> 8 & 1) != 0, bits >> 12};
  }
};

struct Coordinates {
  std::array<float, 3> at{};
  std::array<int32_t, 3> texel{};  // for integer coordinates
  uint32_t layer = 0;
};

using Words = std::array<uint32_t, 4>;  // floats' bits, or integers

// Two neighbouring texels along an axis, -1: the border; and how many 256ths the second one counts.
struct AxisTexels {
  int32_t first = 0, second = 0, steps = 0;
};
AxisTexels axis_texels(AddressMode mode, bool normalized, bool linear, float coordinate, uint32_t texels);

// What each corner counts (axis.h).
std::array<uint32_t, 8> corner_steps(uint32_t axes, uint32_t all, const std::array<uint32_t, 3>& second);

// Texels of one plane of a level, and how many 256ths each counts.
struct Footprint {
  std::array<Words, 4> texels{};
  std::array<int32_t, 4> steps{};
};
// Those that make one result: at most two planes of two levels.
struct Footprints {
  std::array<Footprint, 4> planes{};
  uint32_t count = 0;
};

// A cube's face, 0 to 5, and where on it, each 0 to 1.
struct FacePoint {
  uint32_t face = 0;
  float s = 0, t = 0;
};
FacePoint face_point(const std::array<float, 3>& direction);
// A direction to it; s and t may lie beyond the face.
std::array<float, 3> direction_of(const FacePoint& point);

// Reads texels of one texture. `warp` is asked for memory outside of the window; such an access may end the launch.
class Sampler {
 public:
  Sampler(WarpState* warp, const TextureState& state) : warp_(warp), state_(state) {}
  // `more`: the level of an explicit one; d/dx, then d/dy, of a gradient's coordinates.
  Words fetch(const FetchForm& form, const Coordinates& coordinates, const std::array<float, 6>& more) const;
  // The same of all lanes of the mask, where a loop over them is quicker: layer and coordinates as arrays of 32 lanes,
  // and four of results. False: lane by lane.
  bool fetch_all(const FetchForm& form, uint32_t mask, const uint32_t* words, uint32_t* out) const;

 private:
  float level_of(const FetchForm& form, const std::array<float, 6>& more) const;
  int32_t steps_of_level(const FetchForm& form, const std::array<float, 6>& more) const;
  Words sample(const FetchForm& form, uint32_t level, const Coordinates& coordinates) const;
  static bool has_texel(const FetchForm& form, const TextureLevel& level, const Coordinates& coordinates);
  // `all`: how many 256ths the level counts.
  void add_level(const FetchForm& form, uint32_t number, int32_t all, const Coordinates& coordinates,
                 Footprints* to) const;
  static void add_texel(const Words& texel, int32_t all, Footprints* to);
  void add_corners(const TextureLevel& level, uint32_t axes, int32_t all, const AxisTexels (&at)[3], uint32_t plane,
                   Footprints* to) const;
  Words take(const TextureLevel& level, uint32_t axes, bool linear, const AxisTexels (&at)[3], uint32_t plane) const;
  Words cut_off(Words words) const;
  bool seamless() const { return state_.seamless && state_.filters() && state_.float_results(); }
  // A row is a plane of one row, and a filter's second one half beyond its edge.
  bool has_border_row(const FetchForm& form) const {
    return form.geometry == Geometry::k1d && state_.address[1] == AddressMode::kBorder;
  }
  Words mixed(const Footprints& of) const;
  uint32_t mixed_channel(const Footprints& of, uint32_t channel) const;
  uint32_t mixed_integers(const Footprints& of, uint32_t channel) const;
  Words gather(const FetchForm& form, const Coordinates& coordinates) const;
  Words blend_seamless(const TextureLevel& level, const FacePoint& point, uint32_t cube) const;
  Words cube_texel(const TextureLevel& level, uint32_t cube, uint32_t face, int64_t x, int64_t y) const;
  Words texel(const TextureLevel& level, int32_t x, int32_t y, int64_t z) const;
  Words filtered(const FetchForm& form, const Coordinates& coordinates, const std::array<float, 6>& more) const;
  uint32_t channel(const std::byte* from) const;
  uint32_t layer_of(const FetchForm& form, const TextureLevel& level, uint32_t layer) const;
  void find_texels(const FetchForm& form, const TextureLevel& level, const Coordinates& coordinates, bool linear,
                   AxisTexels (&at)[3], uint32_t* plane) const;

  WarpState* const warp_;
  const TextureState& state_;
};

}  // namespace bandsaw::soft
