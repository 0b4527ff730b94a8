#include "hypervisor/xen/ring.h"

#include <atomic>
#include <cstring>

namespace bandsaw::xen {
namespace {

static_assert(sizeof(vgpu_xen_request) == 128 && sizeof(vgpu_xen_reply) == 256);
static_assert(sizeof(vgpu_xen_ring) == VGPU_XEN_RING_PAGES * VGPU_XEN_PAGE_BYTES);

uint32_t load(uint32_t& index) { return std::atomic_ref(index).load(std::memory_order_acquire); }
void store(uint32_t& index, uint32_t value) { std::atomic_ref(index).store(value, std::memory_order_release); }

}  // namespace

Status Ring::take(std::optional<RingRequest>& request) {
  request.reset();
  const uint32_t end = load(shared_->indices.requests);
  if (end - requests_ > VGPU_XEN_SLOTS) {
    return Status::error(EPROTO, "the ring's index is {}, {} requests were taken", end, requests_);
  }
  if (end == requests_ || unanswered() >= VGPU_XEN_SLOTS) return {};
  vgpu_xen_request entry;
  std::memcpy(&entry, &shared_->requests[requests_ % VGPU_XEN_SLOTS], sizeof entry);
  std::atomic_signal_fence(std::memory_order_seq_cst);  // what is checked below is what was copied
  if (entry.bytes > sizeof entry.body || entry.pages > VGPU_XEN_PAGES_MAX) {
    return Status::error(EPROTO, "a request of {} bytes that names {} pages", uint32_t{entry.bytes},
                         uint32_t{entry.pages});
  }
  ++requests_;
  request = RingRequest{entry.tag, entry.list, entry.pages, {entry.body, entry.body + entry.bytes}};
  return {};
}

void Ring::answer(uint32_t tag, const vgpu_ctl_reply& reply) {
  vgpu_xen_reply entry{};
  entry.tag = tag;
  entry.reply = reply;
  std::memcpy(&shared_->replies[replies_ % VGPU_XEN_SLOTS], &entry, sizeof entry);
  store(shared_->indices.replies, ++replies_);
}

Status Ring::put(const vgpu_event& event, bool& done) {
  const uint32_t waiting = events_ - load(shared_->indices.events_taken);
  if (waiting > VGPU_XEN_EVENTS) return Status::error(EPROTO, "more events were taken than there were");
  done = waiting < VGPU_XEN_EVENTS;
  if (!done) return {};
  std::memcpy(&shared_->events[events_ % VGPU_XEN_EVENTS], &event, sizeof event);
  store(shared_->indices.events, ++events_);
  return {};
}

}  // namespace bandsaw::xen
