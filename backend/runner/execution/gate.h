// The gate that all work for the GPU passes: may this virtual GPU use the engine now?
//
// Work is gathered into time slices: short kernels to about a quantum of GPU time, a long one alone. A time slice
// begins when the arbiter's gate is open or when it grants it (backend/control/gate_link.h), ends for the program when
// it is full or nothing more comes, and is over when the device has done all of it. The memory is shared with other
// processes of this virtual GPU: what is read there decides how long to wait, and nothing else.
//
// Threads: all of it on the record loop's thread; time slices end on the device's.
#pragma once

#include <algorithm>
#include <array>
#include <chrono>

#include "backend/control/gate_link.h"
#include "backend/device/device.h"
#include "memory/base/unique_fd.h"

namespace bandsaw::runner {

// What was granted beside the leave to begin; zeros: the runner does as it likes.
struct GateAnswer {
  bool planned = false;
  uint64_t blocks = 0;
  uint32_t resident = 0;
};

class GateView {
 public:
  GateView() = default;
  GateView(const GateView&) = delete;

  // Before the first record. Without it nothing is asked. `grant_page` outlives this and the device.
  void connect(GrantPage* grant_page, uint32_t slot, UniqueFd doorbell);
  void set_device(Device* device) { device_ = device; }

  // Before work of this many units is put on the engine. False: not now; who has been told so has to ask again, or what
  // it was granted is nobody's. A unit is a launch, or 64 KiB.
  bool enter(unsigned engine, uint64_t units);
  // As enter, for work that is to be a time slice of its own, as a grid slice is.
  bool enter_alone(unsigned engine);
  // For work without which nothing on the engine would end: it waits for nobody, and is charged.
  void enter_unasked(unsigned engine);
  // The unit of work that was let in last is not done now; it will ask again.
  void cancel_grant(unsigned engine);
  // After work that ends its time slice: `done` is told too when the device has done it, or it will not be done.
  void leave(unsigned engine, TimeSliceDone done);
  // enter said no, and nothing has happened there since.
  bool waits(unsigned engine) const { return is_waiting(engine_states_[engine]); }
  // After enter said no: sleeps until it may say yes for one of the engines, but no longer than this.
  void wait(std::chrono::nanoseconds most);
  // It said no because others have the engine, not because enough of this process is on it.
  bool kept_out() const {
    return std::any_of(engine_states_.begin(), engine_states_.end(), [](const EngineState& l) { return l.asking; });
  }
  // Others wait for the end of what has begun on the engine.
  bool is_wanted(unsigned engine) const;
  // Somebody says when others want an engine.
  bool is_governed() const { return grant_page_ && grant_page_->no_arbiter.load(std::memory_order_relaxed) == 0; }
  // The time slice begun last had to be asked for: others want the engine too.
  bool was_granted(unsigned engine) const { return engine_states_[engine].granted; }
  // Kernels are not to be cut, for now.
  bool is_slicing_off() const { return grant_page_ && grant_page_->slicing_off.load(std::memory_order_relaxed) != 0; }
  // Who asks for a time slice for a long kernel is to describe it first.
  bool is_planned(unsigned engine) const;
  // What the next ask will be for; none is withdrawn.
  void describe(unsigned engine, const KernelDescriptor& descriptor);
  // How far what is on the engine has come. Passed over while an ask's descriptor stands there.
  void report(unsigned engine, const KernelDescriptor& descriptor);
  // To what enter_alone let in last.
  GateAnswer answer(unsigned engine) const;
  uint32_t planned_resident(unsigned engine) const;
  // Something has happened there since; said once.
  bool moved();
  // Of work that will not be done: takes what was asked for and gives it back. True: some of it is not granted yet.
  bool settle();
  // Nothing more comes for now: who has begun a time slice ends it.
  void pause();
  // The program waits for what it has begun: whoever else wants the engine may have it as soon as that is done.
  void rest();

 private:
  using Clock = std::chrono::steady_clock;
  struct TimeSlice {
    bool begun = false;
    bool counted = false;  // in the gate's counters: there was an arbiter
    uint64_t units = 0, limit = 0;
    Clock::time_point since;
  };
  struct EngineState {
    TimeSlice slice;
    std::atomic<uint64_t> proven{1};      // units of the largest time slice that ended lately
    std::atomic<uint64_t> unit_ps{0};     // what a unit takes, in picoseconds; 0: not known yet
    std::atomic<bool> unmeasured{false};  // a time slice was said to have taken no time
    std::atomic<uint32_t> in_flight{0};   // time slices; a futex word
    bool asking = false;                  // the arbiter has not answered yet
    bool granted = false;                 // what begun last was
    bool in_time = true;                  // what came last for a time slice did so before its quantum was over
    // What enter last said no for, and what it saw there; null: it said yes.
    std::atomic<uint32_t>* wait_word = nullptr;
    uint32_t wait_seen = 0;
  };

  static bool is_waiting(const EngineState& state) {
    return state.wait_word && state.wait_word->load(std::memory_order_relaxed) == state.wait_seen;
  }

  bool begin(unsigned engine, bool own_time_slice);
  void start(unsigned engine, const TimeSlice& slice);
  void close(unsigned engine, TimeSliceDone also = nullptr);
  bool has_room(EngineState& state, const Gate& gate, bool own_time_slice);
  bool permitted(Gate& gate);
  bool granted(EngineState& state, Gate& gate);
  static void learn(EngineState& state, uint64_t units, uint64_t busy_ns);
  static void prove(EngineState& state, uint64_t units);
  void ended(unsigned engine, uint64_t busy_ns);
  uint64_t quantum_ns() const;
  uint64_t limit(const EngineState& state) const;
  uint32_t grid_slices_at_once(const EngineState& state) const;
  void ring_doorbell();
  void put_descriptor(unsigned engine, KernelDescriptor descriptor, uint32_t after);

  GrantPage* grant_page_ = nullptr;
  uint32_t slot_ = 0;
  UniqueFd doorbell_;
  Device* device_ = nullptr;
  std::array<EngineState, kGateEngines> engine_states_;
};

}  // namespace bandsaw::runner
