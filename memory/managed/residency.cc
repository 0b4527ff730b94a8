#include "memory/managed/residency.h"

#include <algorithm>
#include <iterator>

namespace bandsaw::managed {
namespace {

constexpr uint64_t kLongestFetch = 64u << 20;
// Up to so many blocks around a touch come along where most of them are the host's already.
constexpr uint64_t kDenseBlocks = 32;
// Opening pages costs no copy, so a touch opens more of them.
constexpr uint64_t kOpenBlocks = 32;
// A block that the device takes from a thread at work comes back within less.
constexpr uint64_t kQuickNs = 2'000'000;
constexpr uint32_t kPatience = 2;  // quick returns that are no thrashing yet
constexpr uint64_t kKeepFirstNs = 50'000, kKeepLongestNs = 1'000'000;

Run common(Run a, Run b) {
  const uint64_t begin = std::max(a.offset, b.offset), end = std::min(a.end(), b.end());
  return begin < end ? Run{begin, end - begin} : Run{};
}

void append(std::vector<Run>* runs, Run run) {
  if (!runs->empty() && runs->back().end() == run.offset) {
    runs->back().bytes += run.bytes;
  } else {
    runs->push_back(run);
  }
}

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
    if (const Run part = common(run, piece); part.bytes) parts.push_back(part);
  }
  return parts;
}

Residency::Residency(uint64_t bytes, uint64_t block_bytes)
    : bytes_(bytes), block_bytes_(block_bytes), stretches_{{0, Holder::kHost}} {}

Residency::Residency(const Residency& from, Run slice) : Residency(slice.bytes) {
  from.each(slice, [&](Run run, Holder holder) {
    set({run.offset - slice.offset, run.bytes}, holder == Holder::kDevice ? Holder::kNobody : holder);
  });
}

void Residency::take_over(uint64_t offset, const Residency& part) {
  part.each({0, part.bytes_}, [&](Run run, Holder holder) { set({offset + run.offset, run.bytes}, holder); });
}

Residency::Stretch Residency::stretch_at(uint64_t offset) const {
  const auto next = stretches_.upper_bound(offset);
  const auto& [begin, holder] = *std::prev(next);
  return {{begin, (next == stretches_.end() ? bytes_ : next->first) - begin}, holder};
}

Holder Residency::holder(uint64_t offset) const { return stretch_at(offset).holder; }

Run Residency::whole_blocks(Run run) const {
  if (run.offset >= bytes_ || run.bytes == 0) return {};
  const uint64_t begin = run.offset / block_bytes_ * block_bytes_;
  const uint64_t left = bytes_ - run.offset;
  const uint64_t last = run.offset + std::min(run.bytes, left) - 1;
  const uint64_t end = std::min(bytes_, (last / block_bytes_ + 1) * block_bytes_);
  return {begin, end - begin};
}

Run Residency::blocks_within(Run run) const {
  const uint64_t begin = (run.offset + block_bytes_ - 1) / block_bytes_ * block_bytes_;
  const uint64_t end = run.end() >= bytes_ ? bytes_ : run.end() / block_bytes_ * block_bytes_;
  return begin < end ? Run{begin, end - begin} : Run{};
}

// Visits each stretch in `run`, as far as it lies there.
template <typename Visit>
void Residency::each(Run run, Visit visit) const {
  for (uint64_t at = run.offset; at < run.end();) {
    const Stretch stretch = stretch_at(at);
    visit(common(stretch.run, run), stretch.holder);
    at = stretch.run.end();
  }
}

void Residency::set(Run run, Holder holder) {
  if (run.bytes == 0) return;
  each(run, [&](Run part, Holder old) { device_bytes_ -= old == Holder::kDevice ? part.bytes : 0; });
  device_bytes_ += holder == Holder::kDevice ? run.bytes : 0;
  if (run.end() < bytes_) {
    const Holder after = this->holder(run.end());
    stretches_.insert_or_assign(run.end(), after);
  }
  stretches_.erase(stretches_.lower_bound(run.offset), stretches_.lower_bound(run.end()));
  stretches_[run.offset] = holder;
  const auto own = stretches_.find(run.offset);
  if (const auto next = std::next(own); next != stretches_.end() && next->second == holder) stretches_.erase(next);
  if (own != stretches_.begin() && std::prev(own)->second == holder) stretches_.erase(own);
}

bool Residency::all_on_host() const {
  return std::all_of(stretches_.begin(), stretches_.end(), [](const auto& stretch) {
    return stretch.second == Holder::kHost || stretch.second == Holder::kNobody;
  });
}

