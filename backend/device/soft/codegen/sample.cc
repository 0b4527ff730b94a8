#include "backend/device/soft/codegen/sample.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>

#include "backend/device/soft/codegen/axis.h"
#include "backend/device/soft/codegen/half.h"

namespace bandsaw::soft {
namespace {

constexpr double kFar = 1e12;        // beyond every texture
constexpr uint32_t kAllSteps = 256;  // filter weights have 8 bits after the point
constexpr float kSteps = kAllSteps;

// As std::floor, which is a call on processors of the least kind.
int64_t whole(double value) {
  if (!(std::fabs(value) < kFar)) value = value > 0 ? kFar : value < 0 ? -kFar : 0;
  const auto cut = static_cast<int64_t>(value);
  return cut - (static_cast<double>(cut) > value);
}

// Of a whole texel.
int32_t address(AddressMode mode, int64_t at, uint32_t texels) {
  const auto last = static_cast<int64_t>(texels) - 1;
  if (mode == AddressMode::kBorder) return at < 0 || at > last ? -1 : static_cast<int32_t>(at);
  return static_cast<int32_t>(std::clamp<int64_t>(at, 0, last));
}

float from_srgb(float value) { return value <= 0.04045f ? value / 12.92f : std::pow((value + 0.055f) / 1.055f, 2.4f); }

using Four = float __attribute__((vector_size(16)));

// Of integers that a float holds.
Four floats_of(const Words& words) {
  return __builtin_convertvector(std::bit_cast<int32_t __attribute__((vector_size(16)))>(words), Four);
}

// To the nearest integers, halves upwards: seen on an H100.
Words rounded(Four values) {
  Words words;
  for (size_t i = 0; i < 4; ++i) words[i] = static_cast<uint32_t>(whole(double{values[static_cast<int>(i)]} + 0.5));
  return words;
}

uint32_t bits_of(float value) { return std::bit_cast<uint32_t>(value); }
float float_of(uint32_t bits) { return std::bit_cast<float>(bits); }

}  // namespace

AxisTexels axis_texels(AddressMode mode, bool normalized, bool linear, float coordinate, uint32_t texels) {
  const AxisSteps at = with_axis(mode, normalized, linear, [&]<AddressMode kMode, bool kNormalized, bool kLinear>() {
    return axis_steps<kMode, kNormalized, kLinear>(coordinate, texels);
  });
  return {static_cast<int32_t>(at.first), static_cast<int32_t>(at.second), static_cast<float>(at.steps / kSteps)};
}

std::array<uint32_t, 8> corner_steps(uint32_t axes, const std::array<uint32_t, 3>& second) {
  std::array<uint32_t, 8> steps{};
  const auto put = [&](uint32_t corner, int32_t value) { steps[corner] = static_cast<uint32_t>(value); };
  const auto [x, y, z] =
      std::array{static_cast<int32_t>(second[0]), static_cast<int32_t>(second[1]), static_cast<int32_t>(second[2])};
  if (axes == 1) corner_steps_to<1>(x, y, z, put);
  if (axes == 2) corner_steps_to<2>(x, y, z, put);
  if (axes == 3) corner_steps_to<3>(x, y, z, put);
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
  if (state_.kind == TexelKind::kFloat) return bits_of(from_f16(as(uint16_t{})));
  const bool sign = state_.kind == TexelKind::kSigned;
  const bool byte = state_.channel_bytes == 1;
  const int32_t value = sign ? (byte ? as(int8_t{}) : as(int16_t{})) : (byte ? as(uint8_t{}) : as(uint16_t{}));
  const float most = sign ? (byte ? 127 : 32767) : (byte ? 255 : 65535);
  if (!state_.normalized_values) return static_cast<uint32_t>(value);
  return bits_of(static_cast<float>(value) / most);
}

// Channels that the texture does not have are 0, and the fourth is 1.
inline Words Sampler::texel(const TextureLevel& level, int32_t x, int32_t y, int64_t z) const {
  Words words{0, 0, 0, state_.float_results() ? bits_of(1) : 1u};
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
    if (state_.srgb && i < 3) words[i] = bits_of(from_srgb(float_of(words[i])));
  }
  return words;
}

