// Grant pages as runners that have been taken over would write them: any counters, any descriptors, at any time, under
// any policy and mode. What must hold: the arbiter comes to rest after each call, and one whose grant page is honest
// gets the engine whenever it asks, and is charged for no more than it had.
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <span>

#include "backend/vgpud/arbiter/arbiter_core.h"
#include "memory/base/log.h"
#include "tests/fuzz/input.h"
#include "tests/unit/vgpud/descriptors.h"

namespace {

using namespace bandsaw;
using Time = ArbiterCore::Time;

constexpr Time kMicrosecond = 1000, kSecond = 1'000'000'000;
constexpr uint32_t kSlots = 3;
constexpr const char* kBad[] = {"bad", "worse"};
constexpr const char* kPolicies[] = {"band+", "band", "credit", "fifo"};

void check(bool holds, int line = __builtin_LINE()) {
  if (holds) return;
  std::fprintf(stderr, "what line %d checks does not hold\n", line);
  std::abort();
}

// Sound, but for what is changed of it.
KernelDescriptor any_descriptor(Input& input) {
  const uint8_t call = input.byte(), shape = input.byte();
  KernelDescriptor descriptor = plain_descriptor(1 + call % 4, shape);
  descriptor.memory = input.number<uint16_t>();
  descriptor.variant = input.byte() % 2;
  uint32_t words[sizeof descriptor / sizeof(uint32_t)];
  std::memcpy(words, &descriptor, sizeof descriptor);
  for (int changes = input.byte() % 8; changes > 0; --changes) {
    const size_t which = input.byte() % std::size(words);
    words[which] = input.byte() % 2 ? input.number<uint32_t>() : input.byte();
  }
  std::memcpy(static_cast<void*>(&descriptor), words, sizeof descriptor);
  return descriptor;
}

class Play {
 public:
  explicit Play(Input& input) : input_(input), core_(options(input)) {
    add("good", &good_);
    for (size_t i = 0; i < std::size(kBad); ++i) add(kBad[i], &bad_[i]);
    core_.set_planning_mode(mode(), now_);
    run();
  }
  void step() {
    const size_t which = input_.byte() % std::size(kBad);
    GrantPage& grant_page = bad_[which];
    const uint32_t slot = input_.byte() % kSlots, engine = input_.byte() % kEngines;
    Gate& gate = grant_page.gates[slot][engine];
    switch (input_.byte() % 14) {
      case 0:
        gate.begun = input_.number<uint32_t>();
        break;
      case 1:
        gate.ended = input_.number<uint32_t>();
        break;
      case 2:
        gate.asked = input_.number<uint32_t>();
        break;
      case 3:
        gate.busy_ns = input_.number<uint64_t>();
        break;
      case 4:
        gate.open = gate.granted = gate.resident = input_.number<uint32_t>();  // the arbiter's own
        break;
      case 5:
        ++grant_page.generation[slot];
        break;
      case 6:
        grant_page.kernel_descriptors[slot].version = input_.number<uint32_t>();
        break;
      case 7: {
        KernelDescriptor descriptor = any_descriptor(input_);
        write_descriptor(grant_page.kernel_descriptors[slot], descriptor);
        break;
      }
      case 8: {
        KernelDescriptor descriptor = any_descriptor(input_);
        descriptor.asked = ++grant_page.gates[slot][0].asked;
        write_descriptor(grant_page.kernel_descriptors[slot], descriptor);
        break;
      }
      case 9:
        ++gate.begun;
        break;
      case 10:
        ++gate.ended;
        gate.busy_ns += input_.number<uint32_t>();
        break;
      case 11:
        return pass(input_.number<uint16_t>() * kMicrosecond);
      case 12:
        return govern(kBad[which], &grant_page);
      case 13:
        return be_good();
    }
    set_pending(grant_page, slot);
    core_.on_pending(kBad[which], now_);
    run();
  }
  // Each of its asks is answered, whatever others hold: the arbiter gives up what lasts too long.
  void finish() {
    for (int i = 0; i < 4; ++i) {
      be_good();
      for (const Time until = now_ + 60 * kSecond; asks_ && now_ < until;)
        pass(std::clamp<Time>(next_ - now_, 1, kSecond));
      check(!asks_);
    }
    for (const VgpuUse& use : core_.use()) {
      if (use.vgpu == "good" && !by_the_model_) check(use.engines[0].busy_ns <= static_cast<uint64_t>(good_for_));
    }
  }

