// The device as a PCI function: configuration space, capabilities, BARs and interrupts (virtio 1.2, section 4.1; PCI
// local bus specification 3.0, sections 2.2.6 and 6). A frontend for PCI hypervisors forwards accesses and hands over
// interrupt eventfds.
//
//   BAR 0 (16 KiB): common configuration | ISR | device configuration | notify, a page each
//   BAR 1 (4 KiB):  MSI-X table | pending bits; none where the function has an interrupt line instead
#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <span>

#include "hypervisor/virtio/core.h"
#include "memory/base/unique_fd.h"

namespace bandsaw::virtio {

class PciFunction final : public InterruptSink {
 public:
  enum Region : uint32_t { kBar0 = 0, kBar1 = 1, kConfigSpace = 7 };  // numbered as VFIO does
  static constexpr uint32_t kVectors = 1 + VGPU_QUEUE_COUNT;
  static constexpr uint16_t kNoVector = 0xffff;

  // kLine: INTx, a line that is high while the ISR register is not 0.
  enum class Interrupts { kMsix, kLine };

  explicit PciFunction(Core& core);

  // Makes it another function. To be called while no hypervisor is there.
  void use(Interrupts interrupts);
  Interrupts interrupts() const { return interrupts_; }

  // 0 for regions that the function does not have.
  uint64_t region_bytes(uint32_t region) const;
  // One access. False: outside the region, or of a width that a register access cannot have (BARs: 1, 2, 4, 8).
  bool read(uint32_t region, uint64_t offset, std::span<uint8_t> to);
  bool write(uint32_t region, uint64_t offset, std::span<const uint8_t> from);

  // The eventfd that raises MSI-X vector `vector` (an empty one takes it away). An interrupt that came meanwhile is
  // raised at once.
  void set_vector(uint32_t vector, UniqueFd event);
  void clear_vectors();
  void trigger(uint32_t vector);
  // The eventfd that says that the line is high (an empty one takes it away), and whether that may be said now. It is
  // said once, and then not before set_line_masked(false).
  void set_line(UniqueFd event);
  void set_line_masked(bool masked);

  // What the guest and the hypervisor have set, for another process that goes on with the function.
  struct Registers {
    std::array<uint8_t, 256> config{};
    uint16_t config_vector = kNoVector;
    uint8_t line_masked = 0;
    uint8_t status = 0;  // the driver's
    bool operator==(const Registers&) const = default;
  };
  Registers registers() const;
  // After use(), vectors and line: the driver finds its device in need of a reset.
  void go_on(const Registers& registers);
  const UniqueFd& vector(uint32_t vector) const { return vectors_[vector]; }
  const UniqueFd& line() const { return line_; }

  // A function-level reset; `done` as in Core::reset.
  void reset(std::function<void()> done);
  // The hypervisor has gone: back to power-on state, its RAM and eventfds dropped.
  void hypervisor_gone();
  Core& core() { return core_; }

  void queue_interrupt(uint16_t queue) override;
  void config_interrupt() override;

 private:
  void build_config_space();
  void add_msix();
  uint8_t add_capability(uint8_t id, std::span<const uint8_t> body);
  void put(unsigned offset, unsigned bytes, uint32_t value, uint32_t writable_bits = 0);
  void reset_registers();
  void power_on_registers();
  void config_window(bool store);
  bool bar_read(uint32_t bar, uint64_t offset, std::span<uint8_t> to);
  bool bar_write(uint32_t bar, uint64_t offset, std::span<const uint8_t> from);
  uint64_t common_read(uint64_t offset, size_t width);
  void common_write(uint64_t offset, size_t width, uint64_t value);
  void queue_write(uint64_t offset, size_t width, uint64_t value);
  void raise(uint16_t vector);
  void tell_line();

  Core& core_;
  Interrupts interrupts_ = Interrupts::kMsix;
  std::array<uint8_t, 256> config_{};
  std::array<uint8_t, 256> initial_{};
  std::array<uint8_t, 256> writable_{};  // bits that the guest may change
  unsigned config_end_ = 0x40;           // where the next capability goes
  unsigned last_capability_ = 0;
  unsigned window_ = 0;  // where the PCI configuration access capability lies

  std::array<uint8_t, 4096> msix_{};  // the server's copy of BAR 1
  std::array<UniqueFd, kVectors> vectors_;
  UniqueFd line_;
  bool line_masked_ = false;
  uint32_t device_feature_half_ = 0;
  uint32_t driver_feature_half_ = 0;
  uint16_t config_vector_ = kNoVector;
  uint16_t queue_select_ = 0;
  std::array<uint16_t, VGPU_QUEUE_COUNT> queue_vectors_{};
  uint8_t isr_ = 0;
};

}  // namespace bandsaw::virtio
