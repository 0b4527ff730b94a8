#include "backend/runner/execution/copy_pieces.h"

#include <sys/eventfd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "memory/base/eventfd.h"
#include "memory/base/log.h"

namespace bandsaw::runner {
namespace {

// At an open gate: while one is copied, the next is there.
constexpr uint32_t kInFlight = 2;
// Pieces may wait that long for earlier work on their stream before that work is taken to wait for this process.
constexpr std::chrono::seconds kStallTimeout{1};

// Fills are as launches: no engine of their own moves them.
uint64_t units_of(const Bulk& bulk, uint64_t bytes) {
  if (bulk.segment != 0) return bytes;
  return bulk.kind == BulkKind::kFill ? 1 : 1 + bytes / CopyPieces::kUnitBytes;
}

}  // namespace

// One copy on its way. The pieces on the device hold references.
struct CopyPieces::Flight {
  explicit Flight(Done told) : done(std::move(told)) {}

  // A piece has ended, or no more are issued.
  void end(CUresult outcome) {
    CUresult none = CUDA_SUCCESS;
    if (outcome != CUDA_SUCCESS) error.compare_exchange_strong(none, outcome);
    if (--left == 0) done(error);
  }

  const Done done;
  std::atomic<uint32_t> left{1};              // pieces that have not ended, and one while more may be issued
  std::atomic<CUresult> error{CUDA_SUCCESS};  // the first
};

CopyPieces::CopyPieces(GateView* gate, StreamOrder* order)
    : gate_(*gate), order_(*order), wake_(std::make_shared<UniqueFd>(eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC))) {}

CopyPieces::~CopyPieces() = default;

uint64_t CopyPieces::piece_bytes(const Bulk& bulk) const {
  const unsigned engine = index_of(bulk.engine);
  const uint64_t quantum = gate_.quantum_ns();
  return sizes_->bytes(engine, bulk.kind, gate_.is_open(engine) ? quantum : quantum / 2);
}

// Of `left`, how much the next piece has: all, if little more is left than that.
uint64_t CopyPieces::next_bytes(const Bulk& bulk, uint64_t left) const {
  if (bulk.segment != 0) return std::min(left, bulk.segment);
  if (left <= PieceSize::kLeast) return left;
  const uint64_t piece = piece_bytes(bulk);
  return left > piece + piece / 2 ? piece : left;
}

bool CopyPieces::enter(const Bulk& bulk) {
  const unsigned engine = index_of(bulk.engine);
  entered_ = bulk;
  first_ = gate_.is_governed() ? next_bytes(bulk, bulk.bytes) : bulk.bytes;
  cut_ = first_ < bulk.bytes;
  if (cut_) return gate_.enter_alone(engine, units_of(bulk, first_));
  if (bulk.id && gate_.counts_launches()) return gate_.enter_launch(*bulk.id);
  return gate_.enter(engine, units_of(bulk, bulk.bytes), bulk.id ? bulk.id->stream : 0);
}

CUresult CopyPieces::issue(Run& run, uint64_t most) {
  const unsigned engine = index_of(run.bulk.engine);
  const uint64_t before = run.work.left();
  ++run.flight->left;
  ++counts_->in_flight[engine];
  const CUresult result = run.work.issue(most, [flight = run.flight](CUresult outcome) { flight->end(outcome); });
  if (result != CUDA_SUCCESS) --run.flight->left;  // nobody will tell of its end
  const bool learns = result == CUDA_SUCCESS && run.bulk.segment == 0;
  const uint64_t bytes = learns ? before - run.work.left() : 0;
  gate_.leave(engine,
              [engine, kind = run.bulk.kind, bytes, sizes = sizes_, counts = counts_, wake = wake_](uint64_t busy_ns) {
                sizes->learn(engine, kind, bytes, busy_ns);
                --counts->in_flight[engine];
                ++counts->ended;
                if (!signal_event(wake->get())) log::warn("cannot tell of the end of a copy: {}", std::strerror(errno));
              });
  turns_[engine].had = true;
  moved_ = Clock::now();
  return result;
}

