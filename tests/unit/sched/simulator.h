// A GPU in virtual time: tenants that ask, engines that run one time slice after the other and never preempt, and the
// scheduler under test between them. Deterministic: the same plan and seed give the same run.
#pragma once

#include <array>
#include <deque>
#include <functional>
#include <map>
#include <queue>
#include <random>
#include <string>
#include <vector>

#include "vgpu-sched/policy/scheduler.h"

namespace bandsaw::sched {

struct Step {
  Engine engine = Engine::kCompute;
  Time shortest = kMillisecond;
  Time longest = kMillisecond;
};

inline constexpr Step kShort{Engine::kCompute, 200 * kMicrosecond, 2 * kMillisecond};
inline constexpr Step kLong{Engine::kCompute, 25 * kMillisecond, 40 * kMillisecond};

// A tenant is `streams` loops, each of which asks for one step, waits for its end, thinks, and asks for the next one.
// One stream: a program that waits for each task. Several: asynchronous launches, always another one waiting.
struct TenantPlan {
  Share share = {};
  std::vector<Step> steps = {};
  int streams = 4;
  Time think = 20 * kMicrosecond;
  Time start = 0;
  Time on = 0;  // works for so long, then rests for `off`; 0: always
  Time off = 0;
  bool estimates = false;  // tells true lengths; else none
};

struct SimulatorPlan {
  std::string policy = "band+";
  PolicyOptions options = {};
  QueueModel model = QueueModel::kMrq;
  int depth = 2;
  Time latency = 5 * kMicrosecond;  // from the grant to the work of an engine that was idle
  Time end = 10 * kSecond;
  std::uint64_t seed = 1;
  std::vector<TenantPlan> tenants = {};                                              // tenant i is virtual GPU i
  std::vector<std::pair<Time, std::function<void(Scheduler&, Time)>>> changes = {};  // done at their times
};

inline constexpr Time kBucket = 10 * kMillisecond;

struct Run {
  VgpuId vgpu;
  Engine engine;
  Time arrived, begin, end;
};

struct Errors {
  double mean = 0;  // points of the engine's time
  double max = 0;
};

class Simulator {
 public:
  explicit Simulator(SimulatorPlan plan)
      : plan_(std::move(plan)),
        scheduler_({.model = plan_.model, .depth = plan_.depth, .period = plan_.options.period},
                   [this] { return make_policy(plan_.policy, plan_.options); }),
        random_(plan_.seed) {}

  void run() {
    for (VgpuId vgpu = 0; vgpu < plan_.tenants.size(); ++vgpu) {
      const TenantPlan& tenant = plan_.tenants[vgpu];
      refused += scheduler_.add(vgpu, tenant.share, 0) != Error::kNone;
      for (int stream = 0; stream < tenant.streams; ++stream) {
        at(tenant.start + stream, [this, vgpu](Time now) { ask(vgpu, 0, now); });
      }
    }
    for (auto& [time, change] : plan_.changes) {
      at(time, [this, &change](Time now) { change(scheduler_, now); });
    }
    while (!events_.empty() && events_.top().time < plan_.end) {
      const Event event = events_.top();
      events_.pop();
      event.act(event.time);
      for (unsigned engine = 0; engine < kEngines; ++engine) pump(static_cast<Engine>(engine), event.time);
    }
  }

  // Percent of the engine that the tenant had in [from, to), whole buckets.
  double used(VgpuId vgpu, Engine engine, Time from, Time to) const {
    Time sum = 0;
    const auto found = use_.find({vgpu, engine});
    if (found == use_.end()) return 0;
    for (Time bucket = from / kBucket; bucket < to / kBucket; ++bucket) {
      if (static_cast<std::size_t>(bucket) < found->second.size()) sum += found->second[bucket];
    }
    return 100.0 * static_cast<double>(sum) / static_cast<double>(to - from);
  }

  double utilisation(Engine engine, Time from, Time to) const {
    double sum = 0;
    for (VgpuId vgpu = 0; vgpu < plan_.tenants.size(); ++vgpu) sum += used(vgpu, engine, from, to);
    return sum;
  }

