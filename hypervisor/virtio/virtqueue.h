// One split virtqueue, the device's side (virtio 1.2, section 2.7), with indirect descriptors and event index.
//
// The rings lie in guest memory and are hostile: each descriptor is copied once and checked; a chain is bounded in
// descriptors and bytes. A Status that is not ok means that the driver broke the protocol: the device must set
// DEVICE_NEEDS_RESET and leave the queue alone.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "hypervisor/virtio/guest_memory.h"
#include "memory/base/status.h"

namespace bandsaw::virtio {

inline constexpr uint16_t kQueueSizeMax = 512;
inline constexpr uint32_t kChainDescriptorsMax = 1024;

// A chain of buffers that the driver has made available.
struct Chain {
  struct Piece {
    uint64_t gpa = 0;
    uint32_t bytes = 0;
  };
  uint16_t head = 0;
  std::vector<uint8_t> readable;  // private copy; empty when `oversized`
  bool oversized = false;         // more readable bytes than the caller wanted
  std::vector<Piece> writable;    // checked to be in writable RAM when the chain was taken
  uint64_t writable_bytes = 0;
};

class Virtqueue {
 public:
  explicit Virtqueue(GuestMemory& memory) : memory_(memory) {}

  // What the driver writes during set-up; ignored once the queue is enabled.
  struct Setup {
    uint16_t size = kQueueSizeMax;
    uint64_t descriptors = 0, available = 0, used = 0;
  };
  Setup& setup() { return setup_; }
  bool enabled() const { return enabled_; }
  // Checks sizes, alignment and that the rings are in RAM.
  Status enable(bool event_index, bool indirect);
  void reset();

  // Takes the next chain, copying at most `max_readable` bytes of its readable part; nothing when there is none.
  Status pop(uint64_t max_readable, std::optional<Chain>& chain);
  // Gives a chain back with `reply` written into its writable part (cut off where that ends). Sets `notify` when the
  // driver wants an interrupt.
  Status push(const Chain& chain, std::span<const uint8_t> reply, bool& notify);
  // Asks the driver to kick (or not to) when it adds buffers. True in `more` when it added some meanwhile.
  Status want_kicks(bool wanted, bool& more);

  uint16_t in_flight() const { return in_flight_; }

 private:
  struct Descriptor {
    uint64_t address;
    uint32_t bytes;
    uint16_t flags;
    uint16_t next;
  };
  Status read_descriptor(uint64_t table, uint32_t entries, uint32_t index, Descriptor& descriptor) const;
  Status walk(uint64_t table, uint32_t entries, uint32_t index, uint32_t& budget, bool indirect,
              std::vector<Descriptor>& out) const;
  Status fill(const std::vector<Descriptor>& descriptors, uint64_t max_readable, Chain& chain) const;
  Status available_index(uint16_t& index) const;

  GuestMemory& memory_;
  Setup setup_;
  bool enabled_ = false;
  bool event_index_ = false;
  bool indirect_ = false;
  uint16_t next_available_ = 0;  // free-running, as in the rings
  uint16_t next_used_ = 0;
  uint16_t in_flight_ = 0;
};

}  // namespace bandsaw::virtio
