#include "backend/session/usage_page_owner.h"

#include <fcntl.h>
#include <sys/eventfd.h>
#include <sys/mman.h>

#include <algorithm>
#include <new>
#include <nlohmann/json.hpp>

#include "backend/control/vgpu_spec.h"
#include "memory/base/eventfd.h"
#include "memory/base/futex.h"
#include "memory/base/log.h"

namespace bandsaw {
namespace {

constexpr size_t kReasonsMost = 64;

void add(const Usage::Slicing& part, Usage::Slicing* sum) {
  sum->kernels += part.kernels;
  sum->sliceable += part.sliceable;
  sum->launches += part.launches;
  sum->grid_slices += part.grid_slices;
  sum->fallbacks += part.fallbacks;
  for (const auto& [reason, kernels] : part.refused) {
    // Of many runners, each with reasons of its own: only so many.
    if (sum->refused.size() < kReasonsMost || sum->refused.contains(reason)) sum->refused[reason] += kernels;
  }
}

// The runner's memory is not trusted: what is there is cut to printable text.
Usage::Slicing read(const SlicingCounters& from) {
  Usage::Slicing slicing{from.kernels, from.sliceable, from.launches, from.grid_slices, from.fallbacks, {}};
  for (const SlicingRefusal& reason : from.refused) {
    std::string text(reason.text, sizeof reason.text);
    text.resize(std::min(text.find('\0'), text.size()));
    std::replace_if(text.begin(), text.end(), [](char c) { return c < ' ' || c > '~'; }, '?');
    if (!text.empty()) slicing.refused[text] += reason.kernels;
  }
  return slicing;
}

void add(const Usage& part, Usage* sum) {
  sum->memory_bytes += part.memory_bytes;
  sum->swapped_bytes += part.swapped_bytes;
  sum->swapped_in += part.swapped_in;
  sum->swapped_out += part.swapped_out;
  sum->swap_moves += part.swap_moves;
  sum->swap_wait_ns += part.swap_wait_ns;
  sum->swap_move_ns += part.swap_move_ns;
  sum->swap_made += part.swap_made;
  sum->swap_mapped += part.swap_mapped;
  sum->calls += part.calls;
  sum->launches += part.launches;
  sum->bytes_in += part.bytes_in;
  sum->bytes_out += part.bytes_out;
  sum->bytes_device += part.bytes_device;
  sum->compute_ns += part.compute_ns;
  sum->copy_ns += part.copy_ns;
  sum->errors += part.errors;
  add(part.slicing, &sum->slicing);
}

}  // namespace

nlohmann::json to_json(const Usage& usage) {
  return {{"memory_bytes", usage.memory_bytes},
          {"swapped_bytes", usage.swapped_bytes},
          {"swapped_in", usage.swapped_in},
          {"swapped_out", usage.swapped_out},
          {"swap_moves", usage.swap_moves},
          {"swap_wait_ns", usage.swap_wait_ns},
          {"swap_move_ns", usage.swap_move_ns},
          {"swap_made", usage.swap_made},
          {"swap_mapped", usage.swap_mapped},
          {"calls", usage.calls},
          {"launches", usage.launches},
          {"bytes_in", usage.bytes_in},
          {"bytes_out", usage.bytes_out},
          {"bytes_device", usage.bytes_device},
          {"compute_ns", usage.compute_ns},
          {"copy_ns", usage.copy_ns},
          {"errors", usage.errors},
          {"sticky", usage.sticky},
          {"slicing",
           {{"kernels", usage.slicing.kernels},
            {"sliceable", usage.slicing.sliceable},
            {"launches", usage.slicing.launches},
            {"grid_slices", usage.slicing.grid_slices},
            {"fallbacks", usage.slicing.fallbacks},
            {"refused", usage.slicing.refused}}}};
}

namespace {

// A memfd that lives as long as its mappings and never changes its size.
Result<UniqueFd> make_page(const char* name, size_t bytes) {
  UniqueFd fd(::memfd_create(name, MFD_CLOEXEC | MFD_ALLOW_SEALING));
  if (!fd || ::ftruncate(fd.get(), static_cast<off_t>(bytes)) < 0 ||
      ::fcntl(fd.get(), F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW) < 0) {
    return Status::system("cannot make {}", name);
  }
  return fd;
}

Result<void*> map_page(int fd, size_t bytes) {
  void* const memory = ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
  if (memory == MAP_FAILED) return Status::system("cannot map memory for runners");
  return memory;
}

}  // namespace

Result<UsagePageOwner> UsagePageOwner::open(uint64_t memory_share, uint64_t resident) {
  auto fd = make_page("bandsaw-usage-page", sizeof(UsagePage));
  if (!fd.ok()) return fd.status();
  auto limits_fd = make_page("bandsaw-limits-page", sizeof(LimitsPage));
  if (!limits_fd.ok()) return limits_fd.status();
  UniqueFd doorbell(::eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC));
  if (!doorbell) return Status::system("cannot make the arbiter's doorbell");
  const auto page = map_page(fd.value().get(), sizeof(UsagePage));
  if (!page.ok()) return page.status();
  const auto limits = map_page(limits_fd.value().get(), sizeof(LimitsPage));
  if (!limits.ok()) return limits.status();
  // The mapping that there is goes on; nobody else gets one to write to, not even through /proc.
  if (::fcntl(limits_fd.value().get(), F_ADD_SEALS, F_SEAL_FUTURE_WRITE | F_SEAL_SEAL) < 0 ||
      ::fcntl(fd.value().get(), F_ADD_SEALS, F_SEAL_SEAL) < 0) {
    return Status::system("cannot seal the limits page");
  }
  UsagePageOwner owner(std::move(fd.value()), std::move(limits_fd.value()), std::move(doorbell),
                       new (page.value()) UsagePage{}, new (limits.value()) LimitsPage{});
  owner.page_->grant_page.no_arbiter = 1;
  owner.set_memory_share(memory_share, resident);
  owner.set_limits(kDefaultLimits);
  return owner;
}