  // |share - target| over all tenants with a target and all windows that lie in [from, to).
  Errors errors(const std::vector<double>& targets, Time from, Time to, Time window) const {
    Errors errors;
    int count = 0;
    for (Time begin = from; begin + window <= to; begin += window) {
      for (VgpuId vgpu = 0; vgpu < targets.size(); ++vgpu, ++count) {
        const double error = std::abs(used(vgpu, Engine::kCompute, begin, begin + window) - targets[vgpu]);
        errors.mean += error;
        errors.max = std::max(errors.max, error);
      }
    }
    errors.mean /= std::max(count, 1);
    return errors;
  }

  // The longest time that a tenant's first request waited.
  Time longest_wait(VgpuId vgpu) const {
    Time longest = 0;
    Time last = 0;
    for (const Run& one : runs) {
      if (one.vgpu != vgpu) continue;
      longest = std::max(longest, one.begin - std::max(one.arrived, last));
      last = one.end;
    }
    return longest;
  }

  std::vector<Run> runs;  // in the order of their ends
  int refused = 0;        // events that the scheduler refused

 private:
  struct Event {
    Time time;
    std::uint64_t sequence;
    std::function<void(Time)> act;
    bool operator<(const Event& other) const {
      return time != other.time ? time > other.time : sequence > other.sequence;
    }
  };
  struct Asked {
    Time arrived, length;
    std::size_t step;
  };

  void at(Time time, std::function<void(Time)> act) { events_.push({time, sequence_++, std::move(act)}); }

  void ask(VgpuId vgpu, std::size_t step, Time now) {
    const TenantPlan& tenant = plan_.tenants[vgpu];
    if (tenant.on > 0 && now >= tenant.start) {
      const Time cycle = tenant.on + tenant.off;
      const Time into = (now - tenant.start) % cycle;
      if (into >= tenant.on) return at(now + cycle - into, [=, this](Time then) { ask(vgpu, step, then); });
    }
    const Step& what = tenant.steps[step];
    const Time length = std::uniform_int_distribution<Time>(what.shortest, what.longest)(random_);
    const RequestId id = next_id_++;
    asked_[id] = {now, length, step};
    const Request request{.id = id, .vgpu = vgpu, .engine = what.engine, .estimate = tenant.estimates ? length : 0};
    refused += scheduler_.arrival(request, now) != Error::kNone;
  }

  void pump(Engine engine, Time now) {
    Answer answer;
    while ((answer = scheduler_.next(engine, now)).kind == Answer::Kind::kDispatch) start(answer.request, now);
    Time& wake = wakes_[static_cast<int>(engine)];
    if (answer.kind != Answer::Kind::kWait || wake == answer.until) return;
    wake = answer.until;
    at(answer.until, [](Time) {});
  }

  void start(const Request& request, Time now) {
    const auto asked = asked_.at(request.id);
    Time& busy_until = busy_until_[static_cast<int>(request.engine)];
    const Time begin = busy_until > now ? busy_until : now + plan_.latency;
    busy_until = begin + asked.length;
    at(busy_until, [=, this](Time end) { finish(request, {request.vgpu, request.engine, asked.arrived, begin, end}); });
  }

  void finish(const Request& request, const Run& one) {
    runs.push_back(one);
    auto& use = use_[{one.vgpu, one.engine}];
    use.resize(plan_.end / kBucket + 1);
    for (Time from = one.begin; from < one.end && from < plan_.end;) {
      const Time to = std::min(one.end, (from / kBucket + 1) * kBucket);
      use[from / kBucket] += to - from;
      from = to;
    }
    const std::size_t step = (asked_.at(request.id).step + 1) % plan_.tenants[one.vgpu].steps.size();
    asked_.erase(request.id);
    refused += scheduler_.completion(one.vgpu, one.engine, request.id, one.end - one.begin, one.end) != Error::kNone;
    const VgpuId vgpu = one.vgpu;
    at(one.end + plan_.tenants[vgpu].think, [=, this](Time now) { ask(vgpu, step, now); });
  }

  SimulatorPlan plan_;
  Scheduler scheduler_;
  std::mt19937_64 random_;
  std::priority_queue<Event> events_;
  std::uint64_t sequence_ = 0;
  RequestId next_id_ = 1;
  std::map<RequestId, Asked> asked_;
  std::map<std::pair<VgpuId, Engine>, std::vector<Time>> use_;
  std::array<Time, kEngines> busy_until_{};
  std::array<Time, kEngines> wakes_{};
};

}  // namespace bandsaw::sched
