#include "backend/device/soft/codegen/sample.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>

#include "backend/device/soft/codegen/axis.h"
#include "backend/device/soft/codegen/blend.h"
#include "backend/device/soft/half.h"
#include "backend/device/soft/srgb.h"

namespace bandsaw::soft {
namespace {

constexpr double kFar = 1e12;        // beyond every texture
constexpr uint32_t kAllSteps = 256;  // filter weights have 8 bits after the point
constexpr float kSteps = kAllSteps;
constexpr AxisTexels kBorderRow{-1, 0, kAllSteps / 2};

// As std::floor, which is a call on processors of the least kind.
int64_t whole(double value) {
  if (!(std::fabs(value) < kFar)) value = value > 0 ? kFar : value < 0 ? -kFar : 0;
  const auto cut = static_cast<int64_t>(value);
  return cut - (static_cast<double>(cut) > value);
}

uint32_t bits_of(float value) { return std::bit_cast<uint32_t>(value); }
float float_of(uint32_t bits) { return std::bit_cast<float>(bits); }

}  // namespace

AxisTexels axis_texels(AddressMode mode, bool normalized, bool linear, float coordinate, uint32_t texels) {
  const AxisSteps at = with_axis(mode, normalized, linear, [&]<AddressMode kMode, bool kNormalized, bool kLinear>() {
    return axis_steps<kMode, kNormalized, kLinear>(coordinate, texels);
  });
  return {static_cast<int32_t>(at.first), static_cast<int32_t>(at.second), static_cast<int32_t>(at.steps)};
}

std::array<uint32_t, 8> corner_steps(uint32_t axes, uint32_t all, const std::array<uint32_t, 3>& second) {
  std::array<uint32_t, 8> steps{};
  const auto put = [&](uint32_t corner, int32_t value) { steps[corner] = static_cast<uint32_t>(value); };
  const auto number = [](uint32_t value) { return static_cast<int32_t>(value); };
  const int32_t x = number(second[0]), y = number(second[1]), z = number(second[2]);
  if (axes == 1) corner_steps_to<1>(number(all), x, y, z, put);
  if (axes == 2) corner_steps_to<2>(number(all), x, y, z, put);
  if (axes == 3) corner_steps_to<3>(number(all), x, y, z, put);
  return steps;
}

FacePoint face_point(const std::array<float, 3>& direction) {
  const auto [x, y, z] = direction;
  const float ax = std::fabs(x), ay = std::fabs(y), az = std::fabs(z);
  uint32_t face;
  float m, s, t;
  if (az >= ax && az >= ay) {
    face = z < 0 ? 5 : 4, m = az, s = z < 0 ? -x : x, t = -y;
  } else if (ay >= ax) {
    face = y < 0 ? 3 : 2, m = ay, s = x, t = y < 0 ? -z : z;
  } else {
    face = x < 0 ? 1 : 0, m = ax, s = x < 0 ? z : -z, t = -y;
  }
  return {face, (s / m + 1) / 2, (t / m + 1) / 2};
}

std::array<float, 3> direction_of(const FacePoint& point) {
  const float s = 2 * point.s - 1, t = 2 * point.t - 1;
  switch (point.face) {
    case 0:
      return {1, -t, -s};
    case 1:
      return {-1, -t, s};
    case 2:
      return {s, 1, t};
    case 3:
      return {s, -1, -t};
    case 4:
      return {s, -t, 1};
    default:
      return {-s, -t, -1};
  }
}

// Of one or two bytes. The least of a signed format is below -1.
uint32_t Sampler::channel(const std::byte* from) const {
  const auto as = [from]<typename T>(T) {
    T value;
    std::memcpy(&value, from, sizeof value);
    return value;
  };
  if (state_.kind == TexelKind::kFloat) {
    const uint32_t half = as(uint16_t{}), nan = (half & 0x8000) << 16 | 0x7f800000 | (half & 0x3ff) << 13;
    return (half & 0x7fff) > 0x7c00 ? nan : bits_of(from_f16(static_cast<uint16_t>(half)));
  }
  const bool sign = state_.kind == TexelKind::kSigned;
  const bool byte = state_.channel_bytes == 1;
  const int32_t value = sign ? (byte ? as(int8_t{}) : as(int16_t{})) : (byte ? as(uint8_t{}) : as(uint16_t{}));
  const float most = sign ? (byte ? 127 : 32767) : (byte ? 255 : 65535);
  if (!state_.normalized_values) return static_cast<uint32_t>(value);
  return bits_of(static_cast<float>(value) / most);
}

// Channels that the texture does not have are 0, the fourth too.
inline Words Sampler::texel(const TextureLevel& level, int32_t x, int32_t y, int64_t z) const {
  Words words{};
  if (x < 0 || y < 0 || z < 0) {
    std::copy_n(state_.border.begin(), state_.channels, words.begin());
    return words;
  }
  const uint32_t bytes = state_.texel_bytes();
  const uint64_t at = level.base + static_cast<uint64_t>(z) * level.plane + static_cast<uint64_t>(y) * level.pitch +
                      static_cast<uint64_t>(x) * bytes;
  const auto* from = static_cast<const std::byte*>(state_.in_window ? reinterpret_cast<void*>(at)
                                                                    : bandsaw_translate(warp_, at, bytes));
  if (state_.channel_bytes == 4) {
    if (state_.channels == 1) {
      std::memcpy(words.data(), from, 4);
      return words;
    }
    for (uint32_t i = 0; i < state_.channels; ++i) std::memcpy(&words[i], from + size_t{i} * 4, 4);
    return words;
  }
  for (uint32_t i = 0; i < state_.channels; ++i) {
    words[i] = channel(from + size_t{i} * state_.channel_bytes);
    if (state_.decodes(i)) words[i] = bits_of(from_srgb(std::to_integer<uint32_t>(from[i])));
  }
  return words;
}

uint32_t Sampler::layer_of(const FetchForm& form, const TextureLevel& level, uint32_t layer) const {
  if (!is_layered(form.geometry)) return 0;
  const uint32_t layers = is_cube(form.geometry) ? level.depth / 6 : level.depth;
  return layers == 0 ? 0 : std::min(layer, layers - 1);  // a negative one is far beyond
}

void Sampler::find_texels(const FetchForm& form, const TextureLevel& level, const Coordinates& coordinates, bool linear,
                          AxisTexels (&at)[3], uint32_t* plane) const {
  const uint32_t sides[3] = {level.width, level.height, level.depth};
  *plane = layer_of(form, level, coordinates.layer);
  if (is_cube(form.geometry)) {
    const FacePoint point = face_point(coordinates.at);
    *plane = std::min(*plane * 6 + point.face, level.depth - 1);
    const bool clamped = !linear && !state_.mipmapped;
    const auto mode = [&](size_t i) { return clamped ? AddressMode::kClamp : state_.address[i]; };
    at[0] = axis_texels(mode(0), true, linear, point.s, level.width);
    at[1] = axis_texels(mode(1), true, linear, point.t, level.height);
    return;
  }
  for (uint32_t i = 0; i < dimensions(form.geometry); ++i) {
    if (form.integers) {
      at[i] = {coordinates.texel[i], coordinates.texel[i], 0};
    } else {
      at[i] = axis_texels(state_.address[i], state_.normalized_coordinates, linear, coordinates.at[i], sides[i]);
    }
  }
}

// Whole coordinates beyond the texture find neither its edge nor its border, and those of a row nothing but memory.
bool Sampler::has_texel(const FetchForm& form, const TextureLevel& level, const Coordinates& coordinates) {
  if (form.geometry == Geometry::k1d) return false;
  if (is_layered(form.geometry) && coordinates.layer >= level.depth) return false;
  const uint32_t sides[3] = {level.width, level.height, level.depth};
  for (uint32_t i = 0; i < dimensions(form.geometry); ++i)
    if (coordinates.texel[i] < 0 || static_cast<uint32_t>(coordinates.texel[i]) >= sides[i]) return false;
  return true;
}

void Sampler::add_corners(const TextureLevel& level, uint32_t axes, int32_t all, const AxisTexels (&at)[3],
                          uint32_t plane, Footprints* to) const {
  const auto second = [&](uint32_t axis) { return axis < axes ? static_cast<uint32_t>(at[axis].steps) : 0; };
  const auto steps = corner_steps(axes, static_cast<uint32_t>(all), {second(0), second(1), second(2)});
  for (uint32_t corner = 0; corner < 1u << axes; ++corner) {
    Footprint& of = to->planes[to->count + corner / 4];
    of.steps[corner % 4] = static_cast<int32_t>(steps[corner]);
    if (steps[corner] == 0) continue;
    int32_t where[3] = {0, 0, static_cast<int32_t>(plane)};
    for (uint32_t i = 0; i < axes; ++i) where[i] = corner >> i & 1 ? at[i].second : at[i].first;
    of.texels[corner % 4] = texel(level, where[0], where[1], where[2]);
  }
  to->count += axes == 3 ? 2 : 1;
}

// Small normalized integers are filtered as such of 16 bits; signed ones of 8 bits in steps of an H200's own, and the
// least of a signed format is cut off behind the filter. Halves go upwards.
uint32_t Sampler::mixed_integers(const Footprints& of, uint32_t channel) const {
  const bool sign = state_.kind == TexelKind::kSigned, byte = state_.channel_bytes == 1;
  const float most = sign ? (byte ? 127 : 32767) : (byte ? 255 : 65535);
  int64_t sum = 0;
  for (uint32_t plane = 0; plane < of.count; ++plane)
    for (size_t i = 0; i < 4; ++i) {
      const uint32_t word = of.planes[plane].texels[i][channel];
      const int64_t code =
          state_.normalized_values ? std::lround(float_of(word) * most) : int64_t{static_cast<int32_t>(word)};
      sum += of.planes[plane].steps[i] * code;
    }
  const auto nearest = [](int64_t of_256) { return (of_256 + kAllSteps / 2) >> 8; };
  if (!state_.normalized_values) return static_cast<uint32_t>(nearest(sum));
  if (!sign) return bits_of(static_cast<float>(nearest(byte ? sum * 257 : sum)) / 65535);
  const int64_t code = byte ? sum + ((257 * (sum >> 4) + 1024) >> 11) : nearest(sum);
  return bits_of(static_cast<float>(std::max<int64_t>(code, -32767)) / 32767);
}

uint32_t Sampler::mixed_channel(const Footprints& of, uint32_t channel) const {
  if (state_.kind != TexelKind::kFloat && !state_.decodes(channel)) return mixed_integers(of, channel);
  const auto texel = [&](uint32_t i) { return of.planes[i / 4].texels[i % 4][channel]; };
  const auto steps = [&](uint32_t i) { return of.planes[i / 4].steps[i % 4]; };
  if (state_.srgb) {
    return blended<SrgbFormat, 16, 4>(texel, steps,
                                      [&](uint32_t i) { return bits_of(srgb_block(float_of(texel(i)))); });
  }
  if (state_.channel_bytes == 2) return blended<HalfFormat, 16, 4>(texel, steps);
  if (of.count == 1) return blended<FloatFormat, 4, 4>(texel, steps);
  return of.count == 2 ? blended<FloatFormat, 8, 4>(texel, steps) : blended<FloatFormat, 16, 4>(texel, steps);
}

Words Sampler::mixed(const Footprints& of) const {
  Words words{};
  for (uint32_t i = 0; i < state_.channels; ++i) words[i] = mixed_channel(of, i);
  return words;
}

// Beside a face's edge lies the neighbour's texel. Beyond a corner lies none: the mean of the three around it.
Words Sampler::cube_texel(const TextureLevel& level, uint32_t cube, uint32_t face, int64_t x, int64_t y) const {
  const auto last = static_cast<int64_t>(level.width) - 1;
  const int64_t near_x = std::clamp<int64_t>(x, 0, last), near_y = std::clamp<int64_t>(y, 0, last);
  if (x != near_x && y != near_y) {
    Words mean{};
    const Words three[] = {cube_texel(level, cube, face, near_x, near_y), cube_texel(level, cube, face, x, near_y),
                           cube_texel(level, cube, face, near_x, y)};
    for (size_t i = 0; i < 4; ++i) {
      mean[i] = bits_of((float_of(three[0][i]) + float_of(three[1][i]) + float_of(three[2][i])) / 3);
    }
    return mean;
  }
  if (x != near_x || y != near_y) {
    const auto side = static_cast<float>(level.width);
    const FacePoint at =
        face_point(direction_of({face, (static_cast<float>(x) + 0.5f) / side, (static_cast<float>(y) + 0.5f) / side}));
    face = at.face;
    x = std::clamp<int64_t>(whole(at.s * side), 0, last);
    y = std::clamp<int64_t>(whole(at.t * side), 0, last);
  }
  const int64_t plane = std::min<int64_t>(int64_t{cube} * 6 + face, level.depth - 1);
  return texel(level, static_cast<int32_t>(x), static_cast<int32_t>(y), plane);
}

Words Sampler::blend_seamless(const TextureLevel& level, const FacePoint& point, uint32_t cube) const {
  const int64_t x = whole((double{point.s} * level.width - 0.5) * kSteps + 0.5);
  const int64_t y = whole((double{point.t} * level.height - 0.5) * kSteps + 0.5);
  const std::array<uint32_t, 8> steps =
      corner_steps(2, kAllSteps, {static_cast<uint32_t>(x & 255), static_cast<uint32_t>(y & 255)});
  Footprints found;
  found.count = 1;
  for (uint32_t corner = 0; corner < 4; ++corner) {
    if (steps[corner] == 0) continue;
    found.planes[0].steps[corner] = static_cast<int32_t>(steps[corner]);
    found.planes[0].texels[corner] =
        cube_texel(level, cube, point.face, (x >> 8) + (corner & 1), (y >> 8) + (corner >> 1));
  }
  return mixed(found);
}

Words Sampler::sample(const FetchForm& form, uint32_t number, const Coordinates& coordinates) const {
  const TextureLevel& level = state_.levels[number];
  const bool linear = state_.filters() && !form.integers;
  if (form.integers && !has_texel(form, level, coordinates)) return {};
  if (linear && seamless() && is_cube(form.geometry)) {
    return blend_seamless(level, face_point(coordinates.at), layer_of(form, level, coordinates.layer));
  }
  if (linear) {
    Footprints found;
    add_level(form, number, kAllSteps, coordinates, &found);
    return mixed(found);
  }
  AxisTexels at[3];
  uint32_t plane = 0;
  find_texels(form, level, coordinates, false, at, &plane);
  return take(level, is_cube(form.geometry) ? 2 : dimensions(form.geometry), false, at, plane);
}

void Sampler::add_level(const FetchForm& form, uint32_t number, int32_t all, const Coordinates& coordinates,
                        Footprints* to) const {
  const TextureLevel& level = state_.levels[number];
  const bool linear = state_.filters();
  AxisTexels at[3];
  uint32_t plane = 0, axes = is_cube(form.geometry) ? 2 : dimensions(form.geometry);
  find_texels(form, level, coordinates, linear, at, &plane);
  if (linear) {
    if (has_border_row(form)) {
      axes = 2;
      at[1] = kBorderRow;
    }
    return add_corners(level, axes, all, at, plane, to);
  }
  add_texel(take(level, axes, false, at, plane), all, to);
}

void Sampler::add_texel(const Words& texel, int32_t all, Footprints* to) {
  Footprint& of = to->planes[to->count++];
  of.texels[0] = texel;
  of.steps[0] = all;
}

Words Sampler::take(const TextureLevel& level, uint32_t axes, bool linear, const AxisTexels (&at)[3],
                    uint32_t plane) const {
  if (linear) {
    Footprints found;
    add_corners(level, axes, kAllSteps, at, plane, &found);
    return mixed(found);
  }
  return texel(level, at[0].first, axes > 1 ? at[1].first : 0, axes > 2 ? at[2].first : static_cast<int32_t>(plane));
}

// One component of the four texels that a linear filter would take.
Words Sampler::gather(const FetchForm& form, const Coordinates& coordinates) const {
  const TextureLevel& level = state_.levels[0];
  AxisTexels at[3];
  uint32_t plane = 0;
  find_texels(form, level, coordinates, true, at, &plane);
  if (form.gather > state_.channels) return {};
  const auto component = [&](int32_t x, int32_t y) {
    Footprints one;
    add_texel(texel(level, x, y, plane), kAllSteps, &one);
    return mixed_channel(one, form.gather - 1);
  };
  return {component(at[0].first, at[1].second), component(at[0].second, at[1].second),
          component(at[0].second, at[1].first), component(at[0].first, at[1].first)};
}

float Sampler::level_of(const FetchForm& form, const std::array<float, 6>& more) const {
  float level = more[0];
  if (form.level == LevelMode::kGradient) {
    const TextureLevel& base = state_.levels[0];
    const uint32_t sides[3] = {base.width, base.height, base.depth};
    float longest = 0;
    for (size_t direction = 0; direction < 2; ++direction) {
      float square = 0;
      for (uint32_t i = 0; i < dimensions(form.geometry); ++i) {
        const float step =
            more[3 * direction + i] * (state_.normalized_coordinates ? static_cast<float>(sides[i]) : 1.0f);
        square += step * step;
      }
      longest = std::max(longest, std::sqrt(square));
    }
    level = std::log2(longest);
  }
  return level;
}

// Levels, biases and bounds are held in 256ths and cut off; a fetch that names no level has no bias.
int32_t Sampler::steps_of_level(const FetchForm& form, const std::array<float, 6>& more) const {
  const auto cut = [](float level) {
    constexpr float kMost = 1 << 20;
    return std::isnan(level) ? 0 : static_cast<int32_t>(std::clamp(level * kSteps, -kMost, kMost));
  };
  const int32_t asked = form.level == LevelMode::kBase ? 0 : cut(level_of(form, more)) + cut(state_.level_bias);
  const int32_t level = std::max(std::min(asked, cut(state_.level_most)), cut(state_.level_least));
  return std::clamp(level, 0, static_cast<int32_t>((state_.level_count - 1) * kAllSteps));
}

// The least of a signed format is below -1.
Words Sampler::cut_off(Words words) const {
  if (!state_.normalized_values || state_.kind != TexelKind::kSigned) return words;
  for (uint32_t& word : words) word = bits_of(std::max(float_of(word), -1.0f));
  return words;
}

Words Sampler::fetch(const FetchForm& form, const Coordinates& coordinates, const std::array<float, 6>& more) const {
  return cut_off(filtered(form, coordinates, more));
}

bool Sampler::fetch_all(const FetchForm& form, uint32_t mask, const uint32_t* words, uint32_t* out) const {
  const bool base = state_.level_count == 1;
  if (!base || form.integers || form.gather || is_cube(form.geometry) || state_.linear_memory) return false;
  const TextureLevel& level = state_.levels[0];
  const uint32_t sides[] = {level.width, level.height, level.depth}, given = dimensions(form.geometry);
  const bool linear = state_.filters(), layered = is_layered(form.geometry);
  LaneAxis at[3];
  for (uint32_t i = 0; i < given; ++i) {
    axis_of_lanes(state_.address[i], state_.normalized_coordinates, linear, words + kWarpLanes * (i + layered),
                  sides[i], &at[i]);
  }
  const bool border_row = linear && has_border_row(form);
  const uint32_t axes = border_row ? 2 : given;
  if (border_row) {
    std::fill_n(at[1].first, kWarpLanes, kBorderRow.first);
    std::fill_n(at[1].second, kWarpLanes, kBorderRow.second);
    std::fill_n(at[1].steps, kWarpLanes, kBorderRow.steps);
  }
  if (state_.kind == TexelKind::kFloat && state_.channel_bytes == 4 && state_.in_window && !layered) {
    floats_of_lanes(state_, axes, linear, mask, at, out);
    return true;
  }
  for (; mask; mask &= mask - 1) {
    const int l = __builtin_ctz(mask);
    AxisTexels own[3];
    for (uint32_t i = 0; i < axes; ++i) own[i] = {at[i].first[l], at[i].second[l], at[i].steps[l]};
    const Words found = cut_off(take(level, axes, linear, own, layer_of(form, level, layered ? words[l] : 0)));
    for (uint32_t i = 0; i < 4; ++i) out[kWarpLanes * i + static_cast<uint32_t>(l)] = found[i];
  }
  return true;
}

Words Sampler::filtered(const FetchForm& form, const Coordinates& coordinates, const std::array<float, 6>& more) const {
  if (state_.linear_memory) {
    const int64_t at = form.integers ? coordinates.texel[0] : whole(coordinates.at[0]);
    return at < 0 || at >= state_.levels[0].width ? Words{} : texel(state_.levels[0], static_cast<int32_t>(at), 0, 0);
  }
  if (form.gather) return gather(form, coordinates);
  if (state_.level_count == 1) return sample(form, 0, coordinates);
  if (form.integers && form.level != LevelMode::kGradient) {  // the level is a whole number, too
    const int32_t number = form.level == LevelMode::kBase ? 0 : std::bit_cast<int32_t>(more[0]);
    return sample(form, std::clamp<int32_t>(number, 0, static_cast<int32_t>(state_.level_count) - 1), coordinates);
  }
  const int32_t level = steps_of_level(form, more), far = level & 255;
  const auto number = static_cast<uint32_t>(level >> 8);
  if (!state_.mip_linear || !state_.float_results()) return sample(form, number + (far >= 128), coordinates);
  if (seamless() && is_cube(form.geometry)) {
    if (far == 0) return sample(form, number, coordinates);
    const float weight = static_cast<float>(far) / kSteps;
    Words first = sample(form, number, coordinates);
    const Words second = sample(form, number + 1, coordinates);
    for (size_t i = 0; i < 4; ++i) first[i] = bits_of((1 - weight) * float_of(first[i]) + weight * float_of(second[i]));
    return first;
  }
  Footprints found;
  add_level(form, number, int32_t{kAllSteps} - far, coordinates, &found);
  if (far != 0) add_level(form, number + 1, far, coordinates, &found);
  return mixed(found);
}

}  // namespace bandsaw::soft
