// The gate that all work for the GPU passes: may this virtual GPU use the engine now?
//
// Work is gathered into time slices: short kernels up to about a quantum of GPU time, a long kernel by itself.
//   begins   when the gate is open, or when the arbiter grants the time slice (backend/control/gate_link.h)
//   closes   when it is full, or when nothing more comes: no more work is put into it
//   ends     when the device has done all of it; its measured time is then charged
// Other processes of this virtual GPU can write the grant page too. What is read there decides only how long to wait
// and how large time slices are.
//
// Threads: the record loop calls every method. Time slices end on the device's threads.
#pragma once

#include <algorithm>
#include <array>
#include <chrono>
#include <optional>

#include "backend/control/gate_link.h"
#include "backend/device/device.h"
#include "backend/runner/execution/clock.h"
#include "backend/runner/execution/issue_times.h"
#include "backend/runner/execution/keep_trial.h"
#include "backend/runner/execution/launch_times.h"
#include "backend/runner/execution/step_times.h"
#include "backend/runner/execution/stream_depths.h"
#include "backend/runner/execution/stream_eras.h"
#include "memory/base/unique_fd.h"

namespace bandsaw::runner {

// What the arbiter planned for the time slice that it granted. Zeros: the runner chooses.
struct GateAnswer {
  bool planned = false;
  uint64_t blocks = 0;    // of the next grid slice
  uint32_t resident = 0;  // persistent blocks on each SM
};

class GateView {
 public:
  using Ended = std::function<void(uint64_t busy_ns)>;

  // `clock` outlives this.
  explicit GateView(const Clock* clock = &Clock::system());
  GateView(const GateView&) = delete;

  // A descriptor that becomes readable when one of its time slices ends while listen() is on.
  int wake() const { return wake_.get(); }
  void listen(bool on) { listens_ = on; }
  // Call before the first record; without it, all work passes. `grant_page` outlives this and the device.
  void connect(GrantPage* grant_page, uint32_t slot, UniqueFd doorbell);
  void set_device(Device* device) { device_ = device; }
  // Has the arbiter look at the usage page, whether gates hold or not.
  void call_arbiter();
  // A client of MPS: others run beside it, and what that costs it is written to the gates.
  void set_beside_others() { beside_others_ = true; }
  // enter_launch() is to be called rather than enter().
  bool counts_launches() const { return grant_page_ && (beside_others_ || is_wide_open(kCompute)); }

