#include "backend/vgpud/arbiter/others_work.h"

#include <algorithm>

namespace bandsaw {
namespace {

// Runners read the word seldom, and need it no more exactly.
constexpr sched::Time kPostPause = 10 * sched::kMillisecond;

}  // namespace

void OthersWork::post(sched::Time now) {
  if (now - posted_at_ < kPostPause) return;
  posted_at_ = now;
  const auto worked_at = [](const VgpuState& vgpu) { return std::ranges::max(vgpu.last_wanted); };
  // The last two: one of them is another one.
  const VgpuState* last = nullptr;
  sched::Time before = 0;
  for (const VgpuState& vgpu : table_->all()) {
    if (!last || worked_at(vgpu) > worked_at(*last)) {
      before = last ? worked_at(*last) : 0;
      last = &vgpu;
    } else {
      before = std::max(before, worked_at(vgpu));
    }
  }
  for (VgpuState& vgpu : table_->all()) {
    if (!vgpu.grant_page) continue;
    const sched::Time others = &vgpu == last ? before : worked_at(*last);
    std::atomic<int64_t>& word = vgpu.grant_page->others_worked_at;
    if (word.load(std::memory_order_relaxed) != others) word = others;
  }
}

}  // namespace bandsaw
