// What a process's chunks of device memory count, on the device and in host memory, against what its virtual GPU may
// have there, and which of them lie where.
#pragma once

#include <atomic>
#include <functional>
#include <mutex>

#include "backend/runner/execution/clock.h"
#include "backend/runner/memory/usage_page_view.h"
#include "memory/swap/book.h"
#include "memory/swap/chunks.h"
#include "memory/swap/exchange.h"

namespace bandsaw::runner {

inline constexpr uint64_t kMapUnit = 2u << 20;  // of devices

// As counters have it.
inline uint64_t nanoseconds(Clock::Point time) {
  return static_cast<uint64_t>(std::chrono::duration_cast<std::chrono::nanoseconds>(time.time_since_epoch()).count());
}

// Thread-safe.
class ChunkBook final : public swap::Book {
 public:
  // Others that are asked are woken again after this.
  static constexpr std::chrono::milliseconds kAsksAgain{2};

  // Both outlive this.
  ChunkBook(UsagePageView* page, const Clock* clock) : page_(*page), clock_(*clock) {}
  // Has the other runners of this virtual GPU look at what they are asked for.
  void set_ask(std::function<void()> ask) { ask_ = std::move(ask); }
  void ask() const {
    if (ask_) ask_();
  }

  bool any() const { return any_.load(std::memory_order_relaxed); }
  // Reserves memory on the device for what can lie nowhere else (above 0), or gives it back. Where others of the
  // virtual GPU have moved into that room, waits until they have made some. False: there is none.
  bool charge_fixed(int64_t bytes);
  // Kept free for what has to lie on the device, and as temporal swap space while chunks change places.
  uint64_t headroom() const;
  // Room for chunks beside that.
  uint64_t free_room() const;

  // The table of chunks, with the lock that guards it held: none of this book's methods may be called meanwhile.
  template <typename Use>
  auto with_chunks(Use&& use) {
    std::lock_guard lock(mutex_);
    return std::forward<Use>(use)(chunks_);
  }
  // `apart`: it has left, and nothing is at its address.
  void moved(uint64_t address, bool to_device, bool apart);
  // These were apart, and are mapped for what may reach them.
  void reached(const std::vector<uint64_t>& chunks);

  uint64_t chunk_bytes() const override;
  bool keep(int64_t bytes) override { return page_.keep(bytes); }
  void made(uint64_t bytes) override { count(page_.slot().swap_made, bytes); }
  bool charge(int64_t bytes, bool on_device) override;
  bool charge_move(uint64_t bytes, bool to_device) override;
  void exchanged(uint64_t bytes) override;
  void add(uint64_t allocation, uint64_t address, uint64_t bytes, bool on_device) override;
  void remove(uint64_t address) override;
  void pin(uint64_t address) override;

 private:
  void changed();  // with mutex_

  UsagePageView& page_;
  const Clock& clock_;
  std::function<void()> ask_;
  std::atomic<bool> any_{false};
  std::mutex mutex_;
  swap::Chunks chunks_;  // guarded by mutex_
  std::mutex fixed_;     // one asks at a time for what can lie nowhere else
};

}  // namespace bandsaw::runner
