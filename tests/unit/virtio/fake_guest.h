// A guest for tests: RAM in a memfd, and a driver that sets the device up through its PCI registers and fills rings.
#pragma once

#include <linux/virtio_pci.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cstddef>
#include <cstring>
#include <vector>

#include "hypervisor/virtio/device.h"
#include "hypervisor/virtio/pci_function.h"
#include "memory/base/unique_fd.h"

#define VIRTIO_RING_NO_LEGACY
#include <linux/virtio_ring.h>

namespace bandsaw::virtio {

inline UniqueFd make_memfd(uint64_t bytes) {
  UniqueFd fd(memfd_create("guest", MFD_CLOEXEC));
  if (ftruncate(fd.get(), static_cast<off_t>(bytes)) != 0) std::abort();
  return fd;
}

// RAM at [gpa, gpa + bytes), as the guest sees it.
class FakeRam {
 public:
  FakeRam(uint64_t gpa, uint64_t bytes) : gpa_(gpa), bytes_(bytes), fd_(make_memfd(bytes)) {
    host_ = static_cast<uint8_t*>(mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd_.get(), 0));
  }
  ~FakeRam() { munmap(host_, bytes_); }
  FakeRam(const FakeRam&) = delete;
  FakeRam& operator=(const FakeRam&) = delete;
  template <typename T>
  T* at(uint64_t gpa) {
    return reinterpret_cast<T*>(host_ + (gpa - gpa_));
  }
  UniqueFd dup_fd() const { return UniqueFd(dup(fd_.get())); }
  uint64_t gpa() const { return gpa_; }
  uint64_t bytes() const { return bytes_; }

 private:
  uint64_t gpa_, bytes_;
  UniqueFd fd_;
  uint8_t* host_;
};

// What the session would do, recorded.
class FakeSink : public DeviceSink {
 public:
  struct Request {
    std::vector<uint8_t> bytes;
    Reply reply;
  };
  void on_control(std::vector<uint8_t> request, Reply reply) override {
    if (answer_at_once) reply({});
    requests.push_back({std::move(request), std::move(reply)});
  }
  void on_ram_added(RamRegion region) override { added.push_back(std::move(region)); }
  void on_ram_removed(uint32_t id, Done done) override {
    removed.push_back(id);
    hold_removals ? pending.push_back(std::move(done)) : done();
  }
  void on_driver_ready() override { ++ready; }
  void on_reset(Done done) override {
    ++resets;
    hold_resets ? pending.push_back(std::move(done)) : done();
  }
  void on_connected() override { ++connects; }
  void on_disconnected() override { ++disconnects; }

  bool answer_at_once = false, hold_resets = false, hold_removals = false;
  std::vector<Request> requests;
  std::vector<RamRegion> added;
  std::vector<uint32_t> removed;
  std::vector<Done> pending;
  int ready = 0, resets = 0, connects = 0, disconnects = 0;
};

class FakeDriver {
 public:
  FakeDriver(PciFunction& pci, FakeRam& ram) : pci_(pci), ram_(ram) {}

