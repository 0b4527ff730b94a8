#include "backend/runner/slicing/sm_choice.h"

#include <algorithm>
#include <array>
#include <vector>

#include "vgpu-sched/slice/preemption.h"

namespace bandsaw::runner {
namespace {

constexpr double kStampNs = 1 << ptx::kStampShift;
constexpr size_t kFew = 8;  // blocks on an SM

// Of one SM each, with the numbers of their places.
struct Sms {
  std::vector<std::vector<slice::RunningBlock>> blocks;
  std::vector<std::vector<size_t>> places;
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

// This lies on the way of whoever waits: no search, few allocations.
Sms sms_of(std::span<const ptx::BlockStamp> stamps, const SmRequest& request) {
  constexpr uint16_t kNone = UINT16_MAX;
  const uint32_t now = latest(stamps);
  std::array<uint16_t, ptx::kSmCounters> at;
  at.fill(kNone);
  Sms sms;
  for (size_t place = 0; place < stamps.size(); ++place) {
    const uint32_t number = sm_of(stamps[place]);
    if (stamps[place] == ptx::kNoBlock || number >= at.size()) continue;
    if (at[number] == kNone) {
      at[number] = static_cast<uint16_t>(sms.blocks.size());
      sms.blocks.emplace_back().reserve(kFew);
      sms.places.emplace_back().reserve(kFew);
    }
    const auto passed = static_cast<int32_t>(now - time_of(stamps[place]));
    const double executed = std::clamp(passed * kStampNs, 0.0, std::max(request.block_ns, 0.0));
    sms.blocks[at[number]].push_back({.executed = executed, .flushable = request.may_drop});
    sms.places[at[number]].push_back(place);
  }
  return sms;
}

}  // namespace

SmChoice choose_sms(std::span<const ptx::BlockStamp> stamps, const SmRequest& request) {
  SmChoice choice;
  choice.stops.resize(stamps.size());
  const Sms sms = sms_of(stamps, request);
  const size_t most = std::max<size_t>(sms.blocks.size() / 2, 1);
  constexpr auto kAllowed =
      static_cast<slice::Preemptions>(only(slice::Preemption::kDrain) | only(slice::Preemption::kFlush));
  const auto chosen = slice::choose_preemptions({.block_work = request.block_ns, .ns_per_work = 1}, sms.blocks,
                                                request.bound_ns, std::min(request.sms, most), kAllowed);
  for (const slice::SmPreemption& one : chosen) {
    ++choice.sms;
    choice.latency_ns = std::max(choice.latency_ns, one.cost.latency_ns);
    choice.late += one.cost.latency_ns > request.bound_ns;
    for (size_t i = 0; i < one.blocks.size(); ++i) {
      const bool drops = one.blocks[i] == slice::Preemption::kFlush;
      choice.stops[sms.places[one.sm][i]] = drops ? ptx::kStopAndDrop : ptx::kStopClaiming;
      ++(drops ? choice.dropped : choice.drained);
    }
  }
  return choice;
}

}  // namespace bandsaw::runner
