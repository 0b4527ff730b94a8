#include "hypervisor/virtio/virtqueue.h"

// Its legacy part is not C++.
#define VIRTIO_RING_NO_LEGACY
#include <linux/virtio_ring.h>

#include <algorithm>
#include <atomic>
#include <bit>

namespace bandsaw::virtio {

static_assert(std::endian::native == std::endian::little, "rings are little endian");

namespace {

constexpr uint64_t kDescriptorBytes = sizeof(vring_desc);
constexpr uint64_t kRingHeader = 4;  // flags and idx, before the entries of both rings
constexpr uint64_t kUsedEntry = sizeof(vring_used_elem);

Status broken(const char* what) { return Status::error(EPROTO, "virtqueue: {}", what); }

}  // namespace

Status Virtqueue::enable(bool event_index, bool indirect) {
  const uint16_t size = setup_.size;
  if (size == 0 || size > kQueueSizeMax || !std::has_single_bit(size))
    return Status::error(EINVAL, "virtqueue: size {} is not a power of two up to {}", size, kQueueSizeMax);
  if (setup_.descriptors % 16 != 0 || setup_.available % 2 != 0 || setup_.used % 4 != 0)
    return broken("misaligned ring");
  if (!memory_.contains(setup_.descriptors, size * kDescriptorBytes, false) ||
      !memory_.contains(setup_.available, kRingHeader + 2 * uint64_t{size} + 2, false) ||
      !memory_.contains(setup_.used, kRingHeader + kUsedEntry * size + 2, true))
    return broken("ring outside guest RAM");
  event_index_ = event_index;
  indirect_ = indirect;
  next_available_ = next_used_ = in_flight_ = 0;
  enabled_ = true;
  return {};
}

void Virtqueue::reset() {
  setup_ = {};
  enabled_ = false;
  next_available_ = next_used_ = in_flight_ = 0;
}

Status Virtqueue::available_index(uint16_t& index) const {
  if (!memory_.load16(setup_.available + 2, index)) return broken("available ring outside guest RAM");
  if (static_cast<uint16_t>(index - next_available_) > setup_.size) return broken("available index runs ahead");
  return {};
}

Status Virtqueue::pop(uint64_t max_readable, std::optional<Chain>& chain) {
  chain.reset();
  if (!enabled_) return {};
  uint16_t index = 0;
  if (Status status = available_index(index); !status.ok()) return status;
  if (index == next_available_) return {};
  if (in_flight_ >= setup_.size) return broken("more chains than descriptors");

  Chain taken;
  const uint64_t entry =
      setup_.available + kRingHeader + 2 * uint64_t{static_cast<uint16_t>(next_available_ % setup_.size)};
  if (!memory_.load16(entry, taken.head)) return broken("available ring outside guest RAM");
  std::vector<Descriptor> descriptors;
  uint32_t budget = kChainDescriptorsMax;
  Status status = walk(setup_.descriptors, setup_.size, taken.head, budget, false, descriptors);
  if (status.ok()) status = fill(descriptors, max_readable, taken);
  if (!status.ok()) return status;
  ++next_available_;
  ++in_flight_;
  chain = std::move(taken);
  return {};
}

Status Virtqueue::read_descriptor(uint64_t table, uint32_t entries, uint32_t index, Descriptor& descriptor) const {
  if (index >= entries) return broken("descriptor index out of range");
  vring_desc raw{};
  if (!memory_.read(table + kDescriptorBytes * index, {reinterpret_cast<uint8_t*>(&raw), sizeof(raw)}))
    return broken("descriptor outside guest RAM");
  descriptor = {raw.addr, raw.len, raw.flags, raw.next};
  return {};
}

// Follows one table's chain. A loop shows as a chain that is longer than its table; `budget` bounds both tables
// together.
Status Virtqueue::walk(uint64_t table, uint32_t entries, uint32_t index, uint32_t& budget, bool indirect,
                       std::vector<Descriptor>& out) const {
  for (uint32_t steps = 0;; ++steps) {
    if (steps >= entries) return broken("descriptor loop");
    if (budget-- == 0) return broken("chain too long");
    Descriptor descriptor{};
    if (Status status = read_descriptor(table, entries, index, descriptor); !status.ok()) return status;
    if (descriptor.flags & VRING_DESC_F_INDIRECT) {
      if (!indirect_ || indirect || (descriptor.flags & VRING_DESC_F_NEXT)) return broken("misplaced indirect table");
      if (descriptor.bytes == 0 || descriptor.bytes % kDescriptorBytes != 0)
        return broken("indirect table of odd length");
      const auto count = static_cast<uint32_t>(descriptor.bytes / kDescriptorBytes);
      if (!memory_.contains(descriptor.address, descriptor.bytes, false))
        return broken("indirect table outside guest RAM");
      return walk(descriptor.address, count, 0, budget, true, out);
    }
    out.push_back(descriptor);
    if (!(descriptor.flags & VRING_DESC_F_NEXT)) return {};
    index = descriptor.next;
  }
}

// Sums of at most kChainDescriptorsMax 32-bit lengths cannot overflow 64 bits.
Status Virtqueue::fill(const std::vector<Descriptor>& descriptors, uint64_t max_readable, Chain& chain) const {
  uint64_t readable = 0;
  for (const Descriptor& descriptor : descriptors) {
    const bool writable = descriptor.flags & VRING_DESC_F_WRITE;
    if (!writable && !chain.writable.empty()) return broken("readable buffer after a writable one");
    if (!memory_.contains(descriptor.address, descriptor.bytes, writable)) return broken("buffer outside guest RAM");
    if (writable) {
      chain.writable.push_back({descriptor.address, descriptor.bytes});
      chain.writable_bytes += descriptor.bytes;
    } else {
      readable += descriptor.bytes;
    }
  }
  chain.oversized = readable > max_readable;
  if (chain.oversized) return {};
  chain.readable.resize(readable);
  uint8_t* to = chain.readable.data();
  for (const Descriptor& descriptor : descriptors) {
    if (descriptor.flags & VRING_DESC_F_WRITE) break;
    if (!memory_.read(descriptor.address, {to, descriptor.bytes})) return broken("buffer outside guest RAM");
    to += descriptor.bytes;
  }
  return {};
}

Status Virtqueue::push(const Chain& chain, std::span<const uint8_t> reply, bool& notify) {
  notify = false;
  if (!enabled_) return {};
  uint32_t written = 0;
  for (const Chain::Piece& piece : chain.writable) {
    const auto part = reply.subspan(written, std::min<size_t>(piece.bytes, reply.size() - written));
    if (!memory_.write(piece.gpa, part)) return broken("reply buffer left guest RAM");
    written += static_cast<uint32_t>(part.size());
  }
  const vring_used_elem element{.id = chain.head, .len = written};
  const uint16_t old_used = next_used_++;
  const uint64_t slot = setup_.used + kRingHeader + kUsedEntry * static_cast<uint16_t>(old_used % setup_.size);
  if (!memory_.write(slot, {reinterpret_cast<const uint8_t*>(&element), sizeof(element)}) ||
      !memory_.store16(setup_.used + 2, next_used_))
    return broken("used ring left guest RAM");
  if (in_flight_) --in_flight_;

  // The driver stores whether it wants an interrupt, then reads the index. The device stores the index, then reads what
  // the driver wants. So one of the two sees the other.
  std::atomic_thread_fence(std::memory_order_seq_cst);
  uint16_t wish = 0;
  const uint64_t wish_at = event_index_ ? setup_.available + kRingHeader + 2 * uint64_t{setup_.size} : setup_.available;
  if (!memory_.load16(wish_at, wish)) return broken("available ring left guest RAM");
  notify = event_index_ ? vring_need_event(wish, next_used_, old_used) : !(wish & VRING_AVAIL_F_NO_INTERRUPT);
  return {};
}

Status Virtqueue::want_kicks(bool wanted, bool& more) {
  more = false;
  if (!enabled_) return {};
  bool stored = true;
  if (!event_index_)
    stored = memory_.store16(setup_.used, wanted ? 0 : VRING_USED_F_NO_NOTIFY);
  else if (wanted)
    stored = memory_.store16(setup_.used + kRingHeader + kUsedEntry * setup_.size, next_available_);
  if (!stored) return broken("used ring left guest RAM");
  if (!wanted) return {};
  std::atomic_thread_fence(std::memory_order_seq_cst);
  uint16_t index = 0;
  Status status = available_index(index);
  more = status.ok() && index != next_available_;
  return status;
}

}  // namespace bandsaw::virtio
