// The counter from which the persistent blocks of one launch claim blocks of its grid, and the flag that tells them to
// stop: a control block in device memory.
#pragma once

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>

#include "backend/device/device.h"
#include "backend/runner/slicing/clone_launch.h"
#include "backend/runner/slicing/control_block.h"
#include "backend/runner/slicing/launch_under_way.h"

namespace bandsaw::runner {

// For the record loop's thread. Copies to the host hold the control block: it may outlive this.
class ClaimCounter {
 public:
  // The block is for a clone with persistent blocks.
  ClaimCounter(Device* device, std::shared_ptr<ControlBlock> block) : device_(*device), block_(std::move(block)) {}

  // Writes into the clone's parameters where the counter is, and how many blocks there are to claim.
  void put_into(CloneLaunch* launch, uint32_t blocks) const;
  // What follows on the stream claims from `next` on.
  CUresult begin(const StreamRef& stream, uint32_t next);
  // What follows on the stream may claim again after tell_to_stop().
  CUresult allow(const StreamRef& stream);
  // And claims the dropped blocks first. `launch` is the next launch.
  CUresult go_on(const StreamRef& stream, CloneLaunch* launch);
  // Of a clone that is limited: what follows on the stream may have so many blocks on each SM; or who runs already may.
  CUresult limit_next(const StreamRef& stream, uint32_t blocks);
  CUresult limit(uint32_t blocks);
  // Of a clone whose blocks are told apart: what follows on the stream finds nobody told, and no stamps.
  CUresult clear_places(const StreamRef& stream);
  // Reads the stamps of the first `count` places while blocks run, until stamps_are_read(). `done`: when that has
  // ended, somewhat later.
  CUresult read_stamps(size_t count, std::function<void(CUresult)> done);
  bool stamps_are_read() const {
    return *static_cast<volatile uint32_t*>(block_->stamps_read) == reads_ || *ended_ == reads_;
  }
  // Then writes what the blocks there are told. `done`: when that has ended.
  CUresult write_stops(size_t count, std::function<void(CUresult)> done);
  ControlBlock::Places& places() { return *block_->places; }
  // Whoever claims does not begin another block. `drop`: nor ends the one that it runs, where it may drop it.
  CUresult tell_to_stop(bool drop);

  // When what the stream has is done: reads the counter and lands the flight's track. An error: it will not. Track 0
  // is the launch's own, others are of those launched beside it.
  CUresult read_at_end(const StreamRef& stream, const std::shared_ptr<Flight>& flight, size_t track = 0);
  // The counter as it was then, or at begin(). A program that wrote to memory not its own may have left any value
  // there. Each end reads it by itself, and it only grows.
  uint64_t claimed() const {
    const uint32_t own = *static_cast<volatile uint32_t*>(block_->claimed);
    const uint32_t beside = *static_cast<volatile uint32_t*>(block_->claimed_beside);
    return std::max(own, beside);
  }
  // Of the blocks below that, those that were dropped and not claimed again; as little to be trusted.
  uint32_t dropped() const;
  // Reads the counter while blocks claim from it. `done` is called when that has ended.
  CUresult peek(std::function<void()> done);
  uint32_t peeked() const { return *static_cast<volatile uint32_t*>(block_->peeked); }

  // Nothing on the device uses it any more.
  void give_back(ControlBlockPool* pool) { pool->give(std::move(block_)); }

 private:
  Device& device_;
  std::shared_ptr<ControlBlock> block_;
  uint32_t reads_ = 0;  // the number of the last read of stamps
  // That of the last one whose copy has ended; the device's threads write it.
  const std::shared_ptr<std::atomic<uint32_t>> ended_ = std::make_shared<std::atomic<uint32_t>>(0);
  uint32_t redo_end_ = 0;  // of the last launch: those places of the list were there to be claimed
};

}  // namespace bandsaw::runner