  // Call before putting work of this many units on the engine. A unit is a launch, or 64 KiB of a copy. `stream`: of
  // work for the compute engine, as LaunchId::stream; 0: not known.
  // False: not now. The caller must call again later: a grant that nobody takes keeps the engine from others.
  bool enter(unsigned engine, uint64_t units, uint64_t stream = 0);
  // As enter, for a launch, a graph, a fill or a copy within the device where counts_launches(). At a gate that is wide
  // open a time slice that holds nothing else is charged what these take by themselves, as far as that is known, if it
  // was measured to take longer. Some are time slices of their own for this; call launched() when it is on the device,
  // or was refused. `part`: of the device, that it uses at most while others run beside it. It is charged for that.
  bool enter_launch(const LaunchId& id, double part = 1, uint64_t units = 1);
  void launched(bool success);
  // As enter, for work that is a time slice of its own: a grid slice, a piece of a copy. `id`: of a grid slice, so that
  // a client of MPS learns what it takes.
  bool enter_alone(unsigned engine, uint64_t units = 1, uint64_t stream = 0, const std::optional<LaunchId>& id = {});
  // For work without which nothing on the engine would ever end: it does not wait. It is charged like other work.
  void enter_unasked(unsigned engine);
  // Of what entered last, so many units are not put on the engine after all; they will enter again.
  void take_back(unsigned engine, uint64_t units);
  // Closes the time slice. `done` is called when the device has done its work, or when that work will not be done.
  void leave(unsigned engine, Ended done);
  // The last enter returned false, and the word that it waits for has not changed since.
  bool waits(unsigned engine) const { return is_waiting(engine_states_[engine]); }
  // What it waits for is the end of time slices of some streams: work of others may enter.
  bool lets_streams_in(unsigned engine) const {
    const EngineState& state = engine_states_[engine];
    return engine == kCompute && state.wait_word == &state.in_flight && state.wait_seen < state.waits_below.of_all;
  }
  // Whether to call enter() for work of the stream.
  bool may_enter(unsigned engine, uint64_t stream) const {
    return !waits(engine) ||
           (lets_streams_in(engine) && stream_depths_.of(stream) < engine_states_[engine].waits_below.of_stream);
  }
  // After enter returned false: sleeps until it may return true for one of the engines, at most for `most`.
  void wait(std::chrono::nanoseconds most);
  // The arbiter has yet to answer: others have the engine. (The other reason to wait: enough of this process is on it.)
  bool kept_out() const {
    return std::any_of(engine_states_.begin(), engine_states_.end(), [](const EngineState& l) { return l.asking; });
  }
  // Time slices begin without asking.
  bool is_open(unsigned engine) const {
    return grant_page_ && grant_page_->gates[slot_][engine].open.load(std::memory_order_relaxed) != 0;
  }
  bool is_wide_open(unsigned engine) const {
    return grant_page_ && grant_page_->gates[slot_][engine].open.load(std::memory_order_relaxed) == kOpenWide;
  }
  // How long time slices are, as the arbiter has set it. Only with a grant page.
  uint64_t quantum_ns() const;
  // How many units take so long; 0: not known yet.
  uint64_t units_in(unsigned engine, uint64_t nanoseconds) const;
  // Others wait for the end of this runner's time slices on the engine.
  bool is_wanted(unsigned engine) const;
  // There is an arbiter, which says when others want an engine.
  bool is_governed() const { return grant_page_ && grant_page_->no_arbiter.load(std::memory_order_relaxed) == 0; }
  // The last time slice began by a grant: others want the engine too.
  bool was_granted(unsigned engine) const { return engine_states_[engine].granted; }
  // The arbiter wants no kernel to be cut, for now.
  bool is_slicing_off() const { return grant_page_ && grant_page_->slicing_off.load(std::memory_order_relaxed) != 0; }
  // Kernels whose blocks take less than this run in one piece; 0: none do.
  uint64_t uncut_block_ns() const {
    return grant_page_ ? grant_page_->uncut_block_ns.load(std::memory_order_relaxed) : 0;
  }
  // The arbiter plans: call describe() before asking for a time slice for a long kernel.
  bool is_planned(unsigned engine) const;
  // The arbiter plans, though the gate may stand open.
  bool has_plans() const { return is_governed() && grant_page_->planned.load(std::memory_order_relaxed) != 0; }
  // Says which kernel the next ask is for; at an open gate, which one begins. A descriptor with call 0 withdraws it.
  void describe(unsigned engine, const KernelDescriptor& descriptor);
  // Says what the next ask's short work needs, unless an ask waits.
  void describe_short_work(unsigned engine, const KernelDescriptor& descriptor);
  // Says how far the kernel on the engine has come. Does nothing while an ask waits, whose descriptor has the place.
  void report(unsigned engine, const KernelDescriptor& descriptor);
  // What the arbiter planned for the work that enter_alone let in last.
  GateAnswer answer(unsigned engine) const;
  uint32_t planned_resident(unsigned engine) const;
  // SMs that the kernel is to leave.
  uint32_t wanted_sms(unsigned engine) const;
  // A word that some enter waits for has changed. Returns true once for each change.
  bool moved();
  // For a process whose work will not be done: takes the grants that it asked for and gives them back. True: some asks
  // have no grant yet, call again.
  bool settle();
  // Nothing more comes for now: closes all time slices.
  void pause();
  // The program waits for its own work: closes the time slices at closed gates, so that others get the engine as soon
  // as that work is done.
  void rest();
  // Nothing has come for a moment.
  void quiet() { looks_ = keeps_engine_.load(std::memory_order_relaxed) && device_->keep_behind(); }
  // How long the record loop may sleep until it calls quiet() again: while others have the engine, what keeps it cannot
  // come behind the work, and once it is back that is to be soon.
  std::chrono::nanoseconds longest_sleep() const { return looks_ ? kLook : std::chrono::nanoseconds::max(); }

