// Words of host memory that the GPU writes when a stream has come so far. Looking at one costs nothing; to ask the
// driver whether a stream is done costs about a microsecond, as much as the wait has left to last.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <optional>

#include "backend/device/cuda/pinned.h"
#include "backend/device/cuda/spin_lock.h"

namespace bandsaw::cuda {

// Thread-safe.
class Marks {
 public:
  class Mark {
   public:
    // Also the end of a wait: all that the GPU wrote before is there. Never comes if work on the stream failed.
    bool reached() const {
      return static_cast<int32_t>(word_->load(std::memory_order_acquire) - value_) >= 0;  // a later one may be there
    }

   private:
    friend class Marks;
    Mark(const std::atomic<uint32_t>* word, uint32_t value) : word_(word), value_(value) {}
    const std::atomic<uint32_t>* word_;
    uint32_t value_;
  };

  Marks(DriverRef driver, Pinned* pinned);
  ~Marks();

  // Behind all that was put on the stream, which does not capture and whose context is current. None: too many are
  // under way, or the driver will not; then it has to be asked.
  std::optional<Mark> put(CUstream stream);

 private:
  static constexpr size_t kWords = 256;

  const DriverRef driver_;
  Pinned* const pinned_;
  std::byte* const slot_;  // null: there was none
  SpinLock lock_;
  std::array<uint32_t, kWords> last_{};  // guarded by lock_: what was to be written there
  size_t next_ = 0;                      // guarded by lock_
};

}  // namespace bandsaw::cuda
