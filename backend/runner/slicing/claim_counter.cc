#include "backend/runner/slicing/claim_counter.h"

namespace bandsaw::runner {

void ClaimCounter::put_into(CloneLaunch* launch, uint32_t blocks) const {
  const KernelClone& clone = launch->clone();
  launch->set(clone.counter_at, block_->address);
  launch->set(clone.stop_at, block_->address + ControlBlock::kStopAt);
  launch->set(clone.blocks_at, blocks);
  if (clone.limit_at != 0) {
    launch->set(clone.sm_counters_at, block_->sm_counters_address);
    launch->set(clone.limit_at, block_->address + ControlBlock::kLimitAt);
  }
  if (clone.places_at != 0) {
    launch->set(clone.places_at, block_->places_address);
    launch->set(clone.first_place_at, uint32_t{0});
  }
  if (clone.redo_at == 0) return;
  launch->set(clone.redo_at, block_->redo_address);
  launch->set(clone.redo_end_at, uint32_t{0});
  launch->set(clone.redo_mask_at, ControlBlock::kRedoPlaces - 1);
}

CUresult ClaimCounter::begin(const StreamRef& stream, uint32_t next) {
  *block_->claimed = *block_->claimed_beside = next;
  *block_->redo = {};
  redo_end_ = 0;
  CUresult result = device_.fill(stream, block_->zeros(0, ControlBlock::kBytes), nullptr);
  if (result == CUDA_SUCCESS && block_->redo_address != 0) {
    result = device_.fill(stream, {block_->redo_address, 0, 2, 1, sizeof(uint32_t), 0}, nullptr);
  }
  if (result == CUDA_SUCCESS && block_->sm_counters_address != 0) {
    result = device_.fill(stream, {block_->sm_counters_address, 0, ptx::kSmCounters, 1, sizeof(uint32_t), 0}, nullptr);
  }
  if (result != CUDA_SUCCESS || next == 0) return result;
  return device_.fill(stream, {block_->address, 0, 1, 1, sizeof next, next}, nullptr);
}

CUresult ClaimCounter::allow(const StreamRef& stream) {
  return device_.fill(stream, block_->zeros(ControlBlock::kStopAt, sizeof(uint32_t)), nullptr);
}

CUresult ClaimCounter::go_on(const StreamRef& stream, CloneLaunch* launch) {
  if (launch->clone().redo_at == 0) return allow(stream);
  // Blocks that found the list at its end have counted on, past places that others filled only then.
  if (static_cast<int32_t>(block_->redo->taken - redo_end_) > 0) {
    const CUresult result = device_.fill(stream, {block_->redo_address, 0, 1, 1, sizeof redo_end_, redo_end_}, nullptr);
    if (result != CUDA_SUCCESS) return result;
  }
  redo_end_ = block_->redo->added;
  launch->set(launch->clone().redo_end_at, redo_end_);
  return allow(stream);
}

CUresult ClaimCounter::limit_next(const StreamRef& stream, uint32_t blocks) {
  return device_.fill(stream, {block_->address + ControlBlock::kLimitAt, 0, 1, 1, sizeof blocks, blocks}, nullptr);
}

CUresult ClaimCounter::limit(uint32_t blocks) {
  return device_.write_value(block_->side_stream, block_->address + ControlBlock::kLimitAt, blocks, sizeof blocks, 0);
}

CUresult ClaimCounter::clear_places(const StreamRef& stream) {
  constexpr uint64_t kStampWords = ptx::kBlockStopsAt / sizeof(uint32_t);
  const uint64_t at = block_->places_address;
  const CUresult result =
      device_.fill(stream, {at, 0, kStampWords, 1, sizeof(uint32_t), static_cast<uint32_t>(ptx::kNoBlock)}, nullptr);
  if (result != CUDA_SUCCESS) return result;
  return device_.fill(stream, {at + ptx::kBlockStopsAt, 0, ptx::kBlockPlaces, 1, sizeof(uint32_t), 0}, nullptr);
}

// A device whose streams write to host memory says by a word that it has read them: whoever looks all the time sees
// that at once. The thread that calls when a copy has ended, which says it else, may be taking a nap.
CUresult ClaimCounter::read_stamps(size_t count, std::function<void(CUresult)> done) {
  reads_ = *static_cast<volatile uint32_t*>(block_->stamps_read) + 1;
  const auto read = [block = block_, ended = ended_, number = reads_, done = std::move(done)](CUresult outcome) {
    if (outcome == CUDA_SUCCESS) ended->store(number);
    done(outcome);
  };
  const CUresult result = device_.copy(block_->side_stream, block_->stamps_to_host(count), read);
  if (result != CUDA_SUCCESS) return result;
  device_.write_value(block_->side_stream, reinterpret_cast<uint64_t>(block_->stamps_read), reads_, sizeof reads_, 0);
  return CUDA_SUCCESS;
}

CUresult ClaimCounter::write_stops(size_t count, std::function<void(CUresult)> done) {
  return device_.copy(block_->side_stream, block_->stops_to_device(count),
                      [block = block_, done = std::move(done)](CUresult result) { done(result); });
}

CUresult ClaimCounter::tell_to_stop(bool drop) {
  const uint32_t word = drop ? ptx::kStopAndDrop : ptx::kStopClaiming;
  return device_.write_value(block_->side_stream, block_->address + ControlBlock::kStopAt, word, sizeof word, 0);
}

uint32_t ClaimCounter::dropped() const {
  const volatile ptx::RedoList& list = *block_->redo;
  const uint32_t taken = list.taken;
  const bool past = static_cast<int32_t>(taken - redo_end_) > 0;
  const auto left = static_cast<int32_t>(list.added - (past ? redo_end_ : taken));
  return left > 0 ? static_cast<uint32_t>(left) : 0;
}

CUresult ClaimCounter::read_at_end(const StreamRef& stream, const std::shared_ptr<Flight>& flight, size_t track) {
  if (block_->redo_address != 0) {
    const CUresult result = device_.copy(stream, block_->redo_to_host(), [flight, block = block_](CUresult outcome) {
      if (outcome != CUDA_SUCCESS) flight->failed = true;
    });
    if (result != CUDA_SUCCESS) return result;
  }
  uint32_t* const word = track == 0 ? block_->claimed : block_->claimed_beside;
  return device_.copy(stream, block_->counter_to(word), [flight, track, block = block_](CUresult outcome) {
    if (outcome != CUDA_SUCCESS) flight->failed = true;
    flight->land(track);
  });
}

CUresult ClaimCounter::peek(std::function<void()> done) {
  return device_.copy(block_->side_stream, block_->counter_to(block_->peeked),
                      [block = block_, done = std::move(done)](CUresult) { done(); });
}

}  // namespace bandsaw::runner
