// How long the hardware's time slices of each virtual GPU are to be, so that all make the progress they were promised.
//
// The hardware serves processes that have work in turns, each for a time slice of its own at most; a process without
// work is left out, and its time goes to the others at once. So the lengths are weights, and hold for kernels of any
// length. What lengths alone cannot give back (a program that waits for its results loses its turn for as long as the
// others' time slices take) is steered: who falls behind its promise gets longer time slices, who is ahead shorter
// ones.
//
// - Progress is GPU time. Between two calls of advance(), the engine is taken to have served all processes that had
//   work in turns, each for its time slice or, if that is shorter, for what it has at a time, and to have lost what
//   switches cost: so the hardware does it (2.97 : 1 for 3 : 1). A program that waits for its results loses the rest of
//   its time slice, and waits for those of the others: the GPU's own clock does not count that wait, and when all its
//   work has ended, the program is charged by what was measured, but by no less than is certain: who had work for long
//   without a rest was served in each round, whatever it reports.
// - A program that would have the GPU nearly all the time pauses between two steps even where it is alone. Such a pause
//   is a part of its step, and counts as progress: so progress is a part of what the program does alone.
// - What the processes of a virtual GPU lose by switches from one of them to another is charged to it, as far as they
//   would lose it natively, too.
// - How much a time slice holds for a program is learnt: the state of some kernels takes longer to save and to restore
//   than that of others.
// - Every active virtual GPU is promised its fraction of the time: its share, larger by what inactive ones leave,
//   within reservation and cap. The lag is what it was promised and did not have.
// - What programs that rest had less than expected went to programs that never rest, and is charged to them. What is
//   lost at every interruption, as by cold caches, went to nobody: of that they are charged their fraction.
// - Where nobody has all of its promise (switches cost some), the loss is everybody's. Lags are bounded, so that nobody
//   is owed for what it could not use.
// - A turn is a little longer or shorter than usual if the work that a program has at a time then fills its time
//   slices. Work of several time slices has the nearest length of which it fills a whole number: with what it takes in
//   them, which is more than alone.
// - A program that pauses and has much less work than a time slice gains by shorter time slices of the others only.
//   They become as short as leaves the others their promise.
// - Where such a program pauses for less time than switches to the others and back would take, shorter time slices are
//   not enough: each of its steps would cost as many switches. If it makes clearly less progress than it was promised,
//   it is to keep the engine in its pauses. Then it fills its time slices, as programs do that never rest. Alone, a
//   step of it takes its work and its pause, or what it takes to issue that work, if that is longer.
//   While it keeps the engine, what its steps take longer than alone, at a lower clock or with cold caches, is no
//   progress, and not charged.
// - Beside others, a runner learns how long kernels take by themselves only if they are shorter than its time slices. A
//   program that rests, and whose kernels are longer and were never alone, has time slices as long as its work once,
//   until that is known. It is charged for them. One that never rests fills its time slices, and is charged by these.
// - Time slices are long, since switches cost; where one virtual GPU wants a bound on its latency, those of the others
//   together are shorter than that bound while it is active.
// - Beside a virtual GPU of a higher priority that has little work at a time, and needs less than it was promised, the
//   others' time slices are short from the beginning, and not only once it is behind.
//
// - Of the processes of one virtual GPU that differ in priority, those that have work and the highest one have what the
//   others leave of its time slices: these have short ones, so that who has little work at a time is not kept waiting.
//   What the virtual GPU has in a round does not change.
//
// Pure: no clock, threads, system calls. Calls from one thread at a time.
// Source: proportional shares with bounded lag, as BAND+ (band_plus.h); Gdev (USENIX ATC 2012), section 5.2.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <span>
#include <utility>

#include "vgpu-sched/policy/time_slice_process.h"
#include "vgpu-sched/policy/types.h"

