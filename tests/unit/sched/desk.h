// A scheduler with hands: one line per event, for tests of single decisions.
#pragma once

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "vgpu-sched/policy/scheduler.h"

namespace bandsaw::sched {

inline constexpr Engine kCompute = Engine::kCompute;
inline constexpr Time kMs = kMillisecond;

struct Desk {
  explicit Desk(const std::string& policy, const SchedulerOptions& options = {.model = QueueModel::kMrq, .depth = 1},
                const PolicyOptions& policy_options = {})
      : scheduler(options, [=] { return make_policy(policy, policy_options); }) {}

  void add(VgpuId vgpu, const Share& share, Time now = 0) { ASSERT_EQ(scheduler.add(vgpu, share, now), Error::kNone); }

  void ask(VgpuId vgpu, RequestId id, Time now, int priority = 0, Engine engine = kCompute) {
    const Request request{.id = id, .vgpu = vgpu, .engine = engine, .estimate = 0, .priority = priority};
    ASSERT_EQ(scheduler.arrival(request, now), Error::kNone);
  }

  void done(VgpuId vgpu, RequestId id, Time measured, Time now, Engine engine = kCompute) {
    ASSERT_EQ(scheduler.completion(vgpu, engine, id, measured, now), Error::kNone);
  }

  // What goes now, and what the last answer was.
  std::vector<RequestId> goes(Time now, Engine engine = kCompute) {
    std::vector<RequestId> ids;
    while ((last = scheduler.next(engine, now)).kind == Answer::Kind::kDispatch) ids.push_back(last.request.id);
    return ids;
  }

  Scheduler scheduler;
  Answer last;
};

using Ids = std::vector<RequestId>;

}  // namespace bandsaw::sched
