// A control block: words in device memory that a rewritten kernel and the runner share. Persistent blocks find there
// which block is claimed next, whether to claim no more, and how many of them may lie on an SM; counted grid slices add
// up there what they have done.
#pragma once

#include <array>
#include <cstddef>
#include <list>
#include <memory>

#include "backend/device/device.h"
#include "vgpu-sched/ptx/persistent.h"
#include "vgpu-sched/ptx/slice.h"

namespace bandsaw::runner {

struct ControlBlock {
  // The counter stands at 0; far from it, the flag and the limit. A control block has one use at a time: that, or
  // counts of a grid slice.
  static constexpr uint64_t kBytes = 256, kStopAt = 128, kCountsAt = 64, kLimitAt = 192;
  // Places of the list of dropped blocks: twice as many as persistent blocks that may drop one.
  static constexpr uint32_t kRedoPlaces = 1 << 14;
  // On the host.
  struct Words {
    uint32_t claimed = 0;         // the counter at the end of a launch
    uint32_t peeked = 0;          // and meanwhile
    uint32_t claimed_beside = 0;  // at the end of those that were launched beside them
    uint32_t stamps_read = 0;     // how often the places' stamps have been read
    ptx::CountsOfBlocks counts;   // of a grid slice, when it has ended
    ptx::RedoList redo;           // at the end of a launch
  };
  // What blocks that are told apart have in device memory, as copied from there, and as it is to be there.
  struct Places {
    std::array<ptx::BlockStamp, ptx::kBlockPlaces> stamps;
    std::array<uint32_t, ptx::kBlockPlaces> stops;
  };
  static_assert(sizeof(Places) == ptx::kBlockPlacesBytes && offsetof(Places, stops) == ptx::kBlockStopsAt);
  std::weak_ptr<Context> context;
  StreamRef side_stream;                  // of its own: the flag is written beside the kernel
  uint64_t address = 0;                   // of kBytes
  uint32_t* claimed = nullptr;            // of Words
  uint32_t* peeked = nullptr;             // of Words
  uint32_t* claimed_beside = nullptr;     // of Words
  uint32_t* stamps_read = nullptr;        // of Words
  ptx::CountsOfBlocks* counts = nullptr;  // of Words
  ptx::RedoList* redo = nullptr;          // of Words
  uint64_t redo_address = 0;              // of the list in device memory; 0: none was needed yet
  uint64_t sm_counters_address = 0;       // of the counters by SM in device memory; 0: none were needed yet
  std::shared_ptr<void> page;             // holds these
  uint64_t places_address = 0;            // of Places in device memory; 0: none were needed yet
  std::shared_ptr<Places> places;         // on the host, registered with the device

  vgpu_fill zeros(uint64_t at, uint64_t bytes) const;
  Copy counter_to(uint32_t* word) const;  // one of Words
  Copy counts_to_host() const;
  Copy redo_to_host() const;  // the list's two counts
  // Of the first `count` places.
  Copy stamps_to_host(size_t count) const;
  Copy stops_to_device(size_t count) const;
};

// For one thread. Control blocks in use may outlive it.
class ControlBlockPool {
 public:
  explicit ControlBlockPool(Device* device) : device_(device) {}

  // Null: the device has no room.
  std::shared_ptr<ControlBlock> take(const ContextRef& context);
  // Gives it a list of dropped blocks. False: the device has no room.
  bool add_redo_list(const ContextRef& context, ControlBlock* block);
  // Gives it counters by SM. False: the device has no room.
  bool add_sm_counters(const ContextRef& context, ControlBlock* block);
  // Gives it places for blocks that are told apart. False: there is no room.
  bool add_places(const ContextRef& context, ControlBlock* block);
  // Nothing on the device uses it any more.
  void give(std::shared_ptr<ControlBlock> block) { free_.push_back(std::move(block)); }

 private:
  static constexpr size_t kPageBytes = 4096;

  ControlBlock::Words* next_words();

  Device* const device_;
  std::list<std::shared_ptr<ControlBlock>> free_;
  std::shared_ptr<void> page_;
  size_t used_ = 0;  // Words of page_
};

}  // namespace bandsaw::runner
