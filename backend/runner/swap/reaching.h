// Chunks that have left the device with nothing at their addresses, because that is sooner (swap::Moves::apart): what a
// record may reach is brought there before it is executed, on the device or in host memory. Only of some records it is
// known what they reach; before the others all is made to be reached.
#pragma once

#include <functional>
#include <utility>
#include <vector>

#include "backend/device/device.h"
#include "backend/runner/swap/chunk_book.h"
#include "guest-driver/uapi/wire_server.h"
#include "vgpu-sched/ptx/pointers.h"

namespace bandsaw::runner {

// For the record loop.
class Reaching {
 public:
  // Through what the kernel of a launch reaches memory; null: that is not known.
  using FindPointers = std::function<const ptx::PointerParameters*(const wire::CheckedRecord& launch)>;

  // The book outlives this.
  explicit Reaching(ChunkBook* book) : book_(*book) {}
  void set_device(Device* device) { device_ = device; }
  void set_find_pointers(FindPointers find) { find_pointers_ = std::move(find); }
  // Where the program's device memory lies: what points there and into no chunk points into memory that stays.
  void set_window(uint64_t base, uint64_t bytes) { window_base_ = base, window_bytes_ = bytes; }

  // Before the record is executed, and after its chunks have been brought to the device. `node`: it becomes part of a
  // graph instead.
  void open(const wire::CheckedRecord& record, bool node = false);
  // For the next move. Not where something was launched since the last one whose reach is not known: that comes again,
  // and it would be in vain. Where nothing was launched, as for the last one.
  bool may_leave_apart() const { return !any_time_ && !unknown_ && (known_ || left_apart_); }
  void moved(bool apart) {
    left_apart_ = apart;
    known_ = unknown_ = false;
  }

 private:
  enum class Reach {
    kNothing,  // chunks are none of its business
    kSome,     // those in reached_, once
    kAny,      // once
    kAnyTime,  // other records may reach any of them without saying so, because of this one
  };
  Reach reach_of(const wire::CheckedRecord& record);
  Reach reach_of_launch(const wire::CheckedRecord& launch);
  Reach reach_of_copy(const vgpu_copy& copy);
  Reach range(uint64_t address, uint64_t bytes);
  bool points_into_memory(const swap::Chunks& chunks, uint64_t pointer);
  void map(const std::vector<uint64_t>& chunks);

  ChunkBook& book_;
  Device* device_ = nullptr;
  FindPointers find_pointers_;
  uint64_t window_base_ = 0, window_bytes_ = 0;
  bool known_ = false, unknown_ = false;  // launches since the last move
  bool left_apart_ = true, any_time_ = false;
  std::vector<uint64_t> reached_;  // chunks
};

}  // namespace bandsaw::runner
