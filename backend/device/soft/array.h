// CUDA arrays of the software device: rows of texels in device memory, one after another. And what textures and
// surfaces make of the resources that programs describe. Functions here are pure but for ArrayMemory.
#pragma once

#include <cuda.h>

#include <atomic>
#include <memory>
#include <string>
#include <vector>

#include "backend/device/device.h"
#include "backend/device/soft/context.h"
#include "backend/device/soft/memory_table.h"
#include "backend/device/soft/texture.h"

namespace bandsaw::soft {

struct TexelFormat {
  TexelKind kind = TexelKind::kUnsigned;
  uint32_t channel_bytes = 1, channels = 1;
  bool normalized = false;  // CU_AD_FORMAT_UNORM_* and SNORM_*: read as 0 to 1, or -1 to 1, whatever the texture says
  uint32_t bytes() const { return channel_bytes * channels; }
};

// INVALID_VALUE for what CUDA does not have, NOT_SUPPORTED for block compression and video formats.
CUresult texel_format(uint32_t format, uint32_t channels, TexelFormat* made);

// Where an array's levels lie, as offsets into its memory.
struct ArrayLayout {
  TexelFormat format;
  std::vector<TextureLevel> levels;  // base counts from 0
  uint64_t bytes = 0;
};
// Checks what was asked for as cuArray3DCreate and cuMipmappedArrayCreate do. `why` tells people about a refusal.
CUresult lay_out(const vgpu_array& asked, ArrayLayout* layout, std::string* why);

// The device's limits of arrays, as its attributes say them.
inline constexpr uint32_t kArrayWidth1d = 131072, kArrayWidth2d = 131072, kArrayHeight2d = 65536, kArraySide3d = 16384;
inline constexpr uint32_t kArrayLayers = 2048, kArrayLayeredSide = 32768;
inline constexpr uint32_t kArrayCubeSide = 32768, kArrayCubeLayers = 2046;  // faces count as layers
inline constexpr uint32_t kMipmapSide = 32768, kLinearTexels = 1 << 28, kLinearPitch = 2097120;

// An array's or mipmapped array's memory. Given back by release(), at the latest with the object.
class ArrayMemory {
 public:
  static CUresult make(const std::shared_ptr<Memory>& memory, const ArrayLayout& layout,
                       std::shared_ptr<ArrayMemory>* made);
  ~ArrayMemory() { release(); }
  CUresult release();  // INVALID_HANDLE if that was done
  bool alive() const { return alive_; }

  const ArrayLayout layout;  // bases are addresses

 private:
  ArrayMemory(std::shared_ptr<Memory> memory, const ArrayLayout& of, uint64_t address);
  const std::shared_ptr<Memory> memory_;
  const uint64_t address_;
  std::atomic<bool> alive_{true};
};
using ArrayMemoryRef = std::shared_ptr<ArrayMemory>;

class SoftArray final : public Array {
 public:
  SoftArray(SoftContextRef in, ArrayMemoryRef of, uint32_t at_level, bool part, const vgpu_array& described)
      : context(std::move(in)), memory(std::move(of)), level(at_level), is_part(part), is(described) {}
  const SoftContextRef context;
  const ArrayMemoryRef memory;
  const uint32_t level;
  const bool is_part;  // of a mipmapped array
  const vgpu_array is;
  const TextureLevel& texels() const { return memory->layout.levels[level]; }
};

class SoftMipmap final : public Mipmap {
 public:
  SoftMipmap(SoftContextRef in, ArrayMemoryRef of, const vgpu_array& described)
      : context(std::move(in)), memory(std::move(of)), is(described) {}
  const SoftContextRef context;
  const ArrayMemoryRef memory;
  const vgpu_array is;
};

inline SoftArray& as(const ArrayRef& array) { return static_cast<SoftArray&>(*array); }
inline SoftMipmap& as(const MipmapRef& mipmap) { return static_cast<SoftMipmap&>(*mipmap); }

// A level as an array of its own.
vgpu_array level_of(const vgpu_array& mipmap, uint32_t level);

// Where a copy's end lies in an array: pointer, pitches and bytes from first to last. INVALID_VALUE: not inside of it.
struct ArrayBox {
  uint64_t address = 0, pitch = 0, plane = 0, extent = 0;
};
CUresult find_box(const SoftArray& array, const Copy& copy, const CopyEnd& end, ArrayBox* box);

// How a texture reads what its resource is (formats and levels are there already). `why` as above.
CUresult set_sampler(const vgpu_sampler& asked, TextureState* state, std::string* why);
CUresult set_view(const vgpu_view& asked, const TexelFormat& array, TextureState* state, TexelFormat* format,
                  std::string* why);
void set_texels(const TexelFormat& format, TextureState* state);
void set_levels(const ArrayLayout& layout, uint32_t first, uint32_t last, uint32_t flags, TextureState* state);

}  // namespace bandsaw::soft
