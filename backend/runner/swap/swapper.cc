#include "backend/runner/swap/swapper.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "memory/base/log.h"

namespace bandsaw::runner {
namespace {

// Work that has not ended by then may wait for what the program does next.
constexpr std::chrono::seconds kPatience{1};
// After that nothing moves for what work needs for so many times as long.
constexpr int kPause = 10;
// Memory that is to come and does not within this time is not waited for.
constexpr std::chrono::milliseconds kComes{20};
constexpr std::chrono::seconds kLooksAnew{1};
// Chunks that come in one move where there is room, and what part of the reservation comes before it is needed.
constexpr size_t kComeAtOnce = 32;
constexpr uint64_t kAheadPart = 8;

int64_t microseconds(std::chrono::nanoseconds time) {
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

Swapper::Plan Swapper::plan(const Chunks& chunks) const {
  if (wanted_room_ != 0) return chunks.make_room(wanted_room_ + book_.headroom() / 2, page_.room_on_device());
  return chunks.bring(wanted_, book_.free_room());
}

// Work has ended for what is wanted now: more than that comes with it where there is room, and in place of other chunks
// where it is known what follows, unless more room comes: then nothing goes that would come back.
Swapper::Plan Swapper::plan_with_more(const Chunks& chunks, bool room_comes) const {
  Plan made = plan(chunks);
  if (wanted_room_ != 0) return made;
  const uint64_t room = book_.free_room();
  const uint64_t most = page_.reserved() / kAheadPart / std::max(book_.chunk_bytes(), kMapUnit);
  if (!room_comes) chunks.bring_ahead(wanted_, ahead_.since(), room, std::min<uint64_t>(ahead_.most(), most), &made);
  chunks.bring_back(room, kComeAtOnce, &made);
  return made;
}

// What is to be free on the device for what is wanted.
uint64_t Swapper::lacks(const Chunks& chunks) const {
  if (wanted_room_ != 0) return wanted_room_ + book_.headroom() / 2;
  const uint64_t away = chunks.away(wanted_);
  return away == 0 ? 0 : away + book_.headroom();
}

// Others make it: it is sooner there than what would have to go and come back.
bool Swapper::waits_for_room(uint64_t lacks) {
  return lacks > page_.room_on_device() && (more_comes() || others_give(lacks));
}

// Other processes of this virtual GPU that rest, or have more than their part, make room.
bool Swapper::others_give(uint64_t lacks) {
  if (wanted_room_ != 0 && (wanted_room_ > page_.resident() || !page_.within_share(wanted_room_))) return false;
  const Clock::Point now = clock_.now();
  const auto at = static_cast<int64_t>(nanoseconds(now));
  if (now < asks_not_before_ || !page_.somebody_gives(UsagePageView::kWork, at)) return false;
  const uint64_t room = page_.room_on_device();
  if (room != given_to_ || now - asked_ > kLooksAnew) given_ = now;
  given_to_ = room;
  if (now - given_ >= kComes) {
    asks_not_before_ = now + kLooksAnew;
    return false;
  }
  page_.ask(UsagePageView::kWork, std::min(lacks, page_.resident()));
  if (now - asked_ >= ChunkBook::kAsksAgain) {
    asked_ = now;
    book_.ask();
  }
  return true;
}

// Other virtual GPUs give up memory for this one, or are to.
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
  if (page_.note_work(static_cast<int64_t>(nanoseconds(clock_.now())), finds_no_room) && tell_) tell_();
}

bool Swapper::admit(const wire::CheckedRecord& record, bool node) {
  if (!node && !may_go_on(record)) return false;
  reaching_.open(record, node);
  return true;
}

bool Swapper::may_go_on(const wire::CheckedRecord& record) {
  const uint64_t needed = room_needed(record);
  const bool launches = record.opcode == wire::Opcode::kLaunch;
  if (stage_ != Stage::kNone) return !record.info->engine && needed == 0;
  if (record.info->engine) note_work(false);
  if ((!launches && needed == 0) || (asked_by_ != 0 && asked_by_ != record.seq)) return true;
  wanted_.clear();
  wanted_room_ = needed;
  const Clock::Point now = clock_.now();
  const bool may_wait = asked_by_ != record.seq && now >= not_before_;
  uint64_t lacking = 0;
  const bool moves = book_.with_chunks([&](Chunks& chunks) {
    for (size_t at = 0; launches && at + sizeof(uint64_t) <= record.tail.size(); at += sizeof(uint64_t)) {
      uint64_t word = 0;
      std::memcpy(&word, record.tail.data() + at, sizeof word);
      chunks.reach_allocation(word, &wanted_);
    }
    if (may_wait) lacking = lacks(chunks);
    if (launches && lacking != 0) ahead_.waits(chunks, wanted_);
    chunks.used(wanted_, nanoseconds(now));
    return lacking != 0 && !plan(chunks).empty();
  });
  if (lacking == 0) return true;
  if (lacking > page_.room_on_device()) note_work(true);
  if (!moves && !waits_for_room(lacking)) return true;
  asked_by_ = record.seq;
  begin_to_end(now);
  return false;
}

void Swapper::begin_to_end(Clock::Point now) {
  stage_ = Stage::kEnding;
  begun_ = now;
}

void Swapper::issued(const wire::CheckedRecord& record) {
  if (record.seq == asked_by_) asked_by_ = 0;
  if (record.info->engine || record.info->order == wire::Order::kStream) ++issued_;
}

void Swapper::abandon(bool dead) {
  asked_by_ = 0;
  if (dead) giving_.not_before(Clock::Point::max());
  if (stage_ == Stage::kNone || (!dead && giving_.wanted() != 0)) return;
  end();
}

bool Swapper::advance(bool busy) {
  if (stage_ == Stage::kNone) {
    if (any()) giving_.prepare(device_);
    if (!giving_.begins()) return false;
    begin_to_end(clock_.now());
  }
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
  giving_.not_before(clock_.now() + waited);
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
  if (giving_.wanted() != 0 && make_way()) return false;
  if (asked_by_ == 0) return end();
  if (waits_for_room(book_.with_chunks([this](const Chunks& chunks) { return lacks(chunks); }))) {
    note_work(true);
    const Clock::Point now = clock_.now();
    count(page_.slot().swap_wait_ns, nanoseconds(now) - nanoseconds(std::exchange(begun_, now)));
    return false;
  }
  const bool room_comes = more_comes();
  carry_out(book_.with_chunks([&](const Chunks& chunks) { return plan_with_more(chunks, room_comes); }));
  return end();
}

// False: what is here does not go.
bool Swapper::make_way() {
  Plan some = giving_.next();
  if (!some.empty() && carry_out(std::move(some))) return true;
  giving_.failed();
  return false;
}

// True: all of it has moved.
bool Swapper::carry_out(Plan plan) {
  const Clock::Point begin = clock_.now(), waited_since = begun_;
  const size_t goes = plan.out.size(), comes = plan.in.size();
  const bool apart = reaching_.may_leave_apart();
  const auto moved = [this, apart](uint64_t chunk, bool to_device) {
    book_.moved(chunk, to_device, apart);
    if (asked_by_ != 0) note_work(false);  // who waits for its memory does not rest
  };
  const CUresult result =
      device_->chunks_move({std::move(plan.out), std::move(plan.in), page_.room_on_device(), moved, apart});
  reaching_.moved(apart);
  begun_ = clock_.now();
  count(page_.slot().swap_moves);
  count(page_.slot().swap_wait_ns, nanoseconds(begin) - nanoseconds(waited_since));
  count(page_.slot().swap_move_ns, nanoseconds(begun_) - nanoseconds(begin));
  log::debug("{} chunks out and {} in: waited {} us, moved {} us", goes, comes, microseconds(begin - waited_since),
             microseconds(begun_ - begin));
  if (result != CUDA_SUCCESS) log::debug("some memory cannot move: error {}", static_cast<int>(result));
  return result == CUDA_SUCCESS;
}

}  // namespace bandsaw::runner
