// Runners warmed ahead: making one takes longer than a guest process should wait.
#pragma once

#include <chrono>
#include <deque>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "backend/session/code_store.h"
#include "backend/session/exchange_service.h"
#include "backend/session/runner_launch_config.h"
#include "backend/session/runner_process.h"
#include "backend/session/segment_service.h"

namespace bandsaw {

inline constexpr std::chrono::milliseconds kLostTimeout{2000};

class RunnerPool : public RunnerSource {
 public:
  // `index`: of the virtual GPU.
  RunnerPool(event_base* base, RunnerProgram program, unsigned warm, uint32_t index = 0);
  ~RunnerPool() override;
  RunnerPool(const RunnerPool&) = delete;

  // Keeps some warm, soon.
  void start();
  // How runners are started from now on; warm ones that were started otherwise are replaced. Those that serve a process
  // stay as they are.
  void set_launch_config(RunnerLaunchConfig launch_config);
  // The MPS daemon of this folder has died. Its clients get the driver's error; those that still live after
  // kLostTimeout are killed.
  void end_clients(const std::string& mps);
  // The device is lost: kills what serves a process.
  void end_all();
  void take(Taken taken, uint32_t taken_bases = 0) override;
  void take_in_hold(Taken taken, uint32_t taken_bases = 0) override;
  // While held, nobody gets a runner and none is kept warm: who asks waits until it ends, for however long.
  void hold(bool held);
  std::vector<Runner*> serving() const;
  // Somebody has asked for a runner, and none was ready yet.
  bool awaited() const { return !waiters_.empty(); }
  // Called each time that a process asks for a runner, or calls one that stands still.
  void on_call(std::function<void()> call) { on_call_ = std::move(call); }
  // Called when a runner asks the others for room on the device.
  void on_asks_room(std::function<void()> asks) { on_asks_room_ = std::move(asks); }

  // kCheckpoint, and the end of each runner; set before start().
  void on_checkpoint(std::function<void(Runner*, const RunnerMessage&)> asked, std::function<void(Runner*)> reaped) {
    on_checkpoint_ = std::move(asked);
    on_reaped_ = std::move(reaped);
  }

  // Asked before each start of a runner, and before one is given to a program: 0, or how long it is too early. Whoever
  // waits for a runner then waits for as long as it takes. Before start().
  using Pace = std::function<std::chrono::nanoseconds()>;
  void set_pace(Pace of_starts, Pace of_programs) {
    start_pace_ = std::move(of_starts);
    program_pace_ = std::move(of_programs);
  }

  // What its runners' processes hand to each other and to those of other virtual GPUs.
  ExchangeService& exchange() { return exchange_; }
  // Where they find shared segments. Not owned, outlives this; before start().
  void set_segments(SegmentService* segments) { segments_ = segments; }
  // Where compiled code is kept. Not owned, outlives this; before start().
  void set_code_store(CodeStore* code_store) { code_store_ = code_store; }
  // Called each time that a runner ends unused, once failing() says why.
  void on_failing(std::function<void()> failing) { on_failing_ = std::move(failing); }

  // What the device is, as the last runner that became ready has said; null: none has.
  const vgpu_device_info* device_info() const { return device_info_ ? &*device_info_ : nullptr; }

  // It is another from now on: null until a runner is ready there.
  void forget_device() { device_info_.reset(); }

  unsigned warm() const;  // ready and not taken
  unsigned living() const { return static_cast<unsigned>(runners_.size()); }
  uint64_t started() const { return started_; }
  uint64_t failed() const { return failed_; }  // ended before they were ready
  // Why the last runners, several in a row, were of no use; empty: they were.
  std::string failing() const;

 private:
  using Clock = std::chrono::steady_clock;
  struct Entry {
    std::unique_ptr<RunnerProcess> runner;
    bool taken = false;
    bool dismissed = false;  // warm, and started otherwise than it would be now: ends unused
    uint32_t avoided = 0;    // bases of address windows that it was told to avoid
    Clock::time_point kill_at = Clock::time_point::max();  // when it is killed
    bool spare() const { return !taken && !dismissed; }
  };
  struct Waiter {
    Taken taken;
    Clock::time_point deadline;
    uint32_t taken_bases = 0;
    bool in_hold = false;
  };

  RunnerProcess::Watcher watcher();
  static bool suits(const Entry& entry, const Waiter& waiter);
  Entry* ready_for(const Waiter& waiter);
  bool startable();
  bool start_one(uint32_t taken_bases = 0);
  bool start_for_others();
  unsigned starting() const;
  bool too_early(const Pace& pace);
  void keep_warm();
  void later(long milliseconds_from_now);
  void serve();
  void reap();
  void note_failure(const std::string& why);
  void dismiss_warm();
  void kill_due();
  void refuse_waiters(const Status& why, bool only_late);
  void tick();

  event_base* base_;
  RunnerProgram program_;
  std::vector<std::string> environment_;  // the program's, before launch_config_ is applied
  RunnerLaunchConfig launch_config_;
  unsigned target_;
  bool held_ = false, warming_ = false;
  ExchangeService exchange_;
  SegmentService* segments_ = nullptr;
  CodeStore* code_store_ = nullptr;
  std::optional<vgpu_device_info> device_info_;
  std::vector<Entry> runners_;
  std::deque<Waiter> waiters_;
  EventPtr child_signal_, timer_;
  Clock::time_point not_before_{};  // no start earlier than this: the back-off after failures
  unsigned failures_in_a_row_ = 0;
  uint64_t started_ = 0, failed_ = 0;
  std::string last_failure_;
  std::function<void()> on_failing_, on_call_, on_asks_room_;
  Pace start_pace_, program_pace_;
  Clock::time_point pace_said_{};  // when it was said last that starts are too early
  std::function<void(Runner*, const RunnerMessage&)> on_checkpoint_;
  std::function<void(Runner*)> on_reaped_;
};

}  // namespace bandsaw
