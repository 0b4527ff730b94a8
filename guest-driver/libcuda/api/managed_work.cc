// Managed memory before work of the device: what the work may reach is brought there.
#include <sched.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>

#include "guest-driver/libcuda/api/function_pace.h"
#include "guest-driver/libcuda/api/managed_space.h"
#include "guest-driver/libcuda/core/transport.h"
#include "memory/base/clock.h"

namespace bandsaw::libcuda {
namespace {

using bandsaw::managed::Run;
using bandsaw::managed::ToDevice;

// nullptr: there is no managed memory to use.
std::shared_ptr<bandsaw::managed::StreamWork> work_of(const Call& call, uint64_t stream) {
  const bool counts = ManagedSpace::get().any() && !call.failed();
  return counts ? managed_work().of(work_stream(call, stream)) : nullptr;
}

}  // namespace

unsigned ManagedSpace::enter() {
  const unsigned parity = epoch_.load() & 1;
  issuing_[parity].fetch_add(1);
  return parity;
}

// Returns when no record is on its way that was begun before the caller made an allocation busy. Twice, because a
// thread may have read the epoch long before it counts itself.
void ManagedSpace::drain() {
  std::lock_guard lock(drain_mutex_);
  for (int turn = 0; turn < 2; ++turn) {
    const unsigned parity = epoch_.fetch_add(1) & 1;
    for (unsigned round = 0; issuing_[parity].load() != 0; ++round) {
      round < 64 ? static_cast<void>(sched_yield()) : static_cast<void>(usleep(20));
    }
  }
}

// Closes and copies, piece by piece: one is copied while the next is closed. All allocations are busy. What fails stays
// the host's.
CUresult ManagedSpace::carry_out(Call& call, const std::vector<Move>& moves) {
  CUresult result = CUDA_SUCCESS;
  Bounce last;
  uint64_t context = 0;
  for (const Move& move : moves) {
    const uint64_t before = context;
    context = working_context(call, *move.allocation->chunk);
    if (before && context != before && last.done.token) {  // another stream
      const CUresult ended = call.wait_done(last);
      if (result == CUDA_SUCCESS) result = ended;
    }
    for (const Run& piece : bandsaw::managed::pieces_of(move.plan.close)) {
      const uint64_t address = move.allocation->base + piece.offset;
      const int error = move.reads ? guard_->protect(address, piece.bytes) : guard_->take(address, piece.bytes);
      if (error && result == CUDA_SUCCESS) result = CUDA_ERROR_OUT_OF_MEMORY;
      std::vector<Run> parts = bandsaw::managed::parts_in(move.plan.copy, piece);
      std::erase_if(parts, [&](const Run& part) {
        return call.gpu().transport->untouched(move.allocation->base + part.offset, part.bytes);
      });
      if (result == CUDA_SUCCESS) result = copy(call, *move.allocation, parts, true, &last);
    }
  }
  if (last.done.token) {
    const CUresult ended = call.wait_done(last);
    if (result == CUDA_SUCCESS) result = ended;
  }
  if (result == CUDA_SUCCESS) return result;
  for (const Move& move : moves) {
    for (const Run& run : move.plan.close) guard_->forget(move.allocation->base + run.offset, run.bytes);
  }
  return result;
}

// With the lock.
void ManagedSpace::moved(const Move& move) {
  bandsaw::managed::Residency& residency = move.allocation->residency;
  if (move.reads) return residency.shared_with_device(move.plan);
  for (const Run& run : move.plan.take) residency.went_to_device(run, own_thread());
}

// `for_each` visits, with the lock, each allocation that the work reaches and what it reaches of it. Returns with the
// caller counted among those who put records into their rings, unless it fails.
template <typename ForEach>
CUresult ManagedSpace::make_resident(Call& call, ForEach for_each, const Reaches& reaches, unsigned* parity) {
  Lock lock(mutex_);
  for (;;) {
    std::vector<Move> moves;
    bool others = false;
    uint64_t keep_until = 0;
    for_each([&](Allocation* allocation, const Run& run, bool reads) {
      if (allocation->dying) return;
      if (allocation->busy) {
        others = true;
        return;
      }
      ToDevice plan = allocation->residency.to_device(run, reads);
      if (short_.load(std::memory_order_relaxed)) used(*allocation, run);
      if (plan.close.empty() && !lacks_backing(*allocation, plan.take)) {  // nothing to take from the program
        for (const Run& one : plan.take) allocation->residency.went_to_device(one, own_thread());
        if (!plan.empty()) recount(allocation);
        return;
      }
      const uint64_t until = allocation->residency.keep_until_ns(own_thread());
      if (until > static_cast<uint64_t>(monotonic_ns())) {
        keep_until = std::max(keep_until, until);
      } else {
        moves.push_back({allocation, std::move(plan), reads});
      }
    });
    if (moves.empty() && !others && !keep_until) break;
    if (moves.empty()) {
      const auto now = static_cast<uint64_t>(monotonic_ns());
      if (keep_until > now && !others) {
        changed_.wait_for(lock, std::chrono::nanoseconds(keep_until - now));
      } else {
        changed_.wait(lock);
      }
      continue;
    }
    for (const Move& move : moves) set_busy(move.allocation, true);
    lock.unlock();
    bool later = false;
    CUresult result = back(call, moves, reaches, &later);
    const bool backed = result == CUDA_SUCCESS;
    if (backed) result = carry_out(call, moves);
    lock.lock();
    for (const Move& move : moves) {
      if (result == CUDA_SUCCESS) moved(move);
      for (const Run& run : result != CUDA_SUCCESS && backed ? move.plan.close : std::vector<Run>{}) {
        move.allocation->residency.came_to_host(run, true);
      }
      set_busy(move.allocation, false);
    }
    if (later) changed_.wait_for(lock, std::chrono::milliseconds(1));
    if (result != CUDA_SUCCESS && !later) return result;
  }
  *parity = enter();  // with the lock: nobody can have made anything busy meanwhile
  return CUDA_SUCCESS;
}

DeviceWork::DeviceWork(Call& call, uint64_t stream, bool graph)
    : space_(ManagedSpace::get()), work_(work_of(call, stream)) {
  if (!work_) return;
  FunctionPace::get().await_turn();
  parity_ = space_.enter();
  if (space_.nothing_away()) {
    entered();
    return;
  }
  space_.leave(parity_);
  const auto own = work_stream(call, stream).key();
  const auto reaches = [&own, graph](const ManagedAllocation& one) {
    const bool others = one.attach == CU_MEM_ATTACH_SINGLE && !graph && one.stream.key() != own;
    return one.attach != CU_MEM_ATTACH_HOST && !others;
  };
  const auto reached = [&](auto visit) {
    for (auto next = space_.away_from_device_.begin(); next != space_.away_from_device_.end();) {
      ManagedAllocation* const allocation = *next++;  // a visit may take it out
      if (reaches(*allocation)) visit(allocation, Run{0, allocation->bytes}, false);
    }
    if (!space_.short_.load(std::memory_order_relaxed)) return;
    for (const auto& [base, allocation] : space_.allocations_) {
      if (reaches(*allocation)) space_.used(*allocation, {0, allocation->bytes});
    }
  };
  status_ = space_.make_resident(call, reached, reaches, &parity_);
  if (status_ == CUDA_SUCCESS) entered();
}

DeviceWork::DeviceWork(Call& call, uint64_t stream, std::initializer_list<ManagedSpan> spans)
    : space_(ManagedSpace::get()), work_(work_of(call, stream)) {
  if (!work_) return;
  FunctionPace::get().await_turn();
  const auto reached = [&](auto visit) {
    for (const ManagedSpan& span : spans) {
      ManagedAllocation* const allocation = space_.find(span.address);
      if (!allocation) continue;
      const uint64_t offset = span.address - allocation->base;
      visit(allocation, Run{offset, std::min(span.bytes, allocation->bytes - offset)}, span.reads);
    }
  };
  const auto reaches = [&spans](const ManagedAllocation& one) {
    return std::any_of(spans.begin(), spans.end(),
                       [&](const ManagedSpan& span) { return span.address - one.base < one.bytes; });
  };
  status_ = space_.make_resident(call, reached, reaches, &parity_);
  if (status_ == CUDA_SUCCESS) entered();
}

// While it is counted among those who make records: who waits for these sees that it has begun.
void DeviceWork::entered() {
  work_->begin();
  entered_ = true;
}

}  // namespace bandsaw::libcuda
