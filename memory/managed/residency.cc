#include "memory/managed/residency.h"

#include <algorithm>

namespace bandsaw::managed {
namespace {

constexpr uint64_t kLongestFetch = 64u << 20;
// A block that the device takes from a thread at work comes back within less.
constexpr uint64_t kQuickNs = 2'000'000;
constexpr uint32_t kPatience = 2;  // quick returns that are no thrashing yet
constexpr uint64_t kKeepFirstNs = 50'000, kKeepLongestNs = 1'000'000;

}  // namespace

std::vector<Run> pieces_of(const std::vector<Run>& runs, uint64_t most) {
  std::vector<Run> pieces;
  for (const Run& run : runs) {
    for (uint64_t at = run.offset; at < run.end(); at += most) pieces.push_back({at, std::min(most, run.end() - at)});
  }
  return pieces;
}

std::vector<Run> parts_in(const std::vector<Run>& runs, Run piece) {
  std::vector<Run> parts;
  for (const Run& run : runs) {
    const uint64_t begin = std::max(run.offset, piece.offset), end = std::min(run.end(), piece.end());
    if (begin < end) parts.push_back({begin, end - begin});
  }
  return parts;
}

Residency::Residency(uint64_t bytes, uint64_t block_bytes)
    : bytes_(bytes), block_bytes_(block_bytes), holders_((bytes + block_bytes - 1) / block_bytes, Holder::kHost) {
  away_ = holders_.size();
}

Run Residency::whole_blocks(Run run) const {
  if (run.offset >= bytes_ || run.bytes == 0) return {};
  const uint64_t begin = run.offset / block_bytes_ * block_bytes_;
  const uint64_t left = bytes_ - run.offset;
  const uint64_t last = run.offset + std::min(run.bytes, left) - 1;
  const uint64_t end = std::min(bytes_, (last / block_bytes_ + 1) * block_bytes_);
  return {begin, end - begin};
}

// Visits the longest runs of blocks in `run` whose holder is wanted.
template <typename Visit>
void Residency::runs_of(Run run, bool (*wanted)(Holder), Visit visit) const {
  const Run whole = whole_blocks(run);
  uint64_t begin = whole.offset;
  for (uint64_t at = whole.offset; at < whole.end(); at += block_bytes_) {
    if (wanted(holder(at))) continue;
    if (at > begin) visit(Run{begin, at - begin});
    begin = at + block_bytes_;
  }
  if (whole.end() > begin) visit(Run{begin, whole.end() - begin});
}

void Residency::set(Run run, Holder holder) {
  const Run whole = whole_blocks(run);
  for (uint64_t at = whole.offset; at < whole.end(); at += block_bytes_) {
    Holder& old = holders_[at / block_bytes_];
    if ((old == Holder::kDevice) != (holder == Holder::kDevice)) old == Holder::kDevice ? ++away_ : --away_;
    old = holder;
  }
}

ToDevice Residency::to_device(Run run) const {
  ToDevice plan;
  runs_of(
      run, [](Holder holder) { return holder != Holder::kDevice; }, [&](Run found) { plan.close.push_back(found); });
  runs_of(run, [](Holder holder) { return holder == Holder::kHost; }, [&](Run found) { plan.copy.push_back(found); });
  return plan;
}

void Residency::went_to_device(Run run) { set(run, Holder::kDevice); }

ToHost Residency::to_host(const Touch& touch) const {
  const Holder now = holder(touch.offset);
  const Run block = whole_blocks({touch.offset, 1});
  if (now == Holder::kHost || (now == Holder::kBoth && !touch.write)) return {ToHost::What::kNothing, block, false};
  if (now == Holder::kBoth) return {ToHost::What::kUnlock, block, true};
  const bool goes_on = block.offset == next_offset_;
  const bool returns = quick_returns_ > kPatience;
  uint64_t bytes = goes_on || returns ? std::min(kLongestFetch, std::max(last_bytes_, block_bytes_) * 2) : block_bytes_;
  bytes = std::min(bytes / block_bytes_ * block_bytes_, bytes_ - block.offset);
  Run run{block.offset, std::max(bytes, block.bytes)};
  for (uint64_t at = run.offset; at < run.end(); at += block_bytes_) {
    if (holder(at) == Holder::kDevice) continue;
    run.bytes = at - run.offset;
    break;
  }
  return {ToHost::What::kFetch, run, touch.write};
}

std::vector<Run> Residency::on_device(Run run) const {
  std::vector<Run> found;
  runs_of(run, [](Holder holder) { return holder == Holder::kDevice; }, [&](Run one) { found.push_back(one); });
  return found;
}

void Residency::came_to_host(Run run, bool writable) { set(run, writable ? Holder::kHost : Holder::kBoth); }

void Residency::touched(const ToHost& fetched, const Touch& touch) {
  if (fetched.what != ToHost::What::kFetch) return;
  const bool quick =
      last_touch_ns_ != 0 && touch.now_ns - last_touch_ns_ < kQuickNs && fetched.run.offset < next_offset_;
  quick_returns_ = quick ? quick_returns_ + 1 : 0;
  next_offset_ = fetched.run.end();
  last_bytes_ = fetched.run.bytes;
  last_touch_ns_ = touch.now_ns;
  last_thread_ = touch.thread;
}

uint64_t Residency::keep_until_ns(uint64_t launching_thread) const {
  if (quick_returns_ < kPatience || launching_thread == last_thread_) return 0;
  const uint32_t doubled = std::min(quick_returns_ - kPatience, 10u);
  return last_touch_ns_ + std::min(kKeepLongestNs, kKeepFirstNs << doubled);
}

}  // namespace bandsaw::managed
