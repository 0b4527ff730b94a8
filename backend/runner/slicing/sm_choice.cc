#include "backend/runner/slicing/sm_choice.h"

#include <algorithm>
#include <map>

#include "vgpu-sched/slice/preemption.h"

namespace bandsaw::runner {
namespace {

constexpr double kStampNs = 1 << ptx::kStampShift;

struct Sm {
  std::vector<slice::RunningBlock> blocks;
  std::vector<size_t> places;
};

uint32_t time_of(ptx::BlockStamp stamp) { return static_cast<uint32_t>(stamp); }
uint32_t sm_of(ptx::BlockStamp stamp) { return static_cast<uint32_t>(stamp >> 32); }

// The clock wraps, and stamps lie far less than half of its range apart.
uint32_t latest(std::span<const ptx::BlockStamp> stamps) {
  bool any = false;
  uint32_t found = 0;
  for (const ptx::BlockStamp stamp : stamps) {
    if (stamp == ptx::kNoBlock) continue;
    if (!any || static_cast<int32_t>(time_of(stamp) - found) > 0) found = time_of(stamp);
    any = true;
  }
  return found;
}

std::vector<Sm> sms_of(std::span<const ptx::BlockStamp> stamps, const SmRequest& request) {
  const uint32_t now = latest(stamps);
  std::map<uint32_t, Sm> by_sm;
  for (size_t place = 0; place < stamps.size(); ++place) {
    if (stamps[place] == ptx::kNoBlock) continue;
    const auto passed = static_cast<int32_t>(now - time_of(stamps[place]));
    const double executed = std::clamp(passed * kStampNs, 0.0, std::max(request.block_ns, 0.0));
    Sm& sm = by_sm[sm_of(stamps[place])];
    sm.blocks.push_back({.executed = executed, .flushable = request.may_drop});
    sm.places.push_back(place);
  }
  std::vector<Sm> all;
  all.reserve(by_sm.size());
  for (auto& [number, sm] : by_sm) all.push_back(std::move(sm));
  return all;
}

}  // namespace

SmChoice choose_sms(std::span<const ptx::BlockStamp> stamps, const SmRequest& request) {
  SmChoice choice;
  choice.stops.resize(stamps.size());
  const std::vector<Sm> sms = sms_of(stamps, request);
  std::vector<std::vector<slice::RunningBlock>> running;
  for (const Sm& sm : sms) running.push_back(sm.blocks);
  const size_t most = std::max<size_t>(sms.size() / 2, 1);
  constexpr auto kAllowed =
      static_cast<slice::Preemptions>(only(slice::Preemption::kDrain) | only(slice::Preemption::kFlush));
  const auto chosen = slice::choose_preemptions({.block_work = request.block_ns, .ns_per_work = 1}, running,
                                                request.bound_ns, std::min(request.sms, most), kAllowed);
  for (const slice::SmPreemption& one : chosen) {
    ++choice.sms;
    choice.latency_ns = std::max(choice.latency_ns, one.cost.latency_ns);
    choice.late += one.cost.latency_ns > request.bound_ns;
    for (size_t i = 0; i < one.blocks.size(); ++i) {
      const bool drops = one.blocks[i] == slice::Preemption::kFlush;
      choice.stops[sms[one.sm].places[i]] = drops ? ptx::kStopAndDrop : ptx::kStopClaiming;
      ++(drops ? choice.dropped : choice.drained);
    }
  }
  return choice;
}

}  // namespace bandsaw::runner