UsagePageOwner::UsagePageOwner(UsagePageOwner&& other) noexcept
    : fd_(std::move(other.fd_)),
      limits_fd_(std::move(other.limits_fd_)),
      doorbell_(std::move(other.doorbell_)),
      page_(std::exchange(other.page_, nullptr)),
      limits_page_(std::exchange(other.limits_page_, nullptr)),
      taken_(other.taken_),
      taken_count_(other.taken_count_),
      share_(other.share_),
      resident_(other.resident_),
      charged_(other.charged_),
      order_(other.order_),
      kicks_(std::move(other.kicks_)),
      limits_(other.limits_),
      past_(other.past_),
      use_begins_(std::move(other.use_begins_)) {}

UsagePageOwner::~UsagePageOwner() {
  if (page_) ::munmap(page_, sizeof(UsagePage));
  if (limits_page_) ::munmap(limits_page_, sizeof(LimitsPage));
}

int UsagePageOwner::take_slot() {
  for (size_t slot = 0; slot < taken_.size(); ++slot) {
    if (taken_[slot]) continue;
    taken_[slot] = true;
    new (&page_->slots[slot]) UsageSlot{};
    if (++taken_count_ == 1 && use_begins_) use_begins_();
    return static_cast<int>(slot);
  }
  return -1;
}

void UsagePageOwner::set_priority(int slot, int32_t priority) {
  for (Gate& gate : page_->grant_page.gates[static_cast<size_t>(slot)]) gate.priority = priority;
}