 private:
  static constexpr std::chrono::microseconds kLook{100};

  struct TimeSlice {
    bool begun = false;
    bool counted = false;         // in the gate's counters; not if there was no arbiter
    bool wide = false;            // it began at a gate that stood wide open
    bool kept = false;            // the engine was kept in pauses when it began
    bool begun_by_known = false;  // its first work is a launch whose time is known, and no sample
    bool known = true;            // it holds nothing but launches whose times are known: work_ns in sum
    uint64_t known_units = 0;
    uint64_t work_ns = 0;
    uint64_t own_ns = 0;        // the same, whatever part of the device they use
    double left_to_others = 0;  // sum, over its launches, of the part of the device that others may use meanwhile
    StreamSet streams{};        // of compute work, as the next
    uint64_t era = 0;           // StreamEras
    bool alone = false;         // no other program had the device when it began
    bool may_learn = false;     // as may_learn(), when it began
    std::optional<LaunchId> sample{};  // it holds nothing but this launch, whose time is to be learnt
    bool sample_waited = true;         // Device::time_slice_waits, when that had been issued
    uint64_t units = 0, limit = 0;
    Clock::Point since;
  };
  // Time slices in flight: of a stream, and of all where that stream has few. As a rule the arbiter bounds them.
  struct Depth {
    uint32_t of_stream = ~0u, of_all = ~0u;
  };
  struct EngineState {
    TimeSlice slice;
    std::atomic<uint64_t> proven{1};                     // units of the largest time slice that ended lately
    std::atomic<uint64_t> unit_ps{0};                    // what a unit takes, in picoseconds; 0: not known yet
    std::atomic<bool> unmeasured{false};                 // a time slice was said to have taken no time
    std::atomic<uint32_t> in_flight{0};                  // time slices; a futex word
    std::atomic<Clock::Point> ended_at{Clock::Point{}};  // of the last time slice
    bool asking = false;                                 // the arbiter has not answered yet
    bool granted = false;                                // the last time slice began by a grant
    bool in_time = true;  // the last work for a time slice came before its quantum was over
    // The word that the last enter waits for, and the value that it saw; null: it returned true.
    std::atomic<uint32_t>* wait_word = nullptr;
    uint32_t wait_seen = 0;
    Depth waits_below;  // where that is the end of time slices
  };

  static bool is_waiting(const EngineState& state) {
    return state.wait_word && state.wait_word->load(std::memory_order_relaxed) == state.wait_seen;
  }