  template <typename T>
  T common(size_t offset) {
    T value{};
    pci_.read(PciFunction::kBar0, offset, {reinterpret_cast<uint8_t*>(&value), sizeof(value)});
    return value;
  }
  template <typename T>
  void set_common(size_t offset, T value) {
    pci_.write(PciFunction::kBar0, offset, {reinterpret_cast<const uint8_t*>(&value), sizeof(value)});
  }
  uint8_t status() { return common<uint8_t>(offsetof(virtio_pci_common_cfg, device_status)); }
  void set_status(uint8_t value) { set_common(offsetof(virtio_pci_common_cfg, device_status), value); }
  uint64_t features() {
    set_common<uint32_t>(offsetof(virtio_pci_common_cfg, device_feature_select), 0);
    const uint64_t low = common<uint32_t>(offsetof(virtio_pci_common_cfg, device_feature));
    set_common<uint32_t>(offsetof(virtio_pci_common_cfg, device_feature_select), 1);
    return low | uint64_t{common<uint32_t>(offsetof(virtio_pci_common_cfg, device_feature))} << 32;
  }
  void accept(uint64_t features) {
    for (uint32_t half = 0; half < 2; ++half) {
      set_common(offsetof(virtio_pci_common_cfg, guest_feature_select), half);
      set_common(offsetof(virtio_pci_common_cfg, guest_feature), static_cast<uint32_t>(features >> (32 * half)));
    }
  }
  // Rings of queue `q`: descriptors, available, used, a page apart, from `base`.
  void set_queue(uint16_t q, uint16_t size, uint64_t base) {
    set_common(offsetof(virtio_pci_common_cfg, queue_select), q);
    set_common(offsetof(virtio_pci_common_cfg, queue_size), size);
    const size_t fields[] = {offsetof(virtio_pci_common_cfg, queue_desc_lo),
                             offsetof(virtio_pci_common_cfg, queue_avail_lo),
                             offsetof(virtio_pci_common_cfg, queue_used_lo)};
    for (int i = 0; i < 3; ++i) {
      const uint64_t address = base + static_cast<uint64_t>(i) * 0x2000;
      set_common(fields[i], static_cast<uint32_t>(address));
      set_common(fields[i] + 4, static_cast<uint32_t>(address >> 32));
    }
    set_common<uint16_t>(offsetof(virtio_pci_common_cfg, queue_msix_vector), static_cast<uint16_t>(q + 1));
    set_common<uint16_t>(offsetof(virtio_pci_common_cfg, queue_enable), 1);
    rings_[q] = {size, base};
  }
  // Reset, negotiate, both queues, DRIVER_OK.
  void start(uint64_t features_wanted, uint16_t size = 8) {
    set_status(0);
    std::memset(ram_.at<uint8_t>(ram_.gpa()), 0, 0xc000);
    set_status(1);
    set_status(3);
    accept(features_wanted);
    set_status(11);
    set_common<uint16_t>(offsetof(virtio_pci_common_cfg, msix_config), 0);
    set_queue(0, size, ram_.gpa());
    set_queue(1, size, ram_.gpa() + 0x6000);
    set_status(15);
  }

  vring_desc* descriptors(uint16_t q) { return ram_.at<vring_desc>(rings_[q].base); }
  uint16_t* available(uint16_t q) { return ram_.at<uint16_t>(rings_[q].base + 0x2000); }
  uint16_t* used_words(uint16_t q) { return ram_.at<uint16_t>(rings_[q].base + 0x4000); }
  vring_used_elem used(uint16_t q, uint16_t index) {
    return ram_.at<vring_used_elem>(rings_[q].base + 0x4004)[index % rings_[q].size];
  }
  uint16_t used_index(uint16_t q) { return used_words(q)[1]; }
  uint16_t avail_event(uint16_t q) { return used_words(q)[2 + 4 * rings_[q].size]; }
  void set_used_event(uint16_t q, uint16_t value) { available(q)[2 + rings_[q].size] = value; }
  // Puts `head` into the available ring.
  void offer(uint16_t q, uint16_t head) {
    uint16_t* ring = available(q);
    ring[2 + ring[1] % rings_[q].size] = head;
    ++ring[1];
  }
  void notify(uint16_t q) {
    const uint16_t value = q;
    pci_.write(PciFunction::kBar0, 0x3000 + 4u * q, {reinterpret_cast<const uint8_t*>(&value), 2});
  }
  // A request of `bytes` at `at`, reply room after it, in descriptors 0 and 1.
  void offer_request(uint64_t at, uint32_t bytes, uint64_t reply_at, uint32_t reply_bytes) {
    descriptors(0)[0] = {at, bytes, VRING_DESC_F_NEXT, 1};
    descriptors(0)[1] = {reply_at, reply_bytes, VRING_DESC_F_WRITE, 0};
    offer(0, 0);
  }

 private:
  struct Ring {
    uint16_t size = 0;
    uint64_t base = 0;
  };
  PciFunction& pci_;
  FakeRam& ram_;
  Ring rings_[2];
};

}  // namespace bandsaw::virtio
