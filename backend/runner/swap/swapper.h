// Of a virtual GPU whose programs may allocate more than it holds of the device: which chunks of this process's memory
// lie on the device, and when they move.
//
// Work is right wherever its memory lies: chunks in host memory are reached there, at the same address, only slower.
// So nothing has to move. What a kernel's parameters point into is brought to the device before it is launched, and
// what else needs room on the device is given it. For that the process's work is let end first: records wait meanwhile,
// and where the work does not end in time they go on without a move. What virtual GPUs lend each other (lending.h)
// leaves the device in the same way, also while its program rests; who gets it waits for it, as long as more of it
// comes.
#pragma once

#include <atomic>
#include <functional>
#include <memory>
#include <mutex>

#include "backend/device/device.h"
#include "backend/runner/execution/clock.h"
#include "backend/runner/memory/usage_page_view.h"
#include "guest-driver/uapi/wire_server.h"
#include "memory/swap/ahead.h"
#include "memory/swap/book.h"
#include "memory/swap/chunks.h"
#include "memory/swap/exchange.h"

namespace bandsaw::runner {

// As a book it is for any thread; the rest is the record loop's.
class Swapper final : public swap::Book {
 public:
  // Both outlive this.
  Swapper(UsagePageView* page, const Clock* clock) : page_(*page), clock_(*clock) {}
  void set_device(Device* device) { device_ = device; }
  // Tells vgpud to look at what the usage page says of this virtual GPU's memory.
  void set_tell(std::function<void()> tell) { tell_ = std::move(tell); }

  // Has the other runners of this virtual GPU look at what they are asked for; any thread calls it.
  void set_ask(std::function<void()> ask) { ask_ = std::move(ask); }

  // There are chunks: the next three are to be called.
  bool any() const { return any_.load(std::memory_order_relaxed); }
  // Before a record is executed. False: not now, because memory is to move first.
  bool admit(const wire::CheckedRecord& record);
  // It is being executed.
  void issued(const wire::CheckedRecord& record);
  // Goes on with what admit() has begun, and with what others want back of the device's memory, even where nothing else
  // is to be done. `busy`: work whose first part was issued is still to be issued. True: records that waited may go on.
  bool advance(bool busy);
  // Something is to move: advance() is to be called again soon.
  bool under_way() const { return stage_ != Stage::kNone; }
  // Nobody waits for what admit() has begun. `dead`: nothing can move any more.
  void abandon(bool dead);

  // Reserves memory on the device for what can lie nowhere else (above 0), or gives it back. Where others of the
  // virtual GPU have moved into that room, waits until they have made some. False: there is none. Any thread.
  bool charge_fixed(int64_t bytes);

  uint64_t chunk_bytes() const override;
  bool keep(int64_t bytes) override { return page_.keep(bytes); }
  bool charge(int64_t bytes, bool on_device) override;
  bool charge_move(uint64_t bytes, bool to_device) override;
  void exchanged(uint64_t bytes) override;
  void add(uint64_t allocation, uint64_t address, uint64_t bytes, bool on_device) override;
  void remove(uint64_t address) override;
  void pin(uint64_t address) override;

 private:
  enum class Stage { kNone, kEnding, kSettling };
  using Plan = swap::Chunks::Plan;

  uint64_t headroom() const;
  Plan plan();  // with mutex_
  bool finds_no_room();
  uint64_t lacks() const;
  bool more_comes();
  bool others_give();
  uint64_t to_leave() const;
  void note_work(bool finds_no_room);
  bool begin_to_leave();
  void prepare();
  void settle();
  bool settled();
  bool make_way();
  void bring_more(Plan* plan) const;
  bool carry_out(Plan plan);
  bool give_up();
  bool end();

  UsagePageView& page_;
  const Clock& clock_;
  Device* device_ = nullptr;
  std::atomic<bool> any_{false};
  std::mutex mutex_;
  swap::Chunks chunks_;  // guarded by mutex_

  Stage stage_ = Stage::kNone;
  // What the record `asked_by_` needs. Until it is executed, others take their memory as it lies: two of them would
  // move each other's away.
  uint64_t asked_by_ = 0;
  std::vector<uint64_t> wanted_;  // chunks
  uint64_t wanted_room_ = 0;      // bytes on the device
  swap::Ahead ahead_;             // guarded by mutex_
  uint64_t prepared_ = 0;         // bytes that the device makes host memory for
  Clock::Point begun_{}, not_before_{}, leaves_not_before_{};
  // While more memory may come to this virtual GPU: since when none has, what there was then, and when that was looked
  // at.
  Clock::Point came_{}, looked_{};
  uint64_t came_to_ = 0;
  // The same of what other processes of this virtual GPU give up.
  Clock::Point given_{}, asked_{}, asks_not_before_{};
  uint64_t given_to_ = 0;
  std::mutex fixed_;  // one asks at a time for what can lie nowhere else
  std::function<void()> tell_, ask_;
  uint64_t issued_ = 0, issued_before_ = 0;
  std::shared_ptr<std::atomic<bool>> settled_;
};

}  // namespace bandsaw::runner
