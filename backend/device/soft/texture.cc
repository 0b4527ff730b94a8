#include "backend/device/soft/texture.h"

#include <algorithm>
#include <cstring>
#include <new>

namespace bandsaw::soft {

TextureTable::~TextureTable() {
  for (auto& chunk : chunks_) delete chunk.load();
}

uint64_t TextureTable::growth(uint64_t at) const {
  std::lock_guard lock(mutex_);
  if (at == 0) return free_.empty() ? sizeof(Chunk) : 0;
  const uint32_t chunk = (static_cast<uint32_t>(at) - 1) / kChunk;
  return chunk < kChunks && chunk >= chunk_count_ ? (chunk + 1 - chunk_count_) * sizeof(Chunk) : 0;
}

bool TextureTable::grow() {
  if (chunk_count_ == kChunks) return false;
  auto* made = new (std::nothrow) Chunk;
  if (!made) return false;
  chunks_[chunk_count_].store(made, std::memory_order_release);
  for (uint32_t i = 0; i < kChunk; ++i) free_.push_back(chunk_count_ * kChunk + i);
  ++chunk_count_;
  return true;
}

uint64_t TextureTable::add(const TextureState& state) {
  std::lock_guard lock(mutex_);
  if (free_.empty() && !grow()) return 0;
  const uint32_t index = free_.front();
  free_.pop_front();
  return fill(index, state);
}

uint64_t TextureTable::add_at(uint64_t handle, const TextureState& state) {
  std::lock_guard lock(mutex_);
  const uint32_t index = static_cast<uint32_t>(handle) - 1;
  const auto version = static_cast<uint32_t>(handle >> 32);
  if (index >= kChunks * kChunk || (version & kPhases) != kInUse) return 0;
  while (index / kChunk >= chunk_count_) {
    if (!grow()) return 0;
  }
  if (std::erase(free_, index) == 0) return 0;  // another one has it
  slot_of(handle)->version.store(version - kInUse - kPhases - 1, std::memory_order_relaxed);
  return fill(index, state);
}

uint64_t TextureTable::fill(uint32_t index, const TextureState& state) {
  Slot& slot = (*chunks_[index / kChunk].load(std::memory_order_relaxed))[index % kChunk];
  const size_t used =
      offsetof(TextureState, levels) / 8 + std::min(state.level_count, kTextureLevels) * sizeof(TextureLevel) / 8;
  uint64_t words[kWords];
  std::memcpy(words, &state, sizeof words);
  const uint32_t version = (slot.version.load(std::memory_order_relaxed) | kPhases) + 1;
  slot.version.store(version | kFilling, std::memory_order_relaxed);
  // Whoever sees a later word of this slot sees the new version too.
  std::atomic_thread_fence(std::memory_order_release);
  for (size_t i = 0; i < used; ++i) slot.words[i].store(words[i], std::memory_order_relaxed);
  slot.version.store(version | kInUse, std::memory_order_release);
  return uint64_t{version | kInUse} << 32 | (index + 1);
}

void TextureTable::remove(uint64_t handle) {
  std::lock_guard lock(mutex_);
  Slot* const slot = slot_of(handle);
  const auto version = static_cast<uint32_t>(handle >> 32);
  if (!slot || (version & kPhases) != kInUse || slot->version.load(std::memory_order_relaxed) != version) return;
  slot->version.store(version - kInUse + kRemoved, std::memory_order_relaxed);
  const bool again = (version | kPhases) + 1 != 0;
  if (again) free_.push_back(static_cast<uint32_t>(handle) - 1);  // one that would begin anew is given up
}

TextureTable::Slot* TextureTable::slot_of(uint64_t handle) const {
  const uint32_t index = static_cast<uint32_t>(handle) - 1;
  if (index >= kChunks * kChunk) return nullptr;
  Chunk* const chunk = chunks_[index / kChunk].load(std::memory_order_acquire);
  return chunk ? &(*chunk)[index % kChunk] : nullptr;
}

bool TextureTable::read(uint64_t handle, TextureState* state) const {
  const Slot* const slot = slot_of(handle);
  const auto version = static_cast<uint32_t>(handle >> 32);
  const auto stands = [version](uint32_t now) { return now == version || now == version - kInUse + kRemoved; };
  if (!slot || (version & kPhases) != kInUse || !stands(slot->version.load(std::memory_order_acquire))) return false;
  constexpr size_t kHead = offsetof(TextureState, levels) / 8, kLevel = sizeof(TextureLevel) / 8;
  auto* const to = reinterpret_cast<std::byte*>(state);
  const auto take = [&](size_t first, size_t last) {
    for (size_t i = first; i < last; ++i) {
      const uint64_t word = slot->words[i].load(std::memory_order_relaxed);
      std::memcpy(to + 8 * i, &word, 8);
    }
  };
  take(0, kHead);
  take(kHead, kHead + std::min(state->level_count, kTextureLevels) * kLevel);
  std::atomic_thread_fence(std::memory_order_acquire);
  return stands(slot->version.load(std::memory_order_relaxed));
}

}  // namespace bandsaw::soft
