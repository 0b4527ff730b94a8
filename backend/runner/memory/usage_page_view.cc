#include "backend/runner/memory/usage_page_view.h"

#include <sys/mman.h>
#include <sys/stat.h>

#include <algorithm>
#include <atomic>
#include <limits>

#include "backend/control/vgpu_spec.h"

namespace bandsaw::runner {
namespace {

constexpr int64_t kTellEvery = 1'000'000;
// For moves in both directions at once, whatever else lies in host memory.
constexpr auto kKeptAlways = static_cast<int64_t>(kSwapSlack);

// A runner may die between the two additions, and then the session gives back what its slot says. So the sum never
// says less than the slots: it grows first and shrinks last. The other way round, a death would lend the same amount
// twice. Compare and swap, so that two processes of one virtual GPU cannot pass the bound together.
template <typename Part>
bool take(std::atomic<int64_t>* sum, std::atomic<Part>* part, int64_t most, int64_t amount) {
  int64_t all = sum->load(std::memory_order_relaxed);
  do {
    if (all > most || amount > most - all) return false;
  } while (!sum->compare_exchange_weak(all, all + amount));
  part->fetch_add(static_cast<Part>(amount));
  return true;
}

template <typename Part>
void give_back(std::atomic<int64_t>* sum, std::atomic<Part>* part, int64_t amount) {
  part->fetch_sub(static_cast<Part>(amount));
  sum->fetch_sub(amount);
}

}  // namespace

UsagePageView::UsagePageView()
    : own_(std::make_unique<UsagePage>()),
      own_limits_(std::make_unique<LimitsPage>()),
      page_(own_.get()),
      limits_(own_limits_.get()),
      slot_(&own_->slots[0]) {
  own_limits_->memory_share.store(std::numeric_limits<int64_t>::max());
  for (auto& most : own_limits_->most) most.store(std::numeric_limits<uint32_t>::max());
}

UsagePageView::~UsagePageView() {
  if (page_ != own_.get()) munmap(page_, sizeof(UsagePage));
  if (limits_ != own_limits_.get()) munmap(const_cast<LimitsPage*>(limits_), sizeof(LimitsPage));
}

Status UsagePageView::map(const UniqueFd& fd, uint32_t slot, const UniqueFd& limits) {
  struct stat info{};
  if (fstat(limits.get(), &info) != 0) return Status::system("limits page");
  if (static_cast<uint64_t>(info.st_size) < sizeof(LimitsPage)) {
    return Status::error(EINVAL, "the limits page is too short");
  }
  if (slot >= kUsageSlots) return Status::error(EINVAL, "usage page slot {} of {}", slot, kUsageSlots);
  if (fstat(fd.get(), &info) != 0) return Status::system("usage page");
  if (static_cast<uint64_t>(info.st_size) < sizeof(UsagePage))
    return Status::error(EINVAL, "the usage page is too short");
  void* mapped = mmap(nullptr, sizeof(UsagePage), PROT_READ | PROT_WRITE, MAP_SHARED, fd.get(), 0);
  if (mapped == MAP_FAILED) return Status::system("mapping the usage page");
  void* const readable = mmap(nullptr, sizeof(LimitsPage), PROT_READ, MAP_SHARED, limits.get(), 0);
  if (readable == MAP_FAILED) {
    munmap(mapped, sizeof(UsagePage));
    return Status::system("mapping the limits page");
  }
  page_ = static_cast<UsagePage*>(mapped);
  limits_ = static_cast<const LimitsPage*>(readable);
  slot_ = &page_->slots[slot];
  slot_index_ = slot;
  return {};
}

uint64_t UsagePageView::share() const {
  return static_cast<uint64_t>(std::max<int64_t>(0, limits_->memory_share.load(std::memory_order_relaxed)));
}

uint64_t UsagePageView::used() const {
  return static_cast<uint64_t>(std::max<int64_t>(0, page_->memory_used.load(std::memory_order_relaxed)));
}

bool UsagePageView::add_used(int64_t bytes) {
  if (bytes > 0)
    return take(&page_->memory_used, &slot_->memory_bytes, limits_->memory_share.load(std::memory_order_relaxed),
                bytes);
  give_back(&page_->memory_used, &slot_->memory_bytes, -bytes);
  return true;
}

// Two processes may refuse each other what is left on the device; together they never pass it. They count what they
// have before they read how much they may, and the session makes that less before it is read what they have: one of the
// two sees the other.
bool UsagePageView::charge(int64_t bytes) {
  if (!add_used(bytes)) return false;
  if (bytes <= 0 || !swaps() || on_device() <= static_cast<int64_t>(resident())) return true;
  add_used(-bytes);
  return false;
}

uint64_t UsagePageView::resident() const {
  return static_cast<uint64_t>(std::max<int64_t>(0, limits_->memory_resident.load()));
}

uint64_t UsagePageView::reserved() const {
  return static_cast<uint64_t>(std::max<int64_t>(0, limits_->memory_reserved.load(std::memory_order_relaxed)));
}

uint64_t UsagePageView::coming() const {
  return static_cast<uint64_t>(std::max<int64_t>(0, limits_->memory_coming.load(std::memory_order_relaxed)));
}

uint64_t UsagePageView::excess() const {
  return static_cast<uint64_t>(std::max<int64_t>(0, on_device() - static_cast<int64_t>(resident())));
}

uint64_t UsagePageView::lendable() const {
  const auto beyond = static_cast<int64_t>(share() - std::min(share(), reserved()));
  const int64_t swap = limits_->memory_swap.load(std::memory_order_relaxed);
  return swaps() ? static_cast<uint64_t>(std::max<int64_t>(0, swap - beyond - static_cast<int64_t>(kSwapSlack))) : 0;
}

bool UsagePageView::keep(int64_t bytes) {
  if (bytes < 0) {
    give_back(&page_->kept, &slot_->kept_bytes, -bytes);
    return true;
  }
  const bool few = slot_->kept_bytes.load() + bytes <= kKeptAlways;
  const int64_t most = few ? std::numeric_limits<int64_t>::max()
                           : limits_->memory_swap.load(std::memory_order_relaxed) - page_->swapped.load();
  return take(&page_->kept, &slot_->kept_bytes, most, bytes);
}

bool UsagePageView::note_work(int64_t now, bool finds_no_room) {
  slot_->worked_at.store(now, std::memory_order_relaxed);
  const int64_t before = page_->worked_at.exchange(now, std::memory_order_relaxed);
  if (finds_no_room) page_->short_at.store(now, std::memory_order_relaxed);
  return (finds_no_room || resident() < reserved()) && now / kTellEvery != before / kTellEvery;
}

void UsagePageView::ask(Ask what, uint64_t bytes) {
  const auto wanted = static_cast<int64_t>(std::min<uint64_t>(bytes, INT64_MAX));
  const int64_t before = slot_->asked[what].exchange(wanted);
  if (before == 0 && wanted != 0) page_->asks.fetch_add(1);
  if (before != 0 && wanted == 0) page_->asks.fetch_sub(1);
}

// By slot. What has work on the device does not rest.
std::vector<swap::Neighbour> UsagePageView::neighbours(int64_t now) const {
  std::vector<swap::Neighbour> all(kUsageSlots);
  for (uint32_t slot = 0; slot < kUsageSlots; ++slot) {
    const UsageSlot& from = page_->slots[slot];
    const int64_t movable = from.movable.load(std::memory_order_relaxed);
    if (movable <= 0) continue;
    const Gate& gate = page_->grant_page.gates[slot][0];
    const bool works = gate.begun.load(std::memory_order_relaxed) != gate.ended.load(std::memory_order_relaxed);
    all[slot] = {static_cast<uint64_t>(movable), works ? now : from.worked_at.load(std::memory_order_relaxed)};
  }
  return all;
}

bool UsagePageView::somebody_gives(Ask what, int64_t now) const {
  return swap::who_gives(neighbours(now), slot_index_, what == kMust, now) != swap::kNobody;
}

uint64_t UsagePageView::asked_of_this(int64_t now) const {
  if (page_->asks.load(std::memory_order_relaxed) == 0 || !swaps()) return 0;
  const auto room = static_cast<int64_t>(room_on_device());
  const std::vector<swap::Neighbour> all = neighbours(now);
  int64_t most = 0;
  for (uint32_t slot = 0; slot < kUsageSlots; ++slot) {
    if (slot == slot_index_) continue;
    for (const Ask what : {kWork, kMust}) {
      const int64_t lacks = page_->slots[slot].asked[what].load(std::memory_order_relaxed) - room;
      if (lacks > most && swap::who_gives(all, slot, what == kMust, now) == slot_index_) most = lacks;
    }
  }
  return static_cast<uint64_t>(most);
}

int64_t UsagePageView::on_device() const { return page_->memory_used.load() - page_->swapped.load(); }

uint64_t UsagePageView::room_on_device() const {
  return static_cast<uint64_t>(std::max<int64_t>(0, static_cast<int64_t>(resident()) - on_device()));
}

bool UsagePageView::add_swapped(int64_t bytes) {
  if (bytes > 0)
    return take(&page_->swapped, &slot_->swapped_bytes, limits_->memory_swap.load(std::memory_order_relaxed), bytes);
  give_back(&page_->swapped, &slot_->swapped_bytes, -bytes);
  return true;
}

// In between, what is on the device seems to be more than it is, never less.
bool UsagePageView::charge_swapped(int64_t bytes) {
  if (bytes < 0) return add_swapped(bytes) && add_used(bytes);
  if (!add_used(bytes)) return false;
  if (add_swapped(bytes)) return true;
  add_used(-bytes);
  return false;
}

bool UsagePageView::move(uint64_t bytes, bool to_device) {
  const auto change = static_cast<int64_t>(bytes);
  if (!to_device) return add_swapped(change);
  add_swapped(-change);
  if (on_device() <= static_cast<int64_t>(resident())) return true;
  slot_->swapped_bytes.fetch_add(change);  // it was there before, whatever the bound is now
  page_->swapped.fetch_add(change);
  return false;
}

bool UsagePageView::hold(Limited kind) {
  const auto i = static_cast<size_t>(kind);
  return take(&page_->held[i], &slot_->held[i], limits_->most[i].load(std::memory_order_relaxed), 1);
}

void UsagePageView::let_go(Limited kind) {
  const auto i = static_cast<size_t>(kind);
  give_back(&page_->held[i], &slot_->held[i], 1);
}

void UsagePageView::release_all() {
  for (size_t i = 0; i < kLimitedObjects; ++i) page_->held[i].fetch_sub(slot_->held[i].exchange(0));
  page_->swapped.fetch_sub(slot_->swapped_bytes.exchange(0));
  page_->kept.fetch_sub(slot_->kept_bytes.exchange(0));
  ask(kWork, 0);
  ask(kMust, 0);
  slot_->movable.store(0);
  const int64_t held = slot_->memory_bytes.exchange(0);
  page_->memory_used.fetch_sub(held);
}

void UsagePageView::count_time(int engine, uint64_t nanoseconds, uint64_t bytes) {
  count(engine == 0 ? slot_->compute_ns : slot_->copy_ns, nanoseconds);
  count(engine == 0 ? slot_->bytes_device : engine == 1 ? slot_->bytes_in : slot_->bytes_out, bytes);
}

}  // namespace bandsaw::runner
