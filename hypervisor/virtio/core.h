// The virtio device itself, without a transport: feature negotiation, status, queues, configuration, guest RAM. A
// transport (PciFunction) forwards register accesses to it and delivers its interrupts; a frontend adds and removes
// RAM.
//
// Threads: one event loop. Completion functions may be called at once or later, and do nothing once the device is gone.
#pragma once

#include <array>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <span>
#include <vector>

#include "hypervisor/virtio/device.h"
#include "hypervisor/virtio/guest_memory.h"
#include "hypervisor/virtio/virtqueue.h"

namespace bandsaw::virtio {

// How a transport interrupts the guest.
class InterruptSink {
 public:
  virtual ~InterruptSink() = default;
  virtual void queue_interrupt(uint16_t queue) = 0;
  virtual void config_interrupt() = 0;
};

class Core : public std::enable_shared_from_this<Core> {
 public:
  Core(DeviceConfig config, DeviceSink& sink);
  void set_interrupts(InterruptSink* interrupts) { interrupts_ = interrupts; }

  // The frontend's side.
  void connected();
  void disconnected();
  bool is_connected() const { return connected_; }
  Status add_ram(uint64_t gpa, uint64_t bytes, UniqueFd fd, uint64_t offset, bool writable);
  // `done` gets ENOENT at once when there is no such range, else success when the session uses it no more.
  void remove_ram(uint64_t gpa, uint64_t bytes, std::function<void(Status)> done);
  void remove_all_ram(std::function<void(Status)> done);

  // The transport's side.
  uint64_t offered_features() const;
  uint64_t driver_features() const { return driver_features_; }
  void set_driver_features(uint32_t half, uint32_t bits);
  uint8_t status() const { return status_; }  // keeps its old value until a reset has finished
  void set_status(uint8_t status);
  void reset(std::function<void()> done);
  // A driver that had this status has queues that nobody knows: it is told to begin anew.
  void lose_driver_state(uint8_t status);
  Virtqueue* queue(uint16_t index) { return index < queues_.size() ? &queues_[index] : nullptr; }
  void enable_queue(uint16_t index);
  void notify(uint16_t index);
  std::span<const uint8_t> config() const { return {reinterpret_cast<const uint8_t*>(&config_), sizeof(config_)}; }

  // The session's side.
  void post_event(vgpu_event_type type, uint32_t process);
  bool driver_ready() const { return ready_; }

 private:
  void serve_control();
  void take_request(Chain chain);
  void answer(uint64_t epoch, const Chain& chain, const vgpu_ctl_reply& reply);
  void flush_events();
  void finish_reset();
  void clear_driver_state();
  bool check(const Status& status);  // false and NEEDS_RESET when it is an error

  vgpu_virtio_config config_{};
  DeviceSink& sink_;
  InterruptSink* interrupts_ = nullptr;
  GuestMemory memory_;
  std::vector<Virtqueue> queues_;
  std::deque<vgpu_event> events_;
  std::vector<std::function<void()>> reset_waiters_;
  uint64_t driver_features_ = 0;
  uint64_t epoch_ = 0;  // grows with each reset: answers of an earlier epoch go nowhere
  uint32_t broken_count_ = 0;
  uint8_t status_ = 0;
  bool connected_ = false;
  bool resetting_ = false;
  bool ready_ = false;
};

}  // namespace bandsaw::virtio