void UsagePageOwner::give_back(int slot) {
  Usage last = usage(slot);
  page_->memory_used -= last.memory_bytes;  // a runner that ended by itself did so, and says 0
  page_->swapped -= last.swapped_bytes;
  page_->kept -= page_->slots[slot].kept_bytes;
  for (const auto& asked : page_->slots[slot].asked) page_->asks -= asked != 0;
  kicks_.erase(slot);
  last.memory_bytes = last.swapped_bytes = 0;
  add(last, &past_);
  for (size_t i = 0; i < kLimitedObjects; ++i) page_->held[i] -= page_->slots[slot].held[i].load();
  new (&page_->slots[slot]) UsageSlot{};
  clear_gates(static_cast<uint32_t>(slot));
  taken_[static_cast<size_t>(slot)] = false;
  // A runner that died between its two additions leaves the sum too large, until the last one is gone.
  if (--taken_count_ > 0) return;
  page_->memory_used = charged_;
  page_->swapped = 0;
  page_->kept = 0;
  page_->asks = 0;
  for (auto& held : page_->held) held = 0;
}

// What the dead runner held is given back: the arbiter hears of it.
void UsagePageOwner::clear_gates(uint32_t slot) {
  GrantPage& grant_page = page_->grant_page;
  for (Gate& gate : grant_page.gates[slot]) {
    for (auto* counter : {&gate.begun, &gate.ended, &gate.asked, &gate.granted, &gate.open}) counter->store(0);
    gate.busy_ns = gate.own_ns = gate.paused_ns = gate.issued_ns = gate.beside_ns = gate.beside_own_ns =
        gate.unknown_ns = gate.own_time_slice_ns = gate.steps_ns = 0;
  }
  ++grant_page.generation[slot];
  if (set_pending(grant_page, slot) && !signal_event(doorbell_.get())) log::warn("the arbiter's doorbell is full");
}

void UsagePageOwner::open_gates() {
  GrantPage& grant_page = page_->grant_page;
  grant_page.no_arbiter = 1;
  for (uint32_t slot = 0; slot < kGateSlots; ++slot) {
    if (!taken_[slot]) continue;
    for (Gate& gate : grant_page.gates[slot]) futex_wake(&gate.granted);
  }
}

// As runners do: the sum grows first, so that two never pass the bound together.
bool UsagePageOwner::charge(uint64_t bytes) {
  if (bytes > INT64_MAX) return false;
  const auto amount = static_cast<int64_t>(bytes);
  const auto share = static_cast<int64_t>(std::min<uint64_t>(share_, INT64_MAX));
  int64_t used = page_->memory_used.load();
  do {
    if (used > share || amount > share - used) return false;
  } while (!page_->memory_used.compare_exchange_weak(used, used + amount));
  const uint64_t on_device = static_cast<uint64_t>(std::max<int64_t>(0, used + amount - page_->swapped.load()));
  if (resident_ < share_ && on_device > resident()) {
    page_->memory_used -= amount;
    return false;
  }
  charged_ += amount;
  return true;
}

void UsagePageOwner::uncharge(uint64_t bytes) {
  page_->memory_used -= static_cast<int64_t>(bytes);
  charged_ -= static_cast<int64_t>(bytes);
}

bool UsagePageOwner::charge(int slot, uint64_t bytes) {
  if (!charge(bytes)) return false;
  charged_ -= static_cast<int64_t>(bytes);
  page_->slots[slot].memory_bytes += static_cast<int64_t>(bytes);
  return true;
}

void UsagePageOwner::uncharge(int slot, uint64_t bytes) {
  page_->memory_used -= static_cast<int64_t>(bytes);
  page_->slots[slot].memory_bytes -= static_cast<int64_t>(bytes);
}

Usage UsagePageOwner::usage(int slot) const {
  const UsageSlot& from = page_->slots[slot];
  return {from.memory_bytes, from.swapped_bytes, from.swapped_in, from.swapped_out,  from.swap_moves,
          from.swap_wait_ns, from.swap_move_ns,  from.swap_made,  from.swap_mapped,  from.calls,
          from.launches,     from.bytes_in,      from.bytes_out,  from.bytes_device, from.compute_ns,
          from.copy_ns,      from.errors,        from.sticky,     read(from.slicing)};
}

