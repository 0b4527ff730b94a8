#include "backend/device/soft/timing/sm.h"

#include <algorithm>

namespace bandsaw::soft::timing {
namespace {

constexpr uint64_t kCodeLines = uint64_t{1} << 57;  // apart from all data
constexpr uint64_t kPrefetched = UINT64_MAX;        // nobody waits for it
constexpr uint32_t kFetchedAtOnce = 2;

}  // namespace

Sm::Sm(const Machine& machine, const Scheduling& scheduling, const LaunchTrace& launch, const Code& code,
       const ProgramPoints& points, uint32_t number, uint32_t block_slots, MemorySystem* memory)
    : machine_(machine),
      scheduling_(scheduling),
      launch_(launch),
      code_(code),
      points_(points),
      number_(number),
      block_slots_(block_slots),
      memory_(memory),
      lost_(scheduling.policy == kLostLocalityPolicy ? std::optional<LostLocality>(block_slots * launch.block_warps())
                                                     : std::nullopt),
      limit_(scheduling.policy == kBlockLimitPolicy ? std::optional<BlockLimit>(block_slots) : std::nullopt),
      load_store_(machine, number, scheduling.requeue_slots, memory, lost_ ? &*lost_ : nullptr),
      l1i_(machine.l1i, machine.l1i_misses, UINT32_MAX),
      warps_(size_t{block_slots} * launch.block_warps()),
      block_states_(block_slots),
      schedulers_(machine.schedulers) {
  for (uint32_t slot = 0; slot < warps_.size(); ++slot) schedulers_[slot % schedulers_.size()].slots.push_back(slot);
  for (Scheduler& scheduler : schedulers_) {
    scheduler.policy = make_warp_policy(scheduling.policy);
    fetch_policies_.push_back(make_warp_policy(scheduling.policy == "elf" ? "elf" : "lrr"));
  }
}

void Sm::begin_block(std::span<const WarpTrace> traces) {
  uint32_t slot = 0;
  while (block_states_[slot].warps != 0) ++slot;
  Block& block = block_states_[slot];
  block = {};
  block.age = next_block_age_++;
  ++blocks_;
  const uint32_t first = slot * launch_.block_warps();
  for (const WarpTrace& trace : traces) {
    Warp& warp = warps_[first + trace.warp];
    warp.cursor = Cursor(&code_, trace.words);
    warp.age = next_age_++;
    if (lost_) lost_->begin_warp(first + trace.warp, warp.age);
    warp.block = slot;
    warp.there = true;
    warp.ended = false;
    warp.buffered = 0;
    warp.fetch_from = 0;
    warp.awaits_code = false;
    warp.barrier = -1;
    warp.held_until = 0;
    warp.ready.assign(code_.registers, 0);
    warp.distance = warp.cursor.done() ? kMostScore : points_.distance(warp.cursor.counter());
    ++block.warps;
    ++block.living;
  }
  for (const WarpTrace& trace : traces) end_if_done(&warps_[first + trace.warp], 0);
  if (traces.empty()) --blocks_;
}

void Sm::step(uint64_t now) {
  take_answers(now);
  ended_.clear();
  load_store_.step(now, &ended_);
  for (const uint64_t tag : ended_) end_access(tag, now);
  if (limit_) limit_blocks();
  if (lost_) lost_->step();
  issued_ = false;
  all_wait_for_memory_ = true;
  for (Scheduler& scheduler : schedulers_) schedule(&scheduler, now);
  if (limit_ && blocks_ != 0)
    limit_->step(issued_                ? BlockLimit::Cycle::kBusy
                 : all_wait_for_memory_ ? BlockLimit::Cycle::kMemory
                                        : BlockLimit::Cycle::kIdle);
  fetch(now);
}

void Sm::limit_blocks() {
  newest_age_ = UINT64_MAX;
  if (blocks_ <= limit_->limit()) return;
  block_ages_.clear();
  for (const Block& block : block_states_)
    if (block.warps != 0) block_ages_.push_back(block.age);
  std::sort(block_ages_.begin(), block_ages_.end());
  newest_age_ = block_ages_[limit_->limit() - 1];
}

bool Sm::stands_still(const Warp& warp) const { return block_states_[warp.block].age > newest_age_; }

void Sm::take_answers(uint64_t now) {
  for (const MemoryRequest& answer : memory_->take_arrived(number_, now)) {
    if (answer.kind == MemoryRequest::Kind::kInstruction) {
      for (const uint64_t waiter : l1i_.fill(answer.line, answer.sectors))
        if (waiter != kPrefetched) warps_[waiter].awaits_code = false;
      continue;
    }
    ended_.clear();
    load_store_.arrived(answer, &ended_);
    for (const uint64_t tag : ended_) end_access(tag, now);
  }
}

void Sm::end_access(uint64_t tag, uint64_t now) {
  const auto found = loads_.find(tag);
  Warp& warp = warps_[found->second.slot];
  for (const uint32_t reg : *found->second.registers) warp.ready[reg] = now;
  loads_.erase(found);
  --warp.outstanding;
  end_if_done(&warp, now);
}

Sm::Hold Sm::hold(const Warp& warp, const Scheduler& scheduler, uint64_t now) const {
  if (warp.barrier >= 0 || warp.held_until > now) return Hold::kBarrier;
  if (warp.buffered == 0 || warp.usable_at > now) return Hold::kFetch;
  const Instruction& next = warp.cursor.instruction();
  Hold worst = Hold::kNone;
  for (const auto* registers : {&next.reads, &next.writes}) {
    for (const uint32_t reg : *registers) {
      if (warp.ready[reg] == kFromMemory) return Hold::kDependency;
      if (warp.ready[reg] > now) worst = Hold::kOther;
    }
  }
  if (worst != Hold::kNone) return worst;
  switch (next.kind) {
    case Kind::kLoad:
    case Kind::kStore:
    case Kind::kAtomic:
      if (lost_ && next.global_load && !lost_->may_load(slot_of(warp))) return Hold::kThrottled;
      return load_store_.accepts() ? Hold::kNone : Hold::kConflict;
    case Kind::kSpecial:
      return scheduler.special_free <= now ? Hold::kNone : Hold::kOther;
    case Kind::kDouble:
      return scheduler.double_free <= now ? Hold::kNone : Hold::kOther;
    case Kind::kMatrix:
      return scheduler.matrix_free <= now ? Hold::kNone : Hold::kOther;
    default:
      return Hold::kNone;
  }
}

void Sm::schedule(Scheduler* scheduler, uint64_t now) {
  views_.clear();
  holds_.clear();
  for (uint32_t i = 0; i < scheduler->slots.size(); ++i) {
    const Warp& warp = warps_[scheduler->slots[i]];
    if (!warp.there || warp.cursor.done() || stands_still(warp)) continue;
    const Hold held = hold(warp, *scheduler, now);
    views_.push_back(
        {i, warp.age, warp.distance, held == Hold::kNone, held == Hold::kDependency || held == Hold::kBarrier});
    holds_.push_back(held);
    if (held != Hold::kDependency && held != Hold::kConflict) all_wait_for_memory_ = false;
  }
  if (const auto chosen = scheduler->policy->pick(views_)) {
    Warp* const warp = &warps_[scheduler->slots[views_[*chosen].slot]];
    return issue(warp, scheduler, now);
  }
  if (views_.empty())
    ++counts_.empty;
  else
    count_stall(holds_);
}

void Sm::count_stall(const std::vector<Hold>& holds) {
  const auto any = [&](Hold held) { return std::find(holds.begin(), holds.end(), held) != holds.end(); };
  Stalls& stalls = counts_.stalls;
  ++(any(Hold::kConflict)     ? stalls.conflict
     : any(Hold::kDependency) ? stalls.dependency
     : any(Hold::kFetch)      ? stalls.fetch
     : any(Hold::kBarrier)    ? stalls.barrier
                              : stalls.other);
}

void Sm::issue(Warp* warp, Scheduler* scheduler, uint64_t now) {
  issued_ = true;
  if (lost_) lost_->issued();
  ++counts_.instructions;
  counts_.thread_instructions += warp->cursor.lanes();
  execute(warp, scheduler, now);
  const Instruction& issued = warp->cursor.instruction();
  advance(warp, now);
  if (issued.kind == Kind::kBarrier || issued.kind == Kind::kArrive) arrive(warp, issued, now);
  end_if_done(warp, now);
}

void Sm::execute(Warp* warp, Scheduler* scheduler, uint64_t now) {
  const Instruction& one = warp->cursor.instruction();
  switch (one.kind) {
    case Kind::kLoad:
    case Kind::kStore:
    case Kind::kAtomic:
      return push_access(warp, now);
    case Kind::kSpecial:
      scheduler->special_free = now + machine_.special_interval;
      break;
    case Kind::kDouble:
      scheduler->double_free = now + machine_.double_interval;
      break;
    case Kind::kMatrix:
      scheduler->matrix_free = now + machine_.matrix_interval;
      break;
    default:
      break;
  }
  for (const uint32_t reg : one.writes) warp->ready[reg] = now + machine_.latency_of(one.kind);
}

void Sm::push_access(Warp* warp, uint64_t now) {
  const Instruction& one = warp->cursor.instruction();
  const Cursor::Access access = warp->cursor.take_access();
  if (access.bank_turns == 0 && access.lines.empty()) {  // no lane does it
    for (const uint32_t reg : one.writes) warp->ready[reg] = now + 1;
    return;
  }
  for (const uint32_t reg : one.writes) warp->ready[reg] = kFromMemory;
  loads_[next_tag_] = {slot_of(*warp), &one.writes};
  ++warp->outstanding;
  load_store_.push(slot_of(*warp), one.kind, access, next_tag_++);
}

void Sm::advance(Warp* warp, uint64_t now) {
  const uint32_t before = warp->cursor.counter();
  warp->cursor.advance();
  --warp->buffered;
  if (warp->cursor.done()) return;
  const uint32_t next = warp->cursor.counter();
  if (next != before + 1) {  // what was fetched is of no use; where to go on is known when the branch has been executed
    warp->buffered = 0;
    warp->fetch_from = now + machine_.simple_latency;
  }
  if (points_.changes(before, next)) {
    ++counts_.look_ups;
    warp->distance = points_.distance(next);
  } else if (warp->distance != 0 && warp->distance != kMostScore) {
    --warp->distance;
  }
}

void Sm::pass_barrier(Warp* warp, uint64_t now) const {
  warp->barrier = -1;
  warp->held_until = now + machine_.barrier_latency;
}

void Sm::arrive(Warp* warp, const Instruction& at, uint64_t now) {
  Block& block = block_states_[warp->block];
  const uint32_t arrived = ++block.arrived[at.barrier];
  if (at.kind == Kind::kBarrier) warp->barrier = static_cast<int32_t>(at.barrier & INT32_MAX);
  const uint32_t wanted = at.barrier_threads ? (at.barrier_threads + kMostLanes - 1) / kMostLanes : block.living;
  if (arrived < std::min(wanted, block.living)) return release(warp->block, now);
  block.arrived.erase(at.barrier);
  for (Warp& other : warps_)
    if (other.there && other.block == warp->block && other.barrier == static_cast<int32_t>(at.barrier & INT32_MAX))
      pass_barrier(&other, now);
}

// All that live wait: for warps that have ended, or of which the trace was cut.
void Sm::release(uint32_t number, uint64_t now) {
  Block& block = block_states_[number];
  const auto waits = [&](const Warp& warp) { return warp.there && warp.block == number && warp.barrier >= 0; };
  if (std::count_if(warps_.begin(), warps_.end(), waits) < block.living) return;
  block.arrived.clear();
  for (Warp& warp : warps_)
    if (waits(warp)) pass_barrier(&warp, now);
}

// A warp at its end no longer counts at barriers; it leaves when its accesses have ended too.
void Sm::end_if_done(Warp* warp, uint64_t now) {
  if (!warp->there || !warp->cursor.done()) return;
  Block& block = block_states_[warp->block];
  if (!warp->ended) {
    warp->ended = true;
    warp->barrier = -1;
    --block.living;
    if (block.living != 0) release(warp->block, now);
  }
  if (warp->outstanding != 0) return;
  warp->there = false;
  if (lost_) lost_->end_warp(slot_of(*warp));
  if (--block.warps == 0) --blocks_;
}

void Sm::fetch(uint64_t now) {
  uint32_t left = machine_.fetches;
  for (size_t i = 0; i < schedulers_.size() && left != 0; ++i) {
    const size_t number = (now + i) % schedulers_.size();
    views_.clear();
    const auto& slots = schedulers_[number].slots;
    for (uint32_t at = 0; at < slots.size(); ++at) {
      const Warp& warp = warps_[slots[at]];
      if (!warp.there || warp.cursor.done() || warp.awaits_code || warp.fetch_from > now) continue;
      if (stands_still(warp)) continue;
      if (warp.buffered >= machine_.instruction_buffer) continue;
      if (warp.cursor.counter() + warp.buffered >= code_.instructions.size()) continue;
      views_.push_back({at, warp.age, warp.distance, true, false});
    }
    if (const auto chosen = fetch_policies_[number]->pick(views_)) {
      fetch_for(&warps_[slots[views_[*chosen].slot]], now);
      --left;
    }
  }
}

void Sm::fetch_for(Warp* warp, uint64_t now) {
  const uint64_t address = uint64_t{warp->cursor.counter() + warp->buffered} * machine_.instruction_bytes;
  const uint64_t line = kCodeLines + address / kLineBytes * kLineBytes;
  ++counts_.fetches;
  uint64_t evicted = 0;
  if (machine_.warm_code) l1i_.bring(line, &evicted);
  if (!memory_->accepts(number_) && !l1i_.knows(line, kAllSectors)) return;
  switch (l1i_.read(line, kAllSectors, slot_of(*warp), &evicted)) {
    case Access::kHit: {
      ++counts_.fetch_hits;
      const auto left = static_cast<uint32_t>((kLineBytes - address % kLineBytes) / machine_.instruction_bytes);
      if (warp->buffered == 0) warp->usable_at = now + 1;
      warp->buffered += std::min({kFetchedAtOnce, machine_.instruction_buffer - warp->buffered, left});
      break;
    }
    case Access::kMiss:
      memory_->send({MemoryRequest::Kind::kInstruction, number_, line, kAllSectors, 0});
      [[fallthrough]];
    case Access::kMerged:
      warp->awaits_code = true;
      break;
    case Access::kRefused:
      return;
  }
  prefetch(line + kLineBytes);
}

void Sm::prefetch(uint64_t line) {
  const uint64_t code_bytes = code_.instructions.size() * machine_.instruction_bytes;
  if (l1i_.on_their_way() + load_store_.misses() >= scheduling_.prefetch_threshold) return;
  if (line - kCodeLines >= code_bytes || l1i_.knows(line, kAllSectors) || !memory_->accepts(number_)) return;
  uint64_t evicted = 0;
  if (l1i_.read(line, kAllSectors, kPrefetched, &evicted) != Access::kMiss) return;
  memory_->send({MemoryRequest::Kind::kInstruction, number_, line, kAllSectors, 0});
  ++counts_.prefetches;
}

}  // namespace bandsaw::soft::timing
