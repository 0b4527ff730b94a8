// What libcuda keeps about objects whose handles the runner made. The launch path looks them up without a lock.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <utility>

#include "guest-driver/uapi/vgpu_control.h"
#include "guest-driver/uapi/wire.h"

namespace bandsaw::libcuda {

// Maps handles of one kind to a T. T has a member `uint64_t handle`. Readers take no lock; a T that was removed stays
// readable for a while (kRetired removals), so a program that races its own destroy call reads stale data, not freed
// memory. Objects are leaked at exit on purpose: the CUDA runtime calls in after static destructors.
template <typename T>
class HandleTable {
 public:
  T* find(uint64_t handle) const {
    const uint32_t index = static_cast<uint32_t>(handle);
    if (index >= kChunks * kChunk) return nullptr;
    const Chunk* chunk = chunks_[index / kChunk].load(std::memory_order_acquire);
    if (!chunk) return nullptr;
    T* object = chunk->slots[index % kChunk].load(std::memory_order_acquire);
    return object && object->handle == handle ? object : nullptr;
  }

  template <typename Handle>
  T* find(Handle* handle) const {
    return find(reinterpret_cast<uint64_t>(handle));
  }

  // Takes ownership. Returns the object in the table; nullptr if the handle's index is too large, which a sound host
  // never sends.
  T* insert(std::unique_ptr<T> object) {
    const uint32_t index = static_cast<uint32_t>(object->handle);
    if (index >= kChunks * kChunk) return nullptr;
    std::lock_guard lock(mutex_);
    Chunk* chunk = chunks_[index / kChunk].load(std::memory_order_relaxed);
    if (!chunk) {
      chunk = new Chunk{};
      chunks_[index / kChunk].store(chunk, std::memory_order_release);
    }
    T* const raw = object.release();
    T* const old = chunk->slots[index % kChunk].exchange(raw, std::memory_order_acq_rel);
    if (old) retire(old);
    return raw;
  }

  void remove(uint64_t handle) {
    std::lock_guard lock(mutex_);
    T* const object = find(handle);
    if (!object) return;
    const uint32_t index = static_cast<uint32_t>(handle);
    chunks_[index / kChunk]
        .load(std::memory_order_relaxed)
        ->slots[index % kChunk]
        .store(nullptr, std::memory_order_release);
    retire(object);
  }

  // Calls `visit` for each, under the table's lock: it must not change the table.
  template <typename Visit>
  void for_each(Visit visit) {
    std::lock_guard lock(mutex_);
    for (auto& entry : chunks_) {
      const Chunk* chunk = entry.load(std::memory_order_relaxed);
      if (!chunk) continue;
      for (const auto& slot : chunk->slots) {
        if (const T* object = slot.load(std::memory_order_relaxed)) visit(*object);
      }
    }
  }

  // Removes all for which `gone` is true.
  void remove_if(const std::function<bool(const T&)>& gone) {
    std::lock_guard lock(mutex_);
    for (auto& entry : chunks_) {
      Chunk* chunk = entry.load(std::memory_order_relaxed);
      if (!chunk) continue;
      for (auto& slot : chunk->slots) {
        T* const object = slot.load(std::memory_order_relaxed);
        if (!object || !gone(*object)) continue;
        slot.store(nullptr, std::memory_order_release);
        retire(object);
      }
    }
  }

 private:
  // The low 32 bits of a handle: its index, and above it the part of its virtual GPU.
  static constexpr uint32_t kChunk = 256;
  static constexpr uint32_t kChunks = (VGPU_WINDOW_PARTS << VGPU_HANDLE_PART_SHIFT) / kChunk;
  static constexpr size_t kRetired = 128;
  struct Chunk {
    std::atomic<T*> slots[kChunk];
  };

  void retire(T* object) {
    retired_.emplace_back(object);
    if (retired_.size() > kRetired) retired_.pop_front();
  }

  std::atomic<Chunk*> chunks_[kChunks]{};
  std::mutex mutex_;  // guards changes, and retired_
  std::deque<std::unique_ptr<T>> retired_;
};

}  // namespace bandsaw::libcuda