uint32_t Sampler::layer_of(const FetchForm& form, const TextureLevel& level, uint32_t layer) const {
  if (!is_layered(form.geometry)) return 0;
  const uint32_t layers = is_cube(form.geometry) ? level.depth / 6 : level.depth;
  const auto at = static_cast<int32_t>(layer);
  return layers == 0 || at < 0 ? 0 : std::min(layer, layers - 1);
}

void Sampler::find_texels(const FetchForm& form, const TextureLevel& level, const Coordinates& coordinates, bool linear,
                          AxisTexels (&at)[3], uint32_t* plane) const {
  const uint32_t sides[3] = {level.width, level.height, level.depth};
  *plane = layer_of(form, level, coordinates.layer);
  if (is_cube(form.geometry)) {
    const FacePoint point = face_point(coordinates.at);
    *plane = std::min(*plane * 6 + point.face, level.depth - 1);
    at[0] = axis_texels(AddressMode::kClamp, true, linear, point.s, level.width);
    at[1] = axis_texels(AddressMode::kClamp, true, linear, point.t, level.height);
    return;
  }
  for (uint32_t i = 0; i < dimensions(form.geometry); ++i) {
    if (form.integers) {
      const int32_t one = address(state_.address[i], coordinates.texel[i], sides[i]);
      at[i] = {one, one, 0};
    } else {
      at[i] = axis_texels(state_.address[i], state_.normalized_coordinates, linear, coordinates.at[i], sides[i]);
    }
  }
}

// The sum of the corners by their weights.
template <uint32_t kAxes>
Words Sampler::blend(const TextureLevel& level, const AxisTexels (&at)[3], uint32_t plane) const {
  Four sum{};
  std::array<uint32_t, 3> seconds{};
  for (uint32_t i = 0; i < kAxes; ++i) seconds[i] = static_cast<uint32_t>(at[i].weight * kSteps);
  const std::array<uint32_t, 8> steps = corner_steps(kAxes, seconds);
#pragma GCC unroll 8
  for (uint32_t corner = 0; corner < 1u << kAxes; ++corner) {
    if (steps[corner] == 0) continue;
    int32_t where[3] = {0, 0, static_cast<int32_t>(plane)};
    for (uint32_t i = 0; i < kAxes; ++i) where[i] = corner >> i & 1 ? at[i].second : at[i].first;
    const float weight = static_cast<float>(steps[corner]) / kSteps;
    const Words words = texel(level, where[0], where[1], where[2]);
    sum += weight * (state_.float_results() ? std::bit_cast<Four>(words) : floats_of(words));
  }
  return state_.float_results() ? std::bit_cast<Words>(sum) : rounded(sum);
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
      corner_steps(2, {static_cast<uint32_t>(x & 255), static_cast<uint32_t>(y & 255)});
  float sum[4] = {};
  for (int corner = 0; corner < 4; ++corner) {
    if (steps[corner] == 0) continue;
    const float weight = static_cast<float>(steps[corner]) / kSteps;
    const Words words = cube_texel(level, cube, point.face, (x >> 8) + (corner & 1), (y >> 8) + (corner >> 1));
    for (size_t i = 0; i < 4; ++i) sum[i] += weight * float_of(words[i]);
  }
  return {bits_of(sum[0]), bits_of(sum[1]), bits_of(sum[2]), bits_of(sum[3])};
}

Words Sampler::sample(const FetchForm& form, uint32_t number, const Coordinates& coordinates) const {
  const TextureLevel& level = state_.levels[number];
  const bool linear = state_.filters() && !form.integers;
  if (linear && state_.seamless && is_cube(form.geometry) && state_.float_results()) {
    return blend_seamless(level, face_point(coordinates.at), layer_of(form, level, coordinates.layer));
  }
  AxisTexels at[3];
  uint32_t plane = 0;
  find_texels(form, level, coordinates, linear, at, &plane);
  return take(level, is_cube(form.geometry) ? 2 : dimensions(form.geometry), linear, at, plane);
}

