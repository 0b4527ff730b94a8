// Of a virtual GPU whose programs may allocate more than it holds of the device: which chunks of this process's memory
// lie on the device, and when they move.
//
// Work is right wherever its memory lies: chunks in host memory are reached there, at the same address, only slower
// (reaching.h sees to it that they can be). So nothing has to move. What a kernel's parameters point into is brought to
// the device before it is launched, and what else needs room on the device is given it. For that the process's work is
// let end first: records wait meanwhile, and where the work does not end in time they go on without a move. What
// virtual GPUs lend each other (lending.h) leaves the device in the same way, also while its program rests; who gets it
// waits for it, as long as more of it comes.
#pragma once

#include <atomic>
#include <functional>
#include <memory>
#include <vector>

#include "backend/runner/swap/chunk_book.h"
#include "backend/runner/swap/giving.h"
#include "backend/runner/swap/reaching.h"
#include "guest-driver/uapi/wire_server.h"
#include "memory/swap/ahead.h"

namespace bandsaw::runner {

// For the record loop, but for its book.
class Swapper {
 public:
  // Both outlive this.
  Swapper(UsagePageView* page, const Clock* clock)
      : page_(*page), clock_(*clock), book_(page, clock), reaching_(&book_), giving_(page, &book_, clock) {}
  void set_device(Device* device) {
    device_ = device;
    reaching_.set_device(device);
  }
  // Tells vgpud to look at what the usage page says of this virtual GPU's memory.
  void set_tell(std::function<void()> tell) { tell_ = std::move(tell); }
  ChunkBook& book() { return book_; }
  // What records reach.
  Reaching& reaching() { return reaching_; }

  // There are chunks: the next three are to be called.
  bool any() const { return book_.any(); }
  // Before a record is executed. False: not now, because memory is to move first. `node`: it becomes part of a graph.
  bool admit(const wire::CheckedRecord& record, bool node = false);
  // It is being executed.
  void issued(const wire::CheckedRecord& record);
  // Goes on with what admit() has begun, and with what others want back of the device's memory, even where nothing else
  // is to be done. `busy`: work whose first part was issued is still to be issued. True: records that waited may go on.
  bool advance(bool busy);
  // Something is to move: advance() is to be called again soon.
  bool under_way() const { return stage_ != Stage::kNone; }
  // Nobody waits for what admit() has begun. `dead`: nothing can move any more.
  void abandon(bool dead);

 private:
  enum class Stage { kNone, kEnding, kSettling };
  using Chunks = swap::Chunks;
  using Plan = swap::Chunks::Plan;

  bool may_go_on(const wire::CheckedRecord& record);
  Plan plan(const Chunks& chunks) const;
  Plan plan_with_more(const Chunks& chunks, bool room_comes) const;
  uint64_t lacks(const Chunks& chunks) const;
  bool waits_for_room(uint64_t lacks);
  bool more_comes();
  bool others_give(uint64_t lacks);
  void note_work(bool finds_no_room);
  void begin_to_end(Clock::Point now);
  void settle();
  bool settled();
  bool make_way();
  bool carry_out(Plan plan);
  bool give_up();
  bool end();

  UsagePageView& page_;
  const Clock& clock_;
  ChunkBook book_;
  Reaching reaching_;
  Giving giving_;
  Device* device_ = nullptr;
  std::function<void()> tell_;

  Stage stage_ = Stage::kNone;
  // What the record `asked_by_` needs. Until it is executed, others take their memory as it lies: two of them would
  // move each other's away.
  uint64_t asked_by_ = 0;
  std::vector<uint64_t> wanted_;  // chunks
  uint64_t wanted_room_ = 0;      // bytes on the device
  swap::Ahead ahead_;
  Clock::Point begun_{}, not_before_{};
  // While more memory may come to this virtual GPU: since when none has, what there was then, and when that was looked
  // at.
  Clock::Point came_{}, looked_{};
  uint64_t came_to_ = 0;
  // The same of what other processes of this virtual GPU give up.
  Clock::Point given_{}, asked_{}, asks_not_before_{};
  uint64_t given_to_ = 0;
  uint64_t issued_ = 0, issued_before_ = 0;
  std::shared_ptr<std::atomic<bool>> settled_;
};

}  // namespace bandsaw::runner