namespace bandsaw::sched {

struct TimeSliceOptions {
  Time each = 15500 * kMicrosecond;        // a turn of all takes so long for each process that is active ...
  Time least_turn = 20 * kMillisecond;     // ... at least this, ...
  Time most_turn = 40 * kMillisecond;      // ... and at most this
  Time least = 250 * kMicrosecond;         // of a time slice, unless a bound on latency asks for less
  Time shortest = 10 * kMicrosecond;       // of one that such a bound asks for
  Time switch_cost = 170 * kMicrosecond;   // of the engine's time, by each time slice
  Time native = 2 * kMillisecond;          // a time slice of the driver's own
  Time latency_cost = 240 * kMicrosecond;  // of a bound on latency, the part that switches take
  Time lag_most = 400 * kMillisecond;      // divided by the fraction: beyond it nothing is owed
  // Between two changes of time slices, where one is off by a factor of two, and where the work of somebody fits into
  // one only before or after it.
  Time between = 250 * kMillisecond, between_large = 50 * kMillisecond, between_visits = 100 * kMillisecond;
  // The longest time slice that is there for learning, for how long it is, and when it is tried again, if in vain:
  // after twice as long each time. Else half of the time may be for learning.
  Time probe = 500 * kMillisecond, probe_for = kSecond, probe_again = 5 * kSecond, probe_last = 60 * kSecond;
  Time unlearnt_for = 3 * kSecond;  // after a cut sample, if no other comes
  Time carry = 10 * kMillisecond;   // the most that is owed to one who was inactive
  // A virtual GPU is active for so long after its last work; with little work at a time, longer: else the others' time
  // slices were long each time that it comes back.
  Time memory = 30 * kMillisecond, burst_memory = 300 * kMillisecond;
  // What those of lower priority have between two time slices of those that go first: so much together, switches
  // included; and of processes this part of what their virtual GPU has in a round, at most; at least `least` each.
  Time later_most = 2 * kMillisecond;
  int later_part = 8;
  // Who has been far behind for so long, its pauses counted as progress, is to keep the engine in them; sooner, and if
  // it is less far behind, who hardly pauses. Who rests more often all the same has longer pauses, and does not, until
  // this time is over; twice as long each time.
  Time keep_after = 2500 * kMillisecond, keep_soon = 200 * kMillisecond;
  std::uint32_t keep_rests = 50;  // in a second
  Time keep_again = 5 * kSecond, keep_last = 60 * kSecond;
  Time keep_alone = 10 * kSecond;  // after so long alone it is found out anew whether it is to
  // Logarithm of the weight, for each millisecond of lag per fraction: a little where all fill their time slices, which
  // then hold the shares by themselves.
  double steering = 0.0015, burst_steering = 0.01;
};

class TimeSliceWeights {
 public:
  explicit TimeSliceWeights(const TimeSliceOptions& options = {}) : options_(options) {}

  // What one process had on the engine at a moment.
  struct Load {
    VgpuId vgpu = 0;
    std::uint32_t process = 0;  // its number within the virtual GPU
    int priority = 0;           // among those of its virtual GPU: higher goes first
    bool busy = false;          // it has work on the engine
    Time measured = 0;          // of all its work that has ended: the sum of the times between begin and end
    Time own = 0;               // the part of `measured` that is known to hold nobody else's time
    std::uint32_t rests = 0;    // how often all its work had ended; wraps around
    Time paused = 0;            // from then until its next work; the sum
    Time issued = 0;            // from that until the last work before the next rest; the sum
    Time done = 0;  // while it keeps the engine: what its steps take alone, pauses included; the sum. 0: not known
    // How often its runner tried to learn how long its work takes, and a time slice was too short, and how often it
    // has learnt it then; they wrap around.
    std::uint32_t cut_samples = 0, learnt = 0;
  };

  // `latency`: the bound on the wait of its short work; 0: none.
  void set(VgpuId vgpu, const Share& share, Time latency);
  void remove(VgpuId vgpu);

  // `loads`: all processes that there are. The time since the last call counts as that of those with work.
  void advance(Time now, std::span<const Load> loads);

  // Of each of its active processes, from now on; of those that go first, where they differ in priority.
  Time slice(VgpuId vgpu) const;
  // Of one of them.
  Time slice(VgpuId vgpu, std::uint32_t process) const;
  // Some virtual GPU has processes with work that go after others of its own.
  bool orders_processes() const;
  // GPU time that it had, in sum.
  Time used(VgpuId vgpu) const;
  // It is to keep the engine also while it has no work, until its time slice is over.
  bool keeps(VgpuId vgpu) const;
  // False: its cap lets it have nothing for now.
  bool may_run(VgpuId vgpu) const;
  // Virtual GPUs that are active now.
  int active() const;
  // Their processes that are active.
  int active_processes() const;

  // What a bound on the latency of this one has cost the others, in ns of the engine's time, in sum. An estimate: time
  // slices that the bound has made shorter mean more switches in the same time, and each switch costs
  // TimeSliceOptions::switch_cost.
  Time latency_cost(VgpuId vgpu) const;

 private:
  struct Lengths {
    Time first = 0;
    Time later = 0;  // of processes that go after others of their virtual GPU; 0: there are none
    bool operator==(const Lengths&) const = default;
    Time of_later() const { return later == 0 ? first : later; }
  };

