#include "backend/runner/slicing/claim_counter.h"

namespace bandsaw::runner {

void ClaimCounter::put_into(CloneLaunch* launch, uint32_t blocks) const {
  const KernelClone& clone = launch->clone();
  launch->set(clone.counter_at, block_->address);
  launch->set(clone.stop_at, block_->address + ControlBlock::kStopAt);
  launch->set(clone.blocks_at, blocks);
}

CUresult ClaimCounter::begin(const StreamRef& stream, uint32_t next) {
  *block_->claimed = next;
  const CUresult result = device_.fill(stream, block_->zeros(0, ControlBlock::kBytes), nullptr);
  if (result != CUDA_SUCCESS || next == 0) return result;
  return device_.fill(stream, {block_->address, 0, 1, 1, sizeof next, next}, nullptr);
}

CUresult ClaimCounter::allow(const StreamRef& stream) {
  return device_.fill(stream, block_->zeros(ControlBlock::kStopAt, sizeof(uint32_t)), nullptr);
}

CUresult ClaimCounter::tell_to_stop() {
  return device_.write_value(block_->side_stream, block_->address + ControlBlock::kStopAt, 1, sizeof(uint32_t), 0);
}

CUresult ClaimCounter::read_at_end(const StreamRef& stream, const std::shared_ptr<Flight>& flight) {
  return device_.copy(stream, block_->counter_to(block_->claimed), [flight, block = block_](CUresult outcome) {
    if (outcome != CUDA_SUCCESS) flight->failed = true;
    flight->land(0);
  });
}

CUresult ClaimCounter::peek(std::function<void()> done) {
  return device_.copy(block_->side_stream, block_->counter_to(block_->peeked),
                      [block = block_, done = std::move(done)](CUresult) { done(); });
}

}  // namespace bandsaw::runner
