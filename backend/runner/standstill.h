// Brings the work of a process to a standstill, so that all of its memory may leave the device: records wait, and what
// was issued before ends.
//
// Work may wait for what the program does next. So records are held back for a while only; if work has not ended by
// then, they go on for a moment and are held back again, for twice as long.
#pragma once

#include <atomic>
#include <chrono>
#include <functional>
#include <memory>
#include <mutex>

#include "backend/device/device.h"
#include "backend/runner/execution/clock.h"
#include "backend/runner/execution/gate.h"
#include "guest-driver/uapi/wire_server.h"

namespace bandsaw::runner {

// begin(), end() and the two questions are for any thread; the rest is the record loop's.
class Standstill {
 public:
  // 0: nothing happens any more until end(). EBUSY: work did not end, and records go on. ECANCELED: end() came first.
  using Done = std::function<void(int error)>;

  // Both outlive this.
  Standstill(GateView* gate, const Clock* clock) : gate_(*gate), clock_(*clock) {}
  void set_device(Device* device) { device_ = device; }

  // `done` is called by the record loop, or by end(). Not while another is under way. `if_idle`: only as long as no
  // record comes; EBUSY as soon as one does.
  void begin(std::chrono::milliseconds timeout, Done done, bool if_idle = false);
  void end();
  bool wanted() const { return wanted_.load(std::memory_order_acquire); }
  bool at_rest() const { return stage_.load(std::memory_order_acquire) == Stage::kRest; }

  // Whether the record may be executed now.
  bool admits(const wire::CheckedRecord& record) const;
  // It is being executed.
  void issued(const wire::CheckedRecord& record);
  // Goes on with what begin() has asked for. `busy`: work whose first part was issued is still to be issued, or threads
  // still carry out calls. `waits`: records do. True: records that waited may go on.
  bool advance(bool busy, bool waits = false);

 private:
  enum class Stage { kNone, kHolding, kSettling, kPausing, kRest };

  void hold(Clock::Point now);
  void settle();
  bool give_way(Clock::Point now);
  void give_up();
  void answer(int error);

  GateView& gate_;
  const Clock& clock_;
  Device* device_ = nullptr;
  std::atomic<bool> wanted_{false};
  std::atomic<Stage> stage_{Stage::kNone};
  std::atomic<uint32_t> turn_{0};  // how often begin() was called
  uint32_t turn_begun_ = 0;
  std::mutex mutex_;
  Done done_;                            // guarded by mutex_
  std::chrono::milliseconds timeout_{};  // guarded by mutex_ until wanted_ says that it is set
  bool if_idle_ = false;                 // the same
  Clock::Point begun_{}, held_since_{}, paused_until_{};
  std::chrono::nanoseconds hold_for_{};
  uint64_t issued_ = 0, issued_before_ = 0;
  uint64_t seen_ = 0, seen_before_ = 0;  // records
  std::shared_ptr<std::atomic<bool>> settled_;
};

}  // namespace bandsaw::runner
