// What each vfio-user command does to the device: no sockets here. Every size, count, offset, flag and descriptor count
// of a message is checked; a bad one is answered with an error and changes nothing.
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <vector>

#include "hypervisor/vfio_user/held_connection.h"
#include "hypervisor/vfio_user/protocol.h"
#include "hypervisor/virtio/pci_function.h"
#include "memory/base/unique_fd.h"

namespace bandsaw::vfio_user {

// A whole message from the client. The payload is what follows the header.
struct Message {
  Header header{};
  std::vector<uint8_t> payload;
  std::vector<UniqueFd> fds;
  bool fds_cut = false;  // more descriptors came than a message may carry
};

struct Answer {
  int error = 0;  // an errno; the payload is then not sent
  std::vector<uint8_t> payload;
};

class Commands {
 public:
  using Done = std::function<void(Answer)>;

  // `pci` must outlive this object and everything it started.
  explicit Commands(virtio::PciFunction& pci) : pci_(pci) {}

  // Carries out one message and calls `done` once: at once or, when the session must let go of guest pages first
  // (reset, DMA unmap), later. The next message waits for that.
  void handle(Message message, Done done);
  // The client has gone: forget what it negotiated. A new client starts with VERSION.
  void forget_client();
  // Another process has agreed with the client, and died: as if it had been this one.
  void go_on(Held held);
  // What another process would need to go on from here, and whether that has changed since it was asked last. 0 bytes:
  // none could.
  bool held_changed() const { return changed_ || pci_.registers() != registers_; }
  size_t held(HeldPacket* packet, std::vector<int>* fds);

 private:
  struct Row;
  static const Row* find(uint16_t command);

  void version(Message& message, const Done& done);
  void dma_map(Message& message, const Done& done);
  void dma_unmap(Message& message, const Done& done);
  void device_info(Message& message, const Done& done);
  void region_info(Message& message, const Done& done);
  void irq_info(Message& message, const Done& done);
  void set_irqs(Message& message, const Done& done);
  int set_msix(const IrqSet& request, Message& message);
  int set_line(const IrqSet& request, Message& message);
  bool has_line() const;
  void region_read(Message& message, const Done& done);
  void region_write(Message& message, const Done& done);
  void region_write_multi(Message& message, const Done& done);
  void device_reset(Message& message, const Done& done);
  void unsupported(Message& message, const Done& done);

  struct Map {
    HeldMap about;
    UniqueFd fd;
  };

  virtio::PciFunction& pci_;
  bool version_agreed_ = false;
  std::vector<Map> maps_;
  bool changed_ = false;
  virtio::PciFunction::Registers registers_;  // when held() was asked last
};

}  // namespace bandsaw::vfio_user
