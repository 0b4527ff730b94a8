#include "backend/device/soft/timing/load_store.h"

#include <algorithm>

namespace bandsaw::soft::timing {

LoadStoreUnit::LoadStoreUnit(const Machine& machine, uint32_t sm, uint32_t requeue_slots, MemorySystem* memory,
                             LostLocality* lost)
    : machine_(machine),
      sm_(sm),
      requeue_slots_(requeue_slots),
      memory_(memory),
      lost_(lost),
      l1d_(machine.l1d, machine.l1d_misses, machine.merged_misses) {}

void LoadStoreUnit::push(uint32_t warp, Kind kind, const Cursor::Access& access, uint64_t tag) {
  const uint32_t running = next_running_++;
  running_[running] = {tag, std::max<uint32_t>(1, static_cast<uint32_t>(access.lines.size() / 2))};
  queue_.push_back({warp, kind, access, 0, running});
}

void LoadStoreUnit::count_down(uint32_t running, std::vector<uint64_t>* ended) {
  const auto found = running_.find(running);
  if (--found->second.left != 0) return;
  ended->push_back(found->second.tag);
  running_.erase(found);
}

void LoadStoreUnit::step(uint64_t now, std::vector<uint64_t>* ended) {
  for (auto* later : {&hits_, &shared_}) {
    while (!later->empty() && later->front().at <= now) {
      count_down(later->front().running, ended);
      later->pop_front();
    }
  }
  const bool full = requeue_slots_ != 0 && requeued_.size() >= requeue_slots_;
  if (queue_.empty() || full)
    step_requeued(now);
  else
    step_queue(now);
}

void LoadStoreUnit::step_queue(uint64_t now) {
  Queued& head = queue_.front();
  if (head.access.lines.empty()) {  // banks, or no lane at all
    ++counts_.bank_turns;
    if (head.access.bank_turns > 1) {
      --head.access.bank_turns;
      return;
    }
    shared_.push_back({now + machine_.shared_latency, head.running});
    queue_.pop_front();
    return;
  }
  step_line(&head, now);
  if (2 * head.next == head.access.lines.size()) queue_.pop_front();
}

void LoadStoreUnit::step_line(Queued* head, uint64_t now) {
  const Line line{head->warp, head->kind, line_at(head->access.lines, head->next),
                  sectors_at(head->access.lines, head->next), head->running};
  const bool waits = must_wait(line, requeued_.size());
  if (!waits && try_line(line, now)) {
    ++head->next;
    return;
  }
  if (!waits) ++counts_.refused;
  if (requeue_slots_ == 0) return;
  requeued_.push_back(line);
  ++counts_.requeued;
  ++head->next;
}

// Behind others of its warp among the first `before` of the queue: loads pass loads, and nothing else.
bool LoadStoreUnit::must_wait(const Line& line, size_t before) const {
  for (size_t i = 0; i < before; ++i) {
    if (requeued_[i].warp != line.warp) continue;
    if (requeued_[i].kind != Kind::kLoad || line.kind != Kind::kLoad) return true;
  }
  return false;
}

// One a cycle, in turns.
void LoadStoreUnit::step_requeued(uint64_t now) {
  for (size_t tried = 0; tried < requeued_.size(); ++tried) {
    if (turn_ >= requeued_.size()) turn_ = 0;
    const Line line = requeued_[turn_];
    if (must_wait(line, turn_)) {
      ++turn_;
      continue;
    }
    if (try_line(line, now))
      requeued_.erase(requeued_.begin() + static_cast<ptrdiff_t>(turn_));
    else
      ++turn_;
    return;
  }
}

bool LoadStoreUnit::try_line(const Line& line, uint64_t now) {
  if (line.kind == Kind::kLoad) return try_read(line, now);
  if (!memory_->accepts(sm_)) return false;
  l1d_.drop(line.line);
  if (lost_) lost_->dropped(line.line);
  const bool atomic = line.kind == Kind::kAtomic;
  memory_->send({atomic ? MemoryRequest::Kind::kAtomic : MemoryRequest::Kind::kStore, sm_, line.line, line.sectors,
                 line.running});
  if (!atomic) hits_.push_back({now + machine_.hit_latency, line.running});
  return true;
}

bool LoadStoreUnit::try_read(const Line& line, uint64_t now) {
  if (!memory_->accepts(sm_) && !l1d_.knows(line.line, line.sectors)) return false;
  uint64_t evicted = 0;
  const Access access = l1d_.read(line.line, line.sectors, line.running, &evicted);
  if (access == Access::kRefused) return false;
  ++counts_.l1_reads;
  if (access == Access::kHit) {
    ++counts_.l1_hits;
    hits_.push_back({now + machine_.hit_latency, line.running});
  } else if (access == Access::kMiss) {
    if (lost_) lost_->missed(line.warp, line.line, l1d_.displaced());
    memory_->send({MemoryRequest::Kind::kData, sm_, line.line, l1d_.wanted(), 0});
  }
  return true;
}

void LoadStoreUnit::arrived(const MemoryRequest& answer, std::vector<uint64_t>* ended) {
  if (answer.kind == MemoryRequest::Kind::kAtomic) return count_down(static_cast<uint32_t>(answer.tag), ended);
  for (const uint64_t waiter : l1d_.fill(answer.line, answer.sectors)) count_down(static_cast<uint32_t>(waiter), ended);
}

}  // namespace bandsaw::soft::timing
