// What the handles of textures and surfaces stand for, as running kernels look at them, and the table that kernels find
// them in. Compiled code knows neither: its helpers read both.
#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <memory>
#include <mutex>
#include <type_traits>
#include <vector>

namespace bandsaw::soft {

enum class TexelKind : uint32_t { kUnsigned, kSigned, kFloat };
enum class AddressMode : uint32_t { kWrap, kClamp, kMirror, kBorder };  // values are CUaddress_mode

inline constexpr uint32_t kTextureLevels = 18;  // of a mipmapped array: 131072 can be halved 17 times

// One level in memory. Sides are at least 1; `depth` also counts layers and faces of cubes.
struct TextureLevel {
  uint64_t base = 0;   // address in the window, or the guest's address of registered host memory
  uint64_t pitch = 0;  // bytes from row to row
  uint64_t plane = 0;  // bytes from plane to plane
  uint32_t width = 1, height = 1, depth = 1;
  uint32_t reserved = 0;
};

struct TextureState {
  TexelKind kind = TexelKind::kUnsigned;
  uint32_t channel_bytes = 1, channels = 1;
  uint32_t normalized_values = 0;  // integers are read as 0 to 1, or -1 to 1
  uint32_t srgb = 0;
  uint32_t surface = 0;  // of a surface: only the texels count
  uint32_t linear_memory = 0;
  uint32_t in_window = 1;  // 0: each access asks for the address
  uint32_t layered = 0, cube = 0, mipmapped = 0;
  uint32_t seamless = 0;  // a cube's filter goes on over the edges of its faces
  uint32_t normalized_coordinates = 0;
  uint32_t filter_linear = 0, mip_linear = 0;
  std::array<AddressMode, 3> address{AddressMode::kClamp, AddressMode::kClamp, AddressMode::kClamp};
  float level_bias = 0, level_least = 0, level_most = 0;
  std::array<uint32_t, 4> border{};  // as the result has it: bits of floats, or integers
  uint32_t level_count = 1;
  std::array<TextureLevel, kTextureLevels> levels;

  uint32_t texel_bytes() const { return channel_bytes * channels; }
  bool decodes(uint32_t channel) const { return srgb && channel < (channels == 4 ? 3 : 1); }
  bool float_results() const { return kind == TexelKind::kFloat || normalized_values; }
  // Integers of one or two bytes are filtered as well, and come out rounded; larger ones never.
  bool filters() const { return filter_linear && (float_results() || channel_bytes < 4); }
};
static_assert(std::is_trivially_copyable_v<TextureState> && sizeof(TextureState) % 8 == 0);
static_assert(offsetof(TextureState, levels) % 8 == 0 && sizeof(TextureLevel) % 8 == 0);

// A context's textures and surfaces by handle. A handle is never given out twice. One that was removed can be read
// until its place is given to another one, and the one that was removed first is given first: programs launch kernels
// with textures that they have destroyed (COLMAP does), and a GPU has them then, too. add() and remove() from any
// thread; read() too, without a lock, also while its place is being filled.
class TextureTable {
 public:
  static constexpr uint32_t kChunk = 64;
  TextureTable() = default;
  ~TextureTable();
  TextureTable(const TextureTable&) = delete;
  TextureTable& operator=(const TextureTable&) = delete;

  // 0: there are too many, or there is no memory.
  uint64_t add(const TextureState& state);
  // The same with a handle that another table has given. 0: that is in use here, too.
  uint64_t add_at(uint64_t handle, const TextureState& state);
  void remove(uint64_t handle);
  // What add(), or add_at() that handle, would take beyond what it has, in bytes; 0 while there is room.
  uint64_t growth(uint64_t at = 0) const;
  // False: no such handle.
  bool read(uint64_t handle, TextureState* state) const;

 private:
  static constexpr uint32_t kChunks = 1024;
  static constexpr size_t kWords = sizeof(TextureState) / 8;
  // The lower bits of a slot's version. A handle names a slot and its version while it is in use.
  enum Phase : uint32_t { kFilling = 0, kInUse = 1, kRemoved = 2, kPhases = 3 };
  struct Slot {
    std::atomic<uint32_t> version{kFilling};  // how often it was filled, four times, and a Phase
    std::array<std::atomic<uint64_t>, kWords> words{};
  };
  using Chunk = std::array<Slot, kChunk>;
  Slot* slot_of(uint64_t handle) const;
  // With the mutex held.
  bool grow();
  uint64_t fill(uint32_t index, const TextureState& state);

  std::array<std::atomic<Chunk*>, kChunks> chunks_{};
  mutable std::mutex mutex_;
  std::deque<uint32_t> free_;  // guarded by mutex_, as is chunk_count_
  uint32_t chunk_count_ = 0;
};

}  // namespace bandsaw::soft