CUresult CopyPieces::begin(Work work) {
  cut_ = false;
  auto flight = std::make_shared<Flight>(std::move(work.done));
  Run run{std::move(work), entered_, std::move(flight)};
  if (const CUresult result = issue(run, first_)) return result;
  if (run.work.left() == 0) {
    run.flight->end(CUDA_SUCCESS);
    return CUDA_SUCCESS;
  }
  order_.add(run.work.stream_key);
  runs_.push_back(std::move(run));
  return CUDA_SUCCESS;
}

bool CopyPieces::holds(const void* ring) const {
  return std::any_of(runs_.begin(), runs_.end(), [&](const Run& run) { return run.work.ring.get() == ring; });
}

// At a closed gate the arbiter says how many are in flight.
bool CopyPieces::has_room(unsigned engine) const {
  return !gate_.is_open(engine) || counts_->in_flight[engine] < kInFlight;
}

CopyPieces::Runs::iterator CopyPieces::end(Runs::iterator run, CUresult result) {
  order_.remove(run->work.stream_key);
  run->flight->end(result);
  return runs_.erase(run);
}

bool CopyPieces::advance(bool turn, CUresult sticky) {
  if (runs_.empty()) return false;
  if (sticky != CUDA_SUCCESS) {
    while (!runs_.empty()) end(runs_.begin(), sticky);
    return true;
  }
  seen_ended_ = counts_->ended;
  bool any = false;
  std::array<bool, kEngines> closed{};
  auto next = runs_.begin();
  for (size_t count = runs_.size(); count > 0; --count) {
    const auto run = next++;
    const unsigned engine = index_of(run->bulk.engine);
    const bool others_turn = turn ? turns_[engine].had : turns_[engine].wanted;
    if (closed[engine] || others_turn || !has_room(engine)) continue;
    const uint64_t most = next_bytes(run->bulk, run->work.left());
    closed[engine] = !gate_.enter_alone(engine, units_of(run->bulk, most));
    if (closed[engine]) continue;
    any = true;
    const CUresult result = issue(*run, most);
    if (result != CUDA_SUCCESS || run->work.left() == 0) {
      end(run, result);
    } else {
      runs_.splice(runs_.end(), runs_, run);  // the others of this engine first
    }
  }
  return any;
}

bool CopyPieces::at_gate() const {
  return std::any_of(runs_.begin(), runs_.end(),
                     [&](const Run& run) { return gate_.waits(index_of(run.bulk.engine)); });
}

bool CopyPieces::moved() const { return !runs_.empty() && counts_->ended != seen_ended_; }

std::chrono::nanoseconds CopyPieces::longest_sleep() const {
  if (runs_.empty()) return std::chrono::nanoseconds::max();
  return std::max<std::chrono::nanoseconds>(moved_ + kStallTimeout - Clock::now(), std::chrono::microseconds(1));
}

bool CopyPieces::free_stalled(const std::function<bool(uint64_t stream_key)>& others_wait) {
  if (runs_.empty() || Clock::now() - moved_ < kStallTimeout) return false;
  moved_ = Clock::now();
  bool any = false;
  for (auto run = runs_.begin(); run != runs_.end();) {
    const unsigned engine = index_of(run->bulk.engine);
    if (counts_->in_flight[engine] == 0 || !others_wait(run->work.stream_key)) {
      ++run;
      continue;
    }
    any = true;
    CUresult result = CUDA_SUCCESS;
    while (result == CUDA_SUCCESS && run->work.left() != 0) {
      gate_.enter_unasked(engine);
      result = issue(*run, next_bytes(run->bulk, run->work.left()));
    }
    run = end(run, result);
  }
  return any;
}

}  // namespace bandsaw::runner
