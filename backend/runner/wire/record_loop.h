// The thread that takes records out of the command rings and has them executed in the order of their sequence numbers.
//
// It polls while records come and a little longer; then it tells every ring that it sleeps and waits for the kick
// descriptor. A guest that publishes stores its tail, then (after a full fence) looks at host_sleeping; this side
// stores host_sleeping, then (after a full fence) looks at every tail once more: one of the two sees the other.
#pragma once

#include <poll.h>

#include <atomic>
#include <chrono>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <set>
#include <span>
#include <thread>
#include <vector>

#include "backend/runner/process.h"
#include "backend/runner/wire/command_ring.h"
#include "backend/runner/wire/early_polls.h"
#include "memory/base/unique_fd.h"

namespace bandsaw::runner {

// Thread-safe but for start and the destructor.
class RecordLoop {
 public:
  // `process` must outlive this. `kick` is an eventfd that the guest's side writes to.
  RecordLoop(Process* process, UniqueFd kick);
  // Stops the thread; records that are left stay where they are.
  ~RecordLoop();

  // Called by the loop's thread, once in each standstill: records wait for its end. Before start().
  void set_on_call_waits(std::function<void()> call_waits) { on_call_waits_ = std::move(call_waits); }
  void start();
  void add_ring(CommandRingRef ring);
  // Executes what the ring still holds, then drops it and calls `gone`, from the record loop's thread.
  void drop_ring(uint32_t id, std::function<void()> gone);
  // Records begin after this sequence number, and these come first. With the first rings, before they have any.
  void go_on(uint64_t last_seq, std::vector<AgainRecord> again);
  // Of the last record that was taken in its turn. Only at a standstill.
  uint64_t last_seq() const { return last_seq_; }
  // Looks at what the process is to do.
  void wake();
  // Records will come soon: polls for them until then. By any thread.
  void expect(std::chrono::steady_clock::time_point latest);

 private:
  using Clock = std::chrono::steady_clock;
  struct Dropped {
    uint32_t id;
    std::function<void()> gone;
    Clock::time_point deadline;
  };
  struct Commands {
    std::vector<CommandRingRef> add;
    std::vector<Dropped> drop;
    std::optional<uint64_t> last_seq;
    std::vector<AgainRecord> again;
  };

  void run();
  void take_commands();
  bool fetch(const CommandRingRef& ring);
  bool serve(const CommandRingRef& ring);
  bool serve_any();
  bool serve_again();
  bool take_polls();
  bool take_poll(const CommandRingRef& ring);
  void pass_taken();
  bool any_more() const;
  bool any_wait() const;
  void keep_room();
  bool is_wanted();
  void wait_at_gate();
  void wait_for_end();
  std::chrono::nanoseconds longest_sleep() const;
  static bool wait(std::span<pollfd> fds, std::chrono::nanoseconds most);
  bool spin(std::chrono::nanoseconds budget);
  bool poll_on();
  void sleep();
  void rest();
  void finish_drops();
  void drop(Dropped& dropped, size_t at);

  Process* const process_;
  const UniqueFd kick_, command_;
  std::atomic<bool> stop_{false}, has_commands_{false};
  std::mutex mutex_;
  Commands commands_;                  // guarded by mutex_
  std::vector<CommandRingRef> rings_;  // the thread's own, as all below
  std::vector<Dropped> dropping_;
  std::function<void()> on_call_waits_;
  bool said_call_waits_ = false;         // of this standstill
  std::atomic<bool> keeps_room_{false};  // of records that it takes
  int gate_probes_ = 0;                  // at the rings, in vain, while work waits at a gate
  size_t current_ = 0;                   // the ring that had the last record
  uint64_t last_seq_ = 0;
  std::deque<AgainRecord> again_;         // before all that is in the rings
  CommandRing* executes_from_ = nullptr;  // whose pending record is being executed
  bool polls_looked_for_ = false;         // by take_polls()
  std::set<uint64_t> taken_ahead_;        // numbers of records that take_polls() took, ahead of last_seq_
  const std::chrono::nanoseconds poll_budget_max_;
  std::chrono::nanoseconds poll_budget_;                             // how long to poll before sleeping
  std::atomic<Clock::time_point> polls_until_{Clock::time_point{}};  // at least
  std::thread thread_;
  std::optional<EarlyPolls> early_polls_;  // ends before the thread's own members
};

}  // namespace bandsaw::runner
