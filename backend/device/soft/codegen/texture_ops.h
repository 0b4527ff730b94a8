// Numbers by which compiled code tells the texture and surface helpers what to do.
#pragma once

#include <cstdint>

namespace bandsaw::soft {

enum class SurfaceBounds : uint32_t { kTrap, kClamp, kZero };

enum class TextureQuery : uint32_t {
  kWidth,
  kHeight,
  kDepth,
  kChannelType,
  kChannelOrder,
  kNormalizedCoordinates,
  kLayers,
  kLevels,
  kSamples,
  kUnnormalizedForced,
  kFilterMode,
  kAddressMode0,
  kAddressMode1,
  kAddressMode2,
  kMemoryLayout,
};

}  // namespace bandsaw::soft