ToDevice Residency::to_device(Run run, bool reads) const {
  ToDevice plan;
  each(whole_blocks(run), [&](Run part, Holder holder) {
    if (holder == Holder::kDevice || (reads && holder == Holder::kBoth)) return;
    append(&plan.take, part);
    if (holder != Holder::kNobody) append(&plan.close, part);
    if (holder == Holder::kHost) append(&plan.copy, part);
  });
  return plan;
}

void Residency::went_to_device(Run run, uint64_t thread) {
  set(run, Holder::kDevice);
  taken_ = true;
  taken_by_ = thread;
}

void Residency::shared_with_device(const ToDevice& plan) {
  for (const Run& run : plan.take) set(run, Holder::kDevice);
  for (const Run& run : plan.close) set(run, Holder::kBoth);
}

// The largest region around the block, of a power of two of blocks, of which more than half is the host's with it.
Run Residency::wanted_around(Run block, bool stolen) const {
  Run wanted = block;
  for (uint64_t bytes = 2 * block_bytes_; bytes <= kDenseBlocks * block_bytes_; bytes *= 2) {
    const uint64_t begin = block.offset / bytes * bytes;
    const Run region{begin, std::min(bytes, bytes_ - begin)};
    uint64_t there = block.bytes;
    each(region, [&](Run part, Holder holder) {
      there += holder == Holder::kHost || holder == Holder::kBoth ? part.bytes : 0;
    });
    if (stolen || there > region.bytes / 2) wanted = region;
    if (region.bytes == bytes_) break;
  }
  return wanted;
}

Run Residency::longer(const Sequence& sequence, Run block) const {
  const uint64_t doubled = std::min(kLongestFetch, std::max(sequence.last_bytes, block_bytes_) * 2);
  return whole_blocks({block.offset, doubled / block_bytes_ * block_bytes_});
}

ToHost Residency::to_host(const Touch& touch) const {
  const Stretch here = stretch_at(touch.offset);
  const Run block = common(whole_blocks({touch.offset, 1}), here.run);
  if (here.holder == Holder::kHost || (here.holder == Holder::kBoth && !touch.write)) {
    return {ToHost::What::kNothing, block, false};
  }
  if (here.holder == Holder::kBoth) {
    const Run writable = unlocked_.goes_on(block) ? longer(unlocked_, block) : block;
    return {ToHost::What::kUnlock, common(writable, here.run), true};
  }
  Run wanted = block;
  if (touch.bias == Bias::kHost) {
    wanted = whole_blocks({block.offset, kLongestFetch});
  } else if (touch.bias == Bias::kDevice) {
    // That block alone.
  } else if (brought_.goes_on(block)) {
    wanted = longer(brought_, block);
  } else if (here.holder == Holder::kDevice) {
    wanted = wanted_around(block, stolen_from(touch.thread));
  }
  if (here.holder == Holder::kDevice) return {ToHost::What::kFetch, common(wanted, here.run), touch.write};
  const uint64_t most = std::max(wanted.bytes, kOpenBlocks * block_bytes_);
  return {ToHost::What::kOpen, common({block.offset, most}, here.run), true};
}

std::vector<Run> Residency::on_device(Run run) const {
  std::vector<Run> found;
  each(whole_blocks(run), [&](Run part, Holder holder) {
    if (holder == Holder::kDevice) append(&found, part);
  });
  return found;
}

void Residency::came_to_host(Run run, bool writable) { set(run, writable ? Holder::kHost : Holder::kBoth); }

void Residency::device_gone(Run run) {
  std::vector<std::pair<Run, Holder>> changes;
  each(run, [&](Run part, Holder holder) {
    if (holder == Holder::kBoth) changes.push_back({part, Holder::kHost});
    if (holder == Holder::kDevice) changes.push_back({part, Holder::kNobody});
  });
  for (const auto& [part, holder] : changes) set(part, holder);
}

void Residency::discarded(Run run) { set(run, Holder::kNobody); }

void Residency::touched(const ToHost& answered, const Touch& touch) {
  if (answered.what == ToHost::What::kUnlock) unlocked_.answered(answered.run);
  if (answered.what != ToHost::What::kFetch && answered.what != ToHost::What::kOpen) return;
  const bool quick = stolen_from(touch.thread) && last_touch_ns_ != 0 && touch.now_ns - last_touch_ns_ < kQuickNs;
  taken_ = false;
  quick_returns_ = quick ? quick_returns_ + 1 : 0;
  brought_.answered(answered.run);
  last_touch_ns_ = touch.now_ns;
  last_thread_ = touch.thread;
}

uint64_t Residency::keep_until_ns(uint64_t launching_thread) const {
  if (quick_returns_ < kPatience || launching_thread == last_thread_) return 0;
  const uint32_t doubled = std::min(quick_returns_ - kPatience, 10u);
  return last_touch_ns_ + std::min(kKeepLongestNs, kKeepFirstNs << doubled);
}

}  // namespace bandsaw::managed
