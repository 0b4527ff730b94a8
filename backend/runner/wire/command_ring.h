// The host's side of a command ring (guest-driver/uapi/vgpu_ring.h): takes records out and writes replies and done
// words.
//
// The guest may write anything at any time. Every word of it is read once: take() copies a record out before anything
// in it is looked at, and all that follows looks at the copy.
#pragma once

#include <cuda.h>

#include <array>
#include <atomic>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "backend/runner/memory/guest_memory.h"
#include "guest-driver/uapi/vgpu_ring.h"
#include "guest-driver/uapi/wire_server.h"

namespace bandsaw::runner {

// Wakes a guest thread that sleeps on a ring.
class Waker {
 public:
  virtual ~Waker() = default;
  // `wake_word` has been incremented. Any thread.
  virtual void wake(uint32_t* wake_word) = 0;
};

// By futex on the word (direct mode), or by an eventfd that the session watches (VM).
std::unique_ptr<Waker> make_futex_waker();
std::unique_ptr<Waker> make_event_waker(UniqueFd event);

// One record, copied out of the ring: header, arguments and data.
struct Record {
  vgpu_record header{};
  std::vector<std::byte> bytes;
};

// take, has_more, set_sleeping, pending and close belong to the record loop's thread; the rest may come from any
// thread.
class CommandRing : public wire::ReplySink {
 public:
  enum class Take { kNothing, kRecord, kBroken };

  // `memory` is at least VGPU_RING_BYTES long. `output_pending` tells whether printed text waits; both must outlive
  // the ring. `goes_on`: set_state() follows, before the first take().
  CommandRing(uint32_t id, RegionRef memory, Waker* waker, const std::atomic<bool>* output_pending,
              bool goes_on = false);

  uint32_t id() const { return id_; }
  // Copies the next record out and, with `gives_room`, gives back its room and that of all before it. kBroken: the
  // framing cannot be trusted; `why` says how, and everything published so far is skipped.
  Take take(Record* record, std::string* why, bool gives_room = true);
  // Gives back the room of all that was taken.
  void give_room();
  // Something is published that take() has not seen. May be called beside take().
  bool has_more() const;
  void set_sleeping(bool sleeping);
  // Lets go of the guest's pages; later replies and done words go nowhere. Returns what held them.
  RegionRef close();

  // Notes that synchronous record is being worked on. false: one is already, which a guest never does.
  bool begin_sync(const vgpu_record& header, bool synchronising);
  void reply(uint64_t seq, CUresult result, std::span<const std::byte> fixed, std::span<const std::byte> tail) override;
  void done(const vgpu_done& done, CUresult result);
  // An error of an asynchronous call that is not sticky: the ring's next synchronising call returns it, once.
  void set_late_error(CUresult error);
  void set_sticky(CUresult error);
  void set_compiling(uint32_t kernels);

  // What a ring has beside its pages, at a standstill.
  struct State {
    uint64_t head = 0;
    CUresult late_error = CUDA_SUCCESS;
    bool unanswered = false;
    vgpu_record call{};  // that is unanswered
  };
  State state();
  // Goes on where another process has left it, which knew it by this state; nothing is unanswered. False: such a place
  // there is not.
  bool set_state(const State& state);

  // What take() delivered ahead of its turn. The record loop's.
  std::atomic<bool> has_pending{false};
  Record pending;
  // So many of its records wait (waiting_records.h). The record loop's.
  std::atomic<uint32_t> waiting{0};

 private:
  void prefetch_from(uint64_t head) const;
  Take broken(std::string* why, std::string text);
  void wake_if_waiting();

  const uint32_t id_;
  Waker* const waker_;
  const std::atomic<bool>* const output_pending_;
  RegionRef memory_;
  vgpu_ring_header* const header_;
  const std::byte* const records_;
  std::byte* const reply_;
  uint64_t tail_ = 0;              // record loop's own copy
  std::atomic<uint64_t> head_{0};  // written by one thread at a time, as the next
  uint64_t room_from_ = 0;         // as the guest sees it: the room of what was taken since is not given back

  std::mutex mutex_;                    // a hostile guest can have two completions write at once, or drop the ring
  bool closed_ = false;                 // guarded by mutex_
  bool unanswered_ = false;             // guarded by mutex_
  vgpu_record call_{};                  // guarded by mutex_: that is unanswered
  bool synchronising_ = false;          // guarded by mutex_: the unanswered call
  CUresult late_error_ = CUDA_SUCCESS;  // guarded by mutex_
  // Guarded by mutex_: of what was told last in each place.
  std::array<std::optional<uint32_t>, VGPU_RING_DONE_SLOTS> done_tokens_;
};

using CommandRingRef = std::shared_ptr<CommandRing>;

}  // namespace bandsaw::runner
