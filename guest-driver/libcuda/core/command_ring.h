// The guest's end of a command ring (guest-driver/uapi/vgpu_ring.h): publishes records, waits for replies and done
// words.
//
// A ring belongs to one thread at a time. Nothing here takes a lock; publishing an asynchronous record makes no
// system call unless the runner sleeps or the ring is full.
#pragma once

#include <cuda.h>

#include <atomic>
#include <cstdint>
#include <mutex>
#include <vector>

#include "guest-driver/libcuda/core/shared_memory.h"
#include "guest-driver/uapi/vgpu_ring.h"
#include "guest-driver/uapi/vgpu_wire.h"

namespace bandsaw::libcuda {

class Transport;

class CommandRing {
 public:
  // `header` points to a mapped ring whose pages were zero when the host was told of it. `next_seq` is the process's
  // counter.
  CommandRing(vgpu_ring_header* header, Transport* transport, std::atomic<uint64_t>* next_seq);

  // Reserves a record with room for `payload` bytes after its header; waits while the ring is full. Returns the
  // payload's place, or nullptr when the host is gone. At most VGPU_RECORD_MAX_BYTES with the header.
  void* reserve(uint32_t opcode, uint32_t payload, uint64_t context);
  // Publishes what was reserved; returns its sequence number.
  uint64_t publish();
  // How long a wait polls for the answer before it sleeps, at most.
  void set_poll_budget(uint32_t nanoseconds);
  // False when the host is gone.
  bool wait_reply(uint64_t seq);
  CUresult reply_result() const;
  uint32_t reply_bytes() const;
  uint32_t reply_flags() const;
  const void* reply_body() const { return reinterpret_cast<const char*>(header_) + VGPU_RING_REPLY_OFFSET; }

  CUresult sticky_error() const;

  // The next completion of a done slot. Call commit_done() once a published record names it; until then this gives the
  // same one again.
  vgpu_done next_done(uint32_t slot) const { return {slot, token_[slot] + 1}; }
  void commit_done(vgpu_done done) { token_[done.slot] = done.token; }
  vgpu_done last_done(uint32_t slot) const { return {slot, token_[slot]}; }
  // Waits until that completion or a later one of its slot has come. False when the host is gone.
  bool wait_done(vgpu_done done, CUresult* result);

  // Staging memory; the bounce slots' blocks, made at first use.
  SharedBlock bounce[4];
  uint32_t next_bounce = 0, next_plain = 0;

 private:
  static constexpr uint32_t kSpinUsual = 30'000;  // ns, until the device has recommended a time
  template <typename Ready>
  bool wait_until(Ready ready);
  bool wait_for_room(uint32_t bytes);
  bool done_yet(vgpu_done done, CUresult* result) const;

  vgpu_ring_header* const header_;
  Transport* const transport_;
  std::atomic<uint64_t>* const next_seq_;
  char* const records_;
  uint64_t tail_ = 0;                // published
  uint64_t head_seen_ = 0;           // consumed, as last read
  uint32_t pad_ = 0;                 // of the reserved record: bytes before it
  uint32_t reserved_ = 0;            // its length
  uint32_t spin_ = kSpinUsual;       // ns to poll for an answer before sleeping
  uint32_t spin_most_ = kSpinUsual;  // ns
  uint32_t token_[VGPU_RING_DONE_SLOTS] = {};
};

// Rings that no thread holds. Thread-safe.
class CommandRingPool {
 public:
  CommandRingPool(Transport* transport, std::atomic<uint64_t>* next_seq) : transport_(transport), next_seq_(next_seq) {}
  CommandRing* take();  // nullptr: the host refuses more rings
  void give_back(CommandRing* ring);

 private:
  Transport* const transport_;
  std::atomic<uint64_t>* const next_seq_;
  std::mutex mutex_;
  std::vector<CommandRing*> free_;  // guarded by mutex_
};

}  // namespace bandsaw::libcuda
