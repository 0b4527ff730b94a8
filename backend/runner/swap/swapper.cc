#include "backend/runner/swap/swapper.h"

#include <algorithm>
#include <bit>
#include <cstring>
#include <thread>
#include <utility>

#include "memory/base/log.h"

namespace bandsaw::runner {
namespace {

constexpr uint64_t kMapUnit = 2u << 20;  // of devices
constexpr uint64_t kChunksWanted = 16;
// Chunks that may come before anything has gone.
constexpr uint64_t kHeadroomChunks = swap::Exchange::kUnderWayMost;
// Work that has not ended by then may wait for what the program does next.
constexpr std::chrono::seconds kPatience{1};
// After that nothing moves for what work needs for so many times as long.
constexpr int kPause = 10;
// Memory that is to come and does not within this time is not waited for.
constexpr std::chrono::milliseconds kComes{20};
constexpr std::chrono::seconds kLooksAnew{1};
// Others that are asked are woken again after this; they are not waited for if they give nothing for so long.
constexpr std::chrono::milliseconds kAsksAgain{2}, kFixedWaits{500};
// Of what others want back, so many chunks go in one move, and so many come back in one; where none can go, it is tried
// again after a while.
constexpr size_t kMoveAtOnce = 8 * swap::Exchange::kUnderWayMost;
// Of the reservation, what comes before it is needed.
constexpr uint64_t kAheadPart = 8;
constexpr std::chrono::milliseconds kLeavesAgain{100};

uint64_t ns(Clock::Point time) {
  return static_cast<uint64_t>(std::chrono::duration_cast<std::chrono::nanoseconds>(time.time_since_epoch()).count());
}

int64_t us(std::chrono::nanoseconds time) {
  return std::chrono::duration_cast<std::chrono::microseconds>(time).count();
}

// At most what an array of this shape takes; 0: the device refuses it.
uint64_t bytes_of(const vgpu_array& array) {
  constexpr uint64_t kElementMost = 16;
  uint64_t bytes = kElementMost;
  for (const uint64_t extent : {array.width, array.height, array.depth}) {
    if (__builtin_mul_overflow(bytes, std::max<uint64_t>(extent, 1), &bytes)) return 0;
  }
  return bytes;
}

// What a call takes of the device that cannot lie in host memory instead, about; 0: nothing.
uint64_t room_needed(const wire::CheckedRecord& record) {
  if (const auto args = wire::read_args<wire::MemoryCreateArgs>(record)) return args->size;
  if (const auto args = wire::read_args<wire::MemoryAllocAsyncArgs>(record)) return args->size;
  if (const auto args = wire::read_args<wire::ArrayCreateArgs>(record)) return bytes_of(args->asked);
  if (const auto args = wire::read_args<wire::MemoryAllocArgs>(record)) return std::min(args->size, kMapUnit);
  return 0;
}

}  // namespace

// Several fit on the device, whatever its size.
uint64_t Swapper::chunk_bytes() const {
  if (!page_.swaps()) return 0;
  const uint64_t fair = page_.reserved() / kChunksWanted / kMapUnit * kMapUnit;
  return std::clamp(fair, kMapUnit, swap::kLargestChunk);
}

// Kept for what has to lie on the device, and as temporal swap space while chunks change places.
uint64_t Swapper::headroom() const {
  return std::min(page_.reserved() / kChunksWanted, swap::kLargestChunk) * kHeadroomChunks;
}

bool Swapper::charge(int64_t bytes, bool on_device) {
  if (!on_device) return page_.charge_swapped(bytes);
  if (bytes > 0 && page_.room_on_device() < static_cast<uint64_t>(bytes) + headroom()) return false;
  return page_.charge(bytes);
}

bool Swapper::charge_fixed(int64_t bytes) {
  if (page_.charge(bytes)) return true;
  const auto wanted = static_cast<uint64_t>(bytes);
  std::lock_guard lock(fixed_);
  uint64_t room = page_.room_on_device();
  const auto possible = [&] { return page_.within_share(wanted) && wanted <= page_.resident(); };
  for (auto last = std::chrono::steady_clock::now(); page_.swaps() && possible();) {
    const auto now = std::chrono::steady_clock::now();
    if (page_.room_on_device() > room) last = now;
    room = page_.room_on_device();
    if (now - last > kFixedWaits || !page_.somebody_gives(UsagePageView::kMust, static_cast<int64_t>(ns(now)))) break;
    page_.ask(UsagePageView::kMust, wanted);
    if (ask_) ask_();
    std::this_thread::sleep_for(kAsksAgain);
    if (!page_.charge(bytes)) continue;
    page_.ask(UsagePageView::kMust, 0);
    return true;
  }
  page_.ask(UsagePageView::kMust, 0);
  return page_.charge(bytes);
}

bool Swapper::charge_move(uint64_t bytes, bool to_device) {
  if (!page_.move(bytes, to_device)) return false;
  count(to_device ? page_.slot().swapped_in : page_.slot().swapped_out, bytes);
  return true;
}

void Swapper::exchanged(uint64_t bytes) {
  count(page_.slot().swapped_in, bytes);
  count(page_.slot().swapped_out, bytes);
}

void Swapper::add(uint64_t allocation, uint64_t address, uint64_t bytes, bool on_device) {
  std::lock_guard lock(mutex_);
  chunks_.add(address, {.allocation = allocation, .bytes = bytes, .on_device = on_device});
  any_ = true;
  page_.set_movable(chunks_.movable());
}

void Swapper::remove(uint64_t address) {
  std::lock_guard lock(mutex_);
  chunks_.remove(address);
  any_ = !chunks_.empty();
  page_.set_movable(chunks_.movable());
}

void Swapper::pin(uint64_t address) {
  std::lock_guard lock(mutex_);
  chunks_.pin(address);
  page_.set_movable(chunks_.movable());
}

Swapper::Plan Swapper::plan() {
  const uint64_t room = page_.room_on_device(), keep = headroom();
  if (wanted_room_ != 0) return chunks_.make_room(wanted_room_ + keep / 2, room);
  return chunks_.bring(wanted_, room > keep ? room - keep : 0);
}

// Work has ended for what is wanted now: more than that comes with it where there is room, and in place of other chunks
// where it is known what follows. With mutex_.
void Swapper::bring_more(Plan* plan) const {
  const uint64_t room = page_.room_on_device(), keep = headroom(), free = room > keep ? room - keep : 0;
  const size_t most =
      std::min<size_t>(ahead_.most(), page_.reserved() / kAheadPart / std::max(chunk_bytes(), kMapUnit));
  chunks_.bring_ahead(wanted_, ahead_.since(), free, most, plan);
  chunks_.bring_back(free, kMoveAtOnce, plan);
}

// Unless something else goes. With mutex_.
bool Swapper::finds_no_room() { return lacks() > page_.room_on_device(); }

// What is to be free on the device for what is wanted. With mutex_.
uint64_t Swapper::lacks() const {
  if (wanted_room_ != 0) return wanted_room_ + headroom() / 2;
  const uint64_t away = chunks_.away(wanted_);
  return away == 0 ? 0 : away + headroom();
}

// Other processes of this virtual GPU that rest, or have more than their part, make room. With mutex_.
bool Swapper::others_give() {
  if (wanted_room_ != 0 && (wanted_room_ > page_.resident() || !page_.within_share(wanted_room_))) return false;
  const Clock::Point now = clock_.now();
  if (now < asks_not_before_ || !page_.somebody_gives(UsagePageView::kWork, static_cast<int64_t>(ns(now))))
    return false;
  const uint64_t room = page_.room_on_device();
  if (room != given_to_ || now - asked_ > kLooksAnew) given_ = now;
  given_to_ = room;
  if (now - given_ >= kComes) {
    asks_not_before_ = now + kLooksAnew;
    return false;
  }
  page_.ask(UsagePageView::kWork, std::min(lacks(), page_.resident()));
  if (now - asked_ >= kAsksAgain && ask_) {
    asked_ = now;
    ask_();
  }
  return true;
}

// What others want back, or other processes of this virtual GPU want.
uint64_t Swapper::to_leave() const {
  return std::max(page_.excess(), page_.asked_of_this(static_cast<int64_t>(ns(clock_.now()))));
}

// Others give up memory for this virtual GPU, or are to: it is sooner there than what would have to go and come back.
bool Swapper::more_comes() {
  const uint64_t resident = page_.resident();
  if (resident >= std::max(page_.coming(), page_.reserved())) return false;
  const Clock::Point now = clock_.now();
  if (resident != came_to_ || now - looked_ > kLooksAnew) came_ = now;
  came_to_ = resident;
  looked_ = now;
  return now - came_ < kComes;
}

void Swapper::note_work(bool finds_no_room) {
  if (page_.note_work(static_cast<int64_t>(ns(clock_.now())), finds_no_room) && tell_) tell_();
}

bool Swapper::admit(const wire::CheckedRecord& record) {
  const uint64_t needed = room_needed(record);
  const bool launches = record.opcode == wire::Opcode::kLaunch;
  if (stage_ != Stage::kNone) return !record.info->engine && needed == 0;
  if (record.info->engine) note_work(false);
  if ((!launches && needed == 0) || (asked_by_ != 0 && asked_by_ != record.seq)) return true;
  std::lock_guard lock(mutex_);
  wanted_.clear();
  wanted_room_ = needed;
  for (size_t at = 0; launches && at + sizeof(uint64_t) <= record.tail.size(); at += sizeof(uint64_t)) {
    uint64_t word = 0;
    std::memcpy(&word, record.tail.data() + at, sizeof word);
    chunks_.reach_allocation(word, &wanted_);
  }
  const Clock::Point now = clock_.now();
  const bool may_wait = asked_by_ != record.seq && now >= not_before_;
  if (may_wait && chunks_.away(wanted_) != 0) ahead_.waits(chunks_, wanted_);
  chunks_.used(wanted_, ns(now));
  if (!may_wait) return true;
  const bool finds_none = finds_no_room();
  if (finds_none) note_work(true);
  if (plan().empty() && !(finds_none && (more_comes() || others_give()))) return true;
  asked_by_ = record.seq;
  stage_ = Stage::kEnding;
  begun_ = now;
  return false;
}

void Swapper::issued(const wire::CheckedRecord& record) {
  if (record.seq == asked_by_) asked_by_ = 0;
  if (record.info->engine || record.info->order == wire::Order::kStream) ++issued_;
}

void Swapper::abandon(bool dead) {
  asked_by_ = 0;
  if (dead) leaves_not_before_ = Clock::Point::max();
  if (stage_ == Stage::kNone || (!dead && to_leave() != 0)) return;
  page_.ask(UsagePageView::kWork, 0);
  stage_ = Stage::kNone;
}

bool Swapper::begin_to_leave() {
  if (!any() || to_leave() == 0) return false;
  const Clock::Point now = clock_.now();
  if (now < leaves_not_before_) return false;
  std::lock_guard lock(mutex_);
  if (chunks_.make_way(1, 1).empty()) {
    leaves_not_before_ = now + kLeavesAgain;
    return false;
  }
  stage_ = Stage::kEnding;
  begun_ = now;
  return true;
}

// What others may have of this at once goes without waiting for new host memory.
void Swapper::prepare() {
  const auto movable =
      static_cast<uint64_t>(std::max<int64_t>(0, page_.slot().movable.load(std::memory_order_relaxed)));
  const uint64_t chunk = chunk_bytes(),
                 may_leave = chunk == 0 ? 0 : std::min(movable, page_.lendable()) / chunk * chunk;
  if (may_leave == prepared_) return;
  prepared_ = may_leave;
  device_->chunks_prepare(chunk, may_leave);
}

bool Swapper::advance(bool busy) {
  if (any() && stage_ == Stage::kNone) prepare();
  if (stage_ == Stage::kNone && !begin_to_leave()) return false;
  if (stage_ == Stage::kEnding && !busy) settle();
  if (stage_ == Stage::kSettling && settled_->load(std::memory_order_acquire)) {
    if (issued_ == issued_before_ && !busy) return settled();
    stage_ = Stage::kEnding;  // something came meanwhile that needs no gate
  }
  return clock_.now() - begun_ >= kPatience && give_up();
}

bool Swapper::give_up() {
  const auto waited = clock_.now() - begun_;
  log::info("work did not end within {} s: memory stays where it is for a while",
            std::chrono::duration_cast<std::chrono::seconds>(waited).count());
  if (asked_by_ != 0) not_before_ = clock_.now() + kPause * waited;
  leaves_not_before_ = clock_.now() + waited;
  return end();
}

bool Swapper::end() {
  page_.ask(UsagePageView::kWork, 0);
  stage_ = Stage::kNone;
  return true;
}

void Swapper::settle() {
  stage_ = Stage::kSettling;
  issued_before_ = issued_;
  settled_ = std::make_shared<std::atomic<bool>>(false);
  device_->settle([settled = settled_](CUresult) { settled->store(true, std::memory_order_release); });
}

// Nothing is on the device, and what others want back goes first. True: records may go on.
bool Swapper::settled() {
  if (to_leave() != 0 && make_way()) return false;
  if (asked_by_ == 0) return end();
  std::unique_lock lock(mutex_);
  const bool waits = finds_no_room() && (more_comes() || others_give());
  Plan next = waits ? Plan{} : plan();
  if (!waits && wanted_room_ == 0) bring_more(&next);
  lock.unlock();
  if (waits) {
    note_work(true);
    const Clock::Point now = clock_.now();
    count(page_.slot().swap_wait_ns, ns(now) - ns(std::exchange(begun_, now)));
    return false;
  }
  carry_out(std::move(next));
  return end();
}

// Some at a time, so that others get it while there is more to go. False: what is here does not go.
bool Swapper::make_way() {
  std::unique_lock lock(mutex_);
  Plan some = chunks_.make_way(to_leave(), kMoveAtOnce);
  lock.unlock();
  if (!some.empty() && carry_out(std::move(some))) return true;
  leaves_not_before_ = clock_.now() + kLeavesAgain;
  return false;
}

// True: all of it has moved.
bool Swapper::carry_out(Plan plan) {
  const auto moved = [this](uint64_t chunk, bool to_device) {
    std::lock_guard guard(mutex_);
    chunks_.moved(chunk, to_device, ns(clock_.now()));
    page_.set_movable(chunks_.movable());
  };
  const Clock::Point begin = clock_.now(), waited_since = begun_;
  const size_t goes = plan.out.size(), comes = plan.in.size();
  const CUresult result =
      device_->chunks_move({std::move(plan.out), std::move(plan.in), page_.room_on_device(), moved});
  count(page_.slot().swap_moves);
  count(page_.slot().swap_wait_ns, ns(begin) - ns(begun_));
  begun_ = clock_.now();
  count(page_.slot().swap_move_ns, ns(begun_) - ns(begin));
  log::debug("{} chunks out and {} in: waited {} us, moved {} us", goes, comes, us(begin - waited_since),
             us(begun_ - begin));
  if (result != CUDA_SUCCESS) log::debug("some memory cannot move: error {}", static_cast<int>(result));
  return result == CUDA_SUCCESS;
}

}  // namespace bandsaw::runner