  // What enters; `known_ns` is 0 where that is not known.
  struct Work {
    uint64_t units = 1, known_ns = 0, stream = 0;
  };
  bool join(unsigned engine, const Work& work);
  bool holds_graph(const TimeSlice& slice, const Work& work) const;
  bool begin_alone(unsigned engine, const Work& work);
  void note_other_work(unsigned engine);
  void note_part(const LaunchId& id);
  void note_stream(uint64_t stream);
  bool begin(unsigned engine, const Work& work, bool own_time_slice);
  void start(unsigned engine, const TimeSlice& slice);
  void close(unsigned engine, Ended also = nullptr);
  bool may_join(EngineState& state, uint64_t stream);
  Depth depth(const EngineState& state, const Gate& gate, bool own_time_slice) const;
  bool has_room(EngineState& state, const Depth& depth, uint64_t stream, bool joins) const;
  bool permitted(Gate& gate);
  bool granted(EngineState& state, Gate& gate);
  static void learn(EngineState& state, uint64_t units, uint64_t busy_ns);
  static void prove(EngineState& state, uint64_t units);
  void learn_sample(const TimeSlice& slice, uint64_t busy_ns);
  void note_beside(const TimeSlice& slice, uint64_t busy_ns);
  bool may_learn() const;
  void keep_engine();
  Keep keeps_on();
  void note_kept(const TimeSlice& slice, uint64_t busy_ns);
  void note_step(Clock::Point now, bool after_pause);
  void note_step_within();
  void let_engine_go();
  void learn_gaps(const TimeSlice& slice, uint64_t busy_ns);
  uint64_t own_time(const TimeSlice& slice, uint64_t busy_ns);
  bool is_alone() const { return grant_page_->gates[slot_][kCompute].no_waiters.load(std::memory_order_relaxed) != 0; }
  bool siblings_work() const;
  bool has_turns() const;
  bool is_known_by_launches() const;
  static uint64_t used(const TimeSlice& slice, uint64_t busy_ns);
  void note_pause(unsigned engine);
  void note_issue(Clock::Point now, bool rested);
  bool seen_over() const;
  uint64_t hardware_slice();
  void ended(unsigned engine, uint64_t busy_ns, uint64_t own_ns);
  uint64_t limit(const EngineState& state, const Gate& gate) const;
  uint32_t grid_slices_at_once(const EngineState& state) const;
  void ring_doorbell();
  void put_descriptor(unsigned engine, KernelDescriptor descriptor, uint32_t after);

  const Clock& clock_;
  GrantPage* grant_page_ = nullptr;
  uint32_t slot_ = 0;
  UniqueFd doorbell_;
  const UniqueFd wake_;
  std::atomic<bool> listens_{false};
  Device* device_ = nullptr;
  std::array<EngineState, kEngines> engine_states_;
  LaunchTimes launch_times_;
  bool beside_others_ = false;
  uint32_t known_in_a_row_ = 0;  // so many last time slices of compute work held nothing but known launches
  uint64_t stream_ = 0;          // where the last compute work went; 0: not known
  Clock::Point first_since_rest_{}, last_entered_{};  // of compute work
  StreamEras stream_eras_;
  StreamDepths stream_depths_;  // of compute work
  StepTimes step_times_;
  Clock::Point step_begun_{};  // of the step under way, as the next three
  std::chrono::nanoseconds step_paused_{};
  bool step_alone_ = false, step_kept_ = false;
  // What work takes alone, to what its launches do by themselves, of the last step; 0: that is not known.
  std::atomic<double> step_launches_{0};
  // Of the hardware's time slices: what was seen last, and when that was new.
  std::atomic<uint64_t> hardware_slice_ns_{0};
  std::atomic<Clock::Point> hardware_slice_since_{Clock::Point{}};
  // What time slices of known launches take where nobody else has the device, to what these launches take one by one.
  // Close to 1: the gaps between them, samples that were shorter than usual, and launches that overlap.
  std::atomic<double> gaps_{1};
  // Since the last rest: what time slices of known launches took beyond these.
  std::atomic<uint64_t> beyond_work_ns_{0};
  // The engine is kept in pauses: that counts as a time slice which holds no work.
  std::atomic<bool> keeps_engine_{false};
  KeepTrial keep_trial_;                   // of the device's thread that asks keeps_on()
  std::atomic<uint64_t> kept_done_ns_{0};  // of known launches that ended while it was kept: their time by themselves
  std::atomic<double> kept_times_{1};      // how many times as long they took, lately
  IssueTimes issue_times_;
  std::atomic<bool> issues_ahead_{false};  // by these, for the device's threads
  bool cannot_keep_ = false;
  std::atomic<int> keep_stalls_{0};
  std::atomic<int> kept_slow_{0};  // how many more time slices were slower beside the keep-alive than were not
  std::atomic<Clock::Point> kept_since_{Clock::Point{}};
  bool looks_ = false;  // as quiet() found
};

}  // namespace bandsaw::runner