 private:
  static ArbiterOptions options(Input& input) {
    ArbiterOptions options;
    options.policy = kPolicies[input.byte() % std::size(kPolicies)];
    options.model = input.byte() % 2 ? sched::QueueModel::kSdq : sched::QueueModel::kMrq;
    options.scheduled = input.byte() % 4 != 0;
    return options;
  }
  PlanningMode mode() {
    return static_cast<PlanningMode>(input_.byte() % (static_cast<int>(PlanningMode::kRandom) + 1));
  }
  void add(const char* name, GrantPage* grant_page) {
    EngineShares shares;
    shares.fill({.percent = 30, .reservation = 0, .cap = 100, .priority = 0});
    check(core_.add(name, shares, now_).ok());
    const Sharing sharing = input_.byte() % 2 ? Sharing::kMps : Sharing::kTimeSliced;
    by_the_model_ = by_the_model_ || (grant_page == &good_ && sharing == Sharing::kMps);
    core_.set_sharing(name, sharing);
    core_.attach(name, grant_page, now_);
  }
  // What an administrator does meanwhile.
  void govern(const char* name, GrantPage* grant_page) {
    switch (input_.byte() % 8) {
      case 0:
        core_.set_planning_mode(mode(), now_);
        break;
      case 1:
        core_.set_sharing(name, input_.byte() % 2 ? Sharing::kMps : Sharing::kTimeSliced);
        break;
      case 2:
        core_.set_sm_part(name, input_.byte() % 2 ? 0.25 : 0);
        break;
      case 3:
        core_.set_policy(kPolicies[input_.byte() % std::size(kPolicies)],
                         input_.byte() % 2 ? sched::QueueModel::kSdq : sched::QueueModel::kMrq, now_);
        break;
      case 4:
        core_.detach(name, now_);
        core_.remove(name, now_);
        add(name, grant_page);
        break;
      case 5:
        core_.set_latency(name, input_.byte() % 2 ? 250 * sched::kMicrosecond : 0);
        break;
      case 6:
        core_.set_kernel_deadline(name, input_.byte() * sched::kMillisecond);
        break;
      case 7:
        tell_groups(name);
        break;
    }
    run();
  }
  // What sessions and the thread that sets time slices say.
  void tell_groups(const char* name) {
    const uint32_t slot = input_.byte();
    switch (input_.byte() % 5) {
      case 0:
        core_.set_channel_groups(name, slot, input_.byte() % 3, now_);
        break;
      case 1:
        core_.forget_channel_groups(name, slot, now_);
        break;
      case 2:
        core_.time_slice_failed(name, slot, Status::error(input_.byte() % 2 ? ESRCH : EIO, "no"), now_);
        break;
      case 3:
        core_.time_slice_changed(name, slot, now_);
        break;
      case 4:
        core_.set_channel_groups("good", 0, 1, now_);
        by_the_model_ = true;
        break;
    }
  }
  // Asks for a time slice, or begins one that may begin; a begun one ends.
  void be_good() {
    Gate& gate = good_.gates[0][0];
    if (gate.begun != gate.ended) {
      gate.busy_ns += static_cast<uint64_t>(now_ - good_since_);
      good_for_ += now_ - good_since_;
      ++gate.ended;
    } else if (!asks_) {
      if (gate.open || good_.no_arbiter) return begin();
      ++gate.asked;
      asks_ = true;
    }
    set_pending(good_, 0);
    core_.on_pending("good", now_);
    run();
  }
  void begin() {
    asks_ = false;
    ++good_.gates[0][0].begun;
    good_since_ = now_;
  }
  void pass(Time time) {
    for (const Time until = now_ + time; now_ < until;) {
      now_ = std::min(until, std::max(next_, now_ + 1));
      run();
    }
  }
  void run() {
    for (int i = 0;; ++i) {
      next_ = core_.run(now_);
      if (next_ > now_) break;
      check(i < 1000);  // it would never sleep
    }
    (void)core_.take_time_slices();
    for (const RunnerEnd& end : core_.take_runner_ends()) check(end.vgpu != "good");
    if (asks_ && (good_.gates[0][0].granted == good_.gates[0][0].asked || good_.no_arbiter)) begin();
  }

  Input& input_;
  Time now_ = kSecond, next_ = kSecond, good_since_ = 0, good_for_ = 0;
  bool asks_ = false;
  // Hardware's time slices may have held the shares, or those of MPS by progress: what it had is estimated.
  bool by_the_model_ = false;
  GrantPage good_{}, bad_[std::size(kBad)]{};
  ArbiterCore core_;
};

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  log::silence();
  Input input(std::as_bytes(std::span(data, std::min<size_t>(size, 4096))));
  const auto play = std::make_unique<Play>(input);
  while (!input.empty()) play->step();
  play->finish();
  return 0;
}