  struct Entry {
    Share share;
    Time latency = 0;
    double fraction = 0;  // promised, of the engine's time; 0 while inactive
    double lag = 0;       // ns
    double used = 0;      // ns
    double cost = 0;      // ns that its latency bound has cost the others
    double tokens = 0;    // ns that its cap leaves
    Time last_busy = -kLongest;
    std::map<std::uint32_t, TimeSliceProcess> processes;
    int active_processes = 1;
    int later_processes = 0;  // of these, those that go after others of its own
    Time slice = 2 * kMillisecond, later_slice = slice;

    Time slice_of(const TimeSliceProcess& process) const { return process.has_later ? later_slice : slice; }
    Time probed_at = -kLongest;    // when its last time slices for learning began,
    Time probe_until = -kLongest;  // and until when they last
    std::uint32_t probes = 0;
    bool keeps = false;            // it is to keep the engine in its pauses
    Time keep_from = -kLongest;    // since then it does, or not before then
    Time kept_since = 0;           // while it does
    double behind = 0;             // ns: of what it does alone, less than clearly too little
    Time behind_since = 0;         // since when that is much, while it does not
    Time beside_at = -kLongest;    // while it does: when others were there last
    std::uint32_t keep_rests = 0;  // while it does: rests in the second from keep_from on
    std::uint32_t keep_fails = 0;  // how often it was given up
    double own = 0;                // ns of known launches since the last call of advance()
    double rate = 0;               // of these in a ns, lately
    double rate_before = 0;        // while it does: what `rate` was when it began to; 0: that is not known
    Time unbounded = 0;            // what `slice` would be without the bounds of others, where these make it shorter
    bool active = false;
  };

  double settle(std::span<const Load> loads);
  void serve(double span);
  static void charge(Entry& entry, double time);
  double switches_within(const Entry& entry) const;
  double switches_of_one(int processes) const;
  double go_ahead(double span, double visits);
  double rested(Entry& entry, TimeSliceProcess& process, std::uint32_t rests);
  double unresting_fraction() const;
  static void pause(Entry& entry, TimeSliceProcess& process, Time paused);
  void note(std::span<const Load> loads);
  void forget_keep(Entry& entry);
  void order_processes(Entry& entry) const;
  bool goes_on(const TimeSliceProcess& process) const;
  void share_out();
  double common_lag() const;
  bool works(const TimeSliceProcess& process) const;
  bool is_bursty(const Entry& entry) const;
  bool has_bursty() const;
  void settle_lags();
  void each_burst(const std::function<double(const Entry&)>& part,
                  const std::function<void(double burst, double part)>& use) const;
  double fitting(double turn, const std::function<double(const Entry&)>& part) const;
  bool fills_slices(const TimeSliceProcess& process) const;
  Time filled(Time slice, const Entry& entry) const;
  void fit_slices();
  Lengths divided(Time whole, const Entry& entry) const;
  Time probing(Entry& entry);
  void fit_keeps();
  void review_keep(Entry& entry, bool others);
  void note_rates(double span);
  bool had_more_before(const Entry& entry) const;
  bool is_hardly_idle(const Entry& entry) const;
  bool loses_by_switches(const Entry& entry) const;
  double most_behind(const Entry& entry) const { return entry.fraction * static_cast<double>(options_.lag_most); }
  bool others_have_theirs(const Entry& entry) const;
  double too_little(const Entry& entry) const;
  bool gains_by_keeping(const Entry& entry) const;
  void change_slices(const std::map<VgpuId, Lengths>& wanted);
  bool is_ordered_anew(const std::pair<const VgpuId, Lengths>& wanted) const;
  Time whole_round();
  bool changes_visits(const std::map<VgpuId, Lengths>& wanted) const;
  bool needs_little(const Entry& entry) const;
  Time longest_wait(const Entry& entry, const Entry& beside) const;
  Time bounded(Time slice, const Entry& entry) const;
  Entry* tightest();
  void count_cost(double span);

  TimeSliceOptions options_;
  std::map<VgpuId, Entry> entries_;
  std::map<VgpuId, Lengths> changed_;  // to what time slices were changed last, and whose
  Time changed_at_ = -kLongest;
  Time shared_since_ = 0;  // as now: the same ones are active, with the same shares, and the same ones keep the engine
  Time now_ = 0;
  double left_ = 0;  // ns that those who rested were charged and did not have; below 0: had, and were not charged
};

}  // namespace bandsaw::sched