EngineUse UsagePageOwner::engine_use(int slot) const {
  if (!taken_[static_cast<size_t>(slot)]) return {};
  const UsageSlot& from = page_->slots[slot];
  const Gate& gate = page_->grant_page.gates[static_cast<size_t>(slot)][kCompute];
  return {from.compute_ns, from.copy_ns, from.bytes_in, from.bytes_out, gate.begun != gate.ended};
}

Activity UsagePageOwner::activity() const {
  Activity activity{past_.calls, false};
  for (size_t slot = 0; slot < taken_.size(); ++slot) {
    if (!taken_[slot]) continue;
    activity.calls += page_->slots[slot].calls;
    for (const Gate& gate : page_->grant_page.gates[slot]) {
      activity.under_way |= gate.begun != gate.ended || gate.asked != gate.granted;
    }
  }
  return activity;
}

Usage UsagePageOwner::total() const {
  Usage sum = past_;
  for (size_t slot = 0; slot < taken_.size(); ++slot) {
    if (taken_[slot]) add(usage(static_cast<int>(slot)), &sum);
  }
  sum.memory_bytes = page_->memory_used;
  sum.swapped_bytes = page_->swapped;
  sum.sticky = 0;
  return sum;
}

void UsagePageOwner::set_memory_share(uint64_t bytes, uint64_t resident) {
  share_ = std::min<uint64_t>(bytes, INT64_MAX);
  largest_share_ = std::max(largest_share_, share_);
  resident_ = std::min(resident, share_);
  write_memory_limits();
}

void UsagePageOwner::set_order(const MemoryOrder& order) {
  // There is something to give up, or to make ready for that.
  const bool looks = order.beyond < order_.beyond || order.host_room > order_.host_room;
  order_ = order;
  write_memory_limits();
  page_->beyond = order.beyond;
  if (looks) kick_all();
}

void UsagePageOwner::kick_all() {
  for (const auto& [slot, kick] : kicks_) signal_event(kick);
}

uint64_t UsagePageOwner::resident() const {
  if (resident_ == share_) return resident_;
  return static_cast<uint64_t>(std::max<int64_t>(static_cast<int64_t>(resident_) + order_.beyond, 0));
}

// Host memory: what may have to lie there, and what is lent of the reservation.
void UsagePageOwner::write_memory_limits() {
  const uint64_t beyond = share_ - resident_;
  const uint64_t swap = std::min<uint64_t>(beyond + kSwapSlack + order_.host_room, INT64_MAX);
  limits_page_->memory_share = static_cast<int64_t>(share_);
  limits_page_->memory_reserved = static_cast<int64_t>(resident_);
  limits_page_->memory_coming = static_cast<int64_t>(resident_) + order_.coming;
  limits_page_->memory_resident = static_cast<int64_t>(resident());
  limits_page_->memory_swap = beyond ? static_cast<int64_t>(swap) : 0;
}

void UsagePageOwner::set_limits(const Limits& limits) {
  limits_ = limits;
  for (size_t i = 0; i < kLimitedObjects; ++i) limits_page_->most[i] = limits[i];
  limits_page_->stall_ms = stall_ms();
}

std::array<uint64_t, kLimitedCount> UsagePageOwner::held() const {
  std::array<uint64_t, kLimitedCount> held{};
  for (size_t i = 0; i < kLimitedObjects; ++i) {
    held[i] = static_cast<uint64_t>(std::max<int64_t>(0, page_->held[i].load()));
  }
  held[static_cast<size_t>(Limited::kProcesses)] = taken_count_;
  held[static_cast<size_t>(Limited::kStallMs)] = stall_owed_ms();
  return held;
}

}  // namespace bandsaw
