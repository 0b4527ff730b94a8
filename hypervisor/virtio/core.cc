#include "hypervisor/virtio/core.h"

#include <fcntl.h>
#include <linux/virtio_config.h>

// Its legacy part is not C++.
#define VIRTIO_RING_NO_LEGACY
#include <linux/virtio_ring.h>

#include <algorithm>
#include <cstring>

#include "memory/base/log.h"

namespace bandsaw::virtio {

namespace {

constexpr uint32_t kBreaksLogged = 20;

constexpr uint64_t bit(unsigned number) { return uint64_t{1} << number; }

template <typename T>
std::span<const uint8_t> bytes_of(const T& value) {
  return {reinterpret_cast<const uint8_t*>(&value), sizeof(value)};
}

vgpu_ctl_reply error_reply(int code, const char* message) {
  vgpu_ctl_reply reply{};
  reply.status = static_cast<uint32_t>(code);
  std::strncpy(reply.message, message, sizeof(reply.message) - 1);
  return reply;
}

}  // namespace

Core::Core(DeviceConfig config, DeviceSink& sink) : sink_(sink) {
  config_.abi_version = VGPU_ABI_VERSION;
  config_.max_processes = config.max_processes;
  config_.schema = config.schema;
  config.name.copy(reinterpret_cast<char*>(config_.name), sizeof(config_.name) - 1);
  for (int i = 0; i < VGPU_QUEUE_COUNT; ++i) queues_.emplace_back(memory_);
}

void Core::connected() {
  connected_ = true;
  sink_.on_connected();
}

void Core::disconnected() {
  connected_ = false;
  memory_.clear();
  clear_driver_state();
  status_ = 0;
  resetting_ = false;
  broken_count_ = 0;
  reset_waiters_.clear();
  sink_.on_disconnected();
}

Status Core::add_ram(uint64_t gpa, uint64_t bytes, UniqueFd fd, uint64_t offset, bool writable) {
  Result<GuestMemory::Range> range = memory_.add(gpa, bytes, fd.get(), offset, writable);
  if (!range.ok()) return range.status();
  if (!range.value().host) return {};
  sink_.on_ram_added({range.value().id, gpa, bytes, std::move(fd), offset, writable});
  return {};
}

void Core::remove_ram(uint64_t gpa, uint64_t bytes, std::function<void(Status)> done) {
  const GuestMemory::Range* found = memory_.find(gpa, bytes);
  const GuestMemory::Range range = found ? *found : GuestMemory::Range{};
  Status status = memory_.remove(gpa, bytes);
  if (!status.ok() || !range.host) return done(std::move(status));
  sink_.on_ram_removed(range.id, [done = std::move(done)] { done({}); });
}

void Core::remove_all_ram(std::function<void(Status)> done) {
  std::vector<uint32_t> shared;
  for (const GuestMemory::Range& range : memory_.ranges())
    if (range.host) shared.push_back(range.id);
  memory_.clear();
  auto left = std::make_shared<size_t>(shared.size() + 1);
  const auto one_done = [left, done = std::move(done)] {
    if (--*left == 0) done({});
  };
  for (uint32_t id : shared) sink_.on_ram_removed(id, one_done);
  one_done();
}

uint64_t Core::offered_features() const {
  return bit(VIRTIO_F_VERSION_1) | bit(VIRTIO_RING_F_INDIRECT_DESC) | bit(VIRTIO_RING_F_EVENT_IDX);
}

void Core::set_driver_features(uint32_t half, uint32_t bits) {
  if (half > 1 || (status_ & VIRTIO_CONFIG_S_FEATURES_OK)) return;
  const unsigned shift = 32 * half;
  driver_features_ = (driver_features_ & ~(uint64_t{0xffffffff} << shift)) | (uint64_t{bits} << shift);
}

void Core::set_status(uint8_t status) {
  if (resetting_) return;
  if (status == 0) return reset([] {});
  uint8_t added = status & ~status_ & ~VIRTIO_CONFIG_S_NEEDS_RESET;
  if (added & VIRTIO_CONFIG_S_FEATURES_OK) {
    const bool usable =
        (driver_features_ & ~offered_features()) == 0 && (driver_features_ & bit(VIRTIO_F_VERSION_1)) != 0;
    if (!usable) added &= ~VIRTIO_CONFIG_S_FEATURES_OK;
  }
  if ((added & VIRTIO_CONFIG_S_DRIVER_OK) && !((status_ | added) & VIRTIO_CONFIG_S_FEATURES_OK))
    added &= ~VIRTIO_CONFIG_S_DRIVER_OK;
  status_ |= added;
  if (added & VIRTIO_CONFIG_S_DRIVER_OK) {
    ready_ = true;
    sink_.on_driver_ready();
    serve_control();
  }
}

void Core::clear_driver_state() {
  ++epoch_;
  ready_ = false;
  driver_features_ = 0;
  events_.clear();
  for (Virtqueue& queue : queues_) queue.reset();
}

// The guest may reuse its pages once the status reads 0, so a session that has processes is asked first.
void Core::reset(std::function<void()> done) {
  reset_waiters_.push_back(std::move(done));
  if (resetting_) return;
  const bool had_driver = status_ & VIRTIO_CONFIG_S_DRIVER_OK;
  clear_driver_state();
  if (!had_driver) return finish_reset();
  resetting_ = true;
  sink_.on_reset([self = weak_from_this(), epoch = epoch_] {
    if (auto core = self.lock(); core && core->resetting_ && core->epoch_ == epoch) core->finish_reset();
  });
}

void Core::finish_reset() {
  status_ = 0;
  resetting_ = false;
  for (auto& done : std::exchange(reset_waiters_, {})) done();
}

void Core::lose_driver_state(uint8_t status) {
  if (status == 0) return;  // it has not begun
  status_ = status | VIRTIO_CONFIG_S_NEEDS_RESET;
  if (interrupts_) interrupts_->config_interrupt();
}

bool Core::check(const Status& status) {
  if (status.ok()) return true;
  // Bounded, because a guest can break and reset the device again and again.
  if (++broken_count_ <= kBreaksLogged)
    log::error("the guest's driver broke the device: {}{}", status.message(),
               broken_count_ == kBreaksLogged ? " (further ones are not logged)" : "");
  ready_ = false;
  status_ |= VIRTIO_CONFIG_S_NEEDS_RESET;
  if (interrupts_) interrupts_->config_interrupt();
  return false;
}

void Core::enable_queue(uint16_t index) {
  if (resetting_ || index >= queues_.size() || queues_[index].enabled()) return;
  check(queues_[index].enable(driver_features_ & bit(VIRTIO_RING_F_EVENT_IDX),
                              driver_features_ & bit(VIRTIO_RING_F_INDIRECT_DESC)));
}

void Core::notify(uint16_t index) {
  if (!ready_) return;
  if (index == VGPU_QUEUE_CONTROL) serve_control();
  if (index == VGPU_QUEUE_EVENT) flush_events();
}

void Core::serve_control() {
  Virtqueue& queue = queues_[VGPU_QUEUE_CONTROL];
  for (bool more = true; more && ready_;) {
    std::optional<Chain> chain;
    if (!check(queue.pop(kRequestMaxBytes, chain))) return;
    if (chain)
      take_request(std::move(*chain));
    else if (!check(queue.want_kicks(true, more)))
      return;
  }
}

void Core::take_request(Chain chain) {
  const uint64_t epoch = epoch_;
  if (chain.oversized) return answer(epoch, chain, error_reply(EMSGSIZE, "control request too long"));
  if (chain.writable_bytes < sizeof(vgpu_ctl_reply)) {
    check(Status::error(EPROTO, "control request without room for its reply"));
    return;
  }
  std::vector<uint8_t> request = std::move(chain.readable);
  chain.readable.clear();
  sink_.on_control(std::move(request), [self = weak_from_this(), epoch, kept = std::move(chain),
                                        answered = false](const vgpu_ctl_reply& reply) mutable {
    if (std::exchange(answered, true)) return;
    if (auto core = self.lock()) core->answer(epoch, kept, reply);
  });
}

void Core::answer(uint64_t epoch, const Chain& chain, const vgpu_ctl_reply& reply) {
  if (epoch != epoch_ || !ready_) return;
  bool notify = false;
  if (!check(queues_[VGPU_QUEUE_CONTROL].push(chain, bytes_of(reply), notify))) return;
  if (notify && interrupts_) interrupts_->queue_interrupt(VGPU_QUEUE_CONTROL);
}

void Core::post_event(vgpu_event_type type, uint32_t process) {
  if (!ready_) return;
  const auto same = [&](const vgpu_event& event) { return event.type == type && event.process == process; };
  if (std::none_of(events_.begin(), events_.end(), same)) events_.push_back({static_cast<uint32_t>(type), process});
  flush_events();
}

void Core::flush_events() {
  Virtqueue& queue = queues_[VGPU_QUEUE_EVENT];
  bool interrupt = false;
  for (bool more = true; more && ready_ && !events_.empty();) {
    std::optional<Chain> chain;
    if (!check(queue.pop(0, chain))) return;
    if (!chain) {
      if (!check(queue.want_kicks(true, more))) return;
      continue;
    }
    bool notify = false;
    if (!check(queue.push(*chain, bytes_of(events_.front()), notify))) return;
    interrupt |= notify;
    // A buffer that is too small goes back empty-handed; the event stays for the next one.
    if (chain->writable_bytes >= sizeof(vgpu_event)) events_.pop_front();
  }
  bool more = false;
  if (events_.empty() && !check(queue.want_kicks(false, more))) return;
  if (interrupt && interrupts_) interrupts_->queue_interrupt(VGPU_QUEUE_EVENT);
}

}  // namespace bandsaw::virtio