Words Sampler::take(const TextureLevel& level, uint32_t axes, bool linear, const AxisTexels (&at)[3],
                    uint32_t plane) const {
  if (linear && axes == 1) return blend<1>(level, at, plane);
  if (linear) return axes == 2 ? blend<2>(level, at, plane) : blend<3>(level, at, plane);
  return texel(level, at[0].first, axes > 1 ? at[1].first : 0, axes > 2 ? at[2].first : static_cast<int32_t>(plane));
}

// One component of the four texels that a linear filter would take.
Words Sampler::gather(const FetchForm& form, const Coordinates& coordinates) const {
  const TextureLevel& level = state_.levels[0];
  AxisTexels at[3];
  uint32_t plane = 0;
  find_texels(form, level, coordinates, true, at, &plane);
  const auto component = [&](int32_t x, int32_t y) { return texel(level, x, y, plane)[form.gather - 1]; };
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
  level = std::min(std::max(level + state_.level_bias, state_.level_least), state_.level_most);
  return std::isnan(level) ? 0 : std::clamp(level, 0.0f, static_cast<float>(state_.level_count - 1));
}

// An H200 filters -128/127 as it is: what comes out of the filter is cut off, not what goes in.
Words Sampler::cut_off(Words words) const {
  if (!state_.normalized_values || state_.kind != TexelKind::kSigned) return words;
  for (uint32_t& word : words) word = bits_of(std::max(float_of(word), -1.0f));
  return words;
}

Words Sampler::fetch(const FetchForm& form, const Coordinates& coordinates, const std::array<float, 6>& more) const {
  return cut_off(filtered(form, coordinates, more));
}

bool Sampler::fetch_all(const FetchForm& form, uint32_t mask, const uint32_t* words, uint32_t* out) const {
  const bool base = form.level == LevelMode::kBase || state_.level_count == 1;
  if (!base || form.integers || form.gather || is_cube(form.geometry) || state_.linear_memory) return false;
  const TextureLevel& level = state_.levels[0];
  const uint32_t sides[] = {level.width, level.height, level.depth}, axes = dimensions(form.geometry);
  const bool linear = state_.filters(), layered = is_layered(form.geometry);
  LaneAxis at[3];
  for (uint32_t i = 0; i < axes; ++i) {
    axis_of_lanes(state_.address[i], state_.normalized_coordinates, linear, words + kWarpLanes * (i + layered),
                  sides[i], &at[i]);
  }
  if (state_.kind == TexelKind::kFloat && state_.channel_bytes == 4 && state_.in_window && !layered) {
    floats_of_lanes(state_, axes, linear, mask, at, out);
    return true;
  }
  for (; mask; mask &= mask - 1) {
    const int l = __builtin_ctz(mask);
    AxisTexels own[3];
    for (uint32_t i = 0; i < axes; ++i)
      own[i] = {at[i].first[l], at[i].second[l], static_cast<float>(at[i].steps[l]) / kSteps};
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
  if (form.level == LevelMode::kBase || state_.level_count == 1) return sample(form, 0, coordinates);
  if (form.integers && form.level == LevelMode::kExplicit) {  // the level is a whole number, too
    const auto number = std::bit_cast<int32_t>(more[0]);
    return sample(form, std::clamp<int32_t>(number, 0, static_cast<int32_t>(state_.level_count) - 1), coordinates);
  }
  const float level = level_of(form, more);
  if (!state_.mip_linear || !state_.float_results()) {
    return sample(form, static_cast<uint32_t>(level + 0.5f), coordinates);
  }
  const auto steps = static_cast<uint32_t>(level * kSteps + 0.5f);
  Words first = sample(form, steps >> 8, coordinates);
  const float weight = static_cast<float>(steps & 255) / kSteps;
  if (weight == 0) return first;
  const Words second = sample(form, (steps >> 8) + 1, coordinates);
  for (size_t i = 0; i < 4; ++i) first[i] = bits_of((1 - weight) * float_of(first[i]) + weight * float_of(second[i]));
  return first;
}

}  // namespace bandsaw::soft
