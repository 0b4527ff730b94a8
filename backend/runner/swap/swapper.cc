#include "backend/runner/swap/swapper.h"

#include <algorithm>
#include <bit>
#include <cstring>

#include "memory/base/log.h"

namespace bandsaw::runner {
namespace {

constexpr uint64_t kMapUnit = 2u << 20;  // of devices
constexpr uint64_t kChunksWanted = 16;
// Chunks that may come before anything has gone.
constexpr uint64_t kHeadroomChunks = swap::Exchange::kUnderWayMost;
// Work that has not ended by then may wait for what the program does next.
constexpr std::chrono::seconds kPatience{1};
// After that nothing moves for so many times as long.
constexpr int kPause = 10;

uint64_t ns(Clock::Point time) {
  return static_cast<uint64_t>(std::chrono::duration_cast<std::chrono::nanoseconds>(time.time_since_epoch()).count());
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
  const uint64_t fair = page_.resident() / kChunksWanted / kMapUnit * kMapUnit;
  return std::clamp(fair, kMapUnit, swap::kLargestChunk);
}

// Kept for what has to lie on the device, and as temporal swap space while chunks change places.
uint64_t Swapper::headroom() const {
  return std::min(page_.resident() / kChunksWanted, swap::kLargestChunk) * kHeadroomChunks;
}

bool Swapper::charge(int64_t bytes, bool on_device) {
  if (!on_device) return page_.charge_swapped(bytes);
  if (bytes > 0 && page_.room_on_device() < static_cast<uint64_t>(bytes) + headroom()) return false;
  return page_.charge(bytes);
}

bool Swapper::charge_move(uint64_t bytes, bool to_device) {
  if (!page_.move(bytes, to_device)) return false;
  count(to_device ? page_.slot().swapped_in : page_.slot().swapped_out, bytes);
  return true;
}

void Swapper::add(uint64_t allocation, uint64_t address, uint64_t bytes, bool on_device) {
  std::lock_guard lock(mutex_);
  chunks_.add(address, {.allocation = allocation, .bytes = bytes, .on_device = on_device});
  any_ = true;
}

void Swapper::remove(uint64_t address) {
  std::lock_guard lock(mutex_);
  chunks_.remove(address);
  any_ = !chunks_.empty();
}

void Swapper::pin(uint64_t address) {
  std::lock_guard lock(mutex_);
  chunks_.pin(address);
}

Swapper::Plan Swapper::plan() {
  const uint64_t room = page_.room_on_device(), keep = headroom();
  if (wanted_room_ != 0) return chunks_.make_room(wanted_room_ + keep / 2, room);
  return chunks_.bring(wanted_, room > keep ? room - keep : 0);
}

bool Swapper::admit(const wire::CheckedRecord& record) {
  const uint64_t needed = room_needed(record);
  const bool launches = record.opcode == wire::Opcode::kLaunch;
  if (stage_ != Stage::kNone) return !record.info->engine && needed == 0;
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
  chunks_.used(wanted_, ns(now));
  if (asked_by_ == record.seq || now < not_before_ || plan().empty()) return true;
  asked_by_ = record.seq;
  stage_ = Stage::kEnding;
  begun_ = now;
  return false;
}

void Swapper::issued(const wire::CheckedRecord& record) {
  if (record.seq == asked_by_) asked_by_ = 0;
  if (record.info->engine || record.info->order == wire::Order::kStream) ++issued_;
}

bool Swapper::advance(bool busy) {
  if (stage_ == Stage::kNone) return false;
  if (stage_ == Stage::kEnding && !busy) settle();
  if (stage_ == Stage::kSettling && settled_->load(std::memory_order_acquire)) {
    if (issued_ != issued_before_ || busy) {
      stage_ = Stage::kEnding;  // something came meanwhile that needs no gate
    } else {
      move();
      return end();
    }
  }
  const auto waited = clock_.now() - begun_;
  if (waited < kPatience) return false;
  log::info("work did not end within {} s: memory stays where it is for a while",
            std::chrono::duration_cast<std::chrono::seconds>(waited).count());
  not_before_ = clock_.now() + kPause * waited;
  return end();
}

bool Swapper::end() {
  stage_ = Stage::kNone;
  return true;
}

void Swapper::settle() {
  stage_ = Stage::kSettling;
  issued_before_ = issued_;
  settled_ = std::make_shared<std::atomic<bool>>(false);
  device_->settle([settled = settled_](CUresult) { settled->store(true, std::memory_order_release); });
}

// Nothing is on the device.
void Swapper::move() {
  std::unique_lock lock(mutex_);
  Plan now = plan();
  lock.unlock();
  const auto moved = [this](uint64_t chunk, bool to_device) {
    std::lock_guard guard(mutex_);
    chunks_.moved(chunk, to_device, ns(clock_.now()));
  };
  const Clock::Point begin = clock_.now();
  const CUresult result = device_->chunks_move({std::move(now.out), std::move(now.in), page_.room_on_device(), moved});
  count(page_.slot().swap_moves);
  count(page_.slot().swap_wait_ns, ns(begin) - ns(begun_));
  count(page_.slot().swap_move_ns, ns(clock_.now()) - ns(begin));
  if (result != CUDA_SUCCESS) log::debug("some memory cannot move: error {}", static_cast<int>(result));
}

}  // namespace bandsaw::runner
