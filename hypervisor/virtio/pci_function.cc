#include "hypervisor/virtio/pci_function.h"

#include <linux/pci_regs.h>
#include <linux/virtio_pci.h>

#include <algorithm>
#include <cstddef>
#include <cstring>

#include "memory/base/eventfd.h"

namespace bandsaw::virtio {

namespace {

constexpr uint16_t kVendor = 0x1af4;
constexpr uint16_t kDeviceId = 0x1040 + VGPU_VIRTIO_ID;
constexpr uint32_t kClass = 0x120000;  // processing accelerator

constexpr uint64_t kBar0Bytes = 16384, kBar1Bytes = 4096, kPage = 4096;
enum Page : uint64_t { kCommonPage = 0, kIsrPage = 1, kDevicePage = 2, kNotifyPage = 3 };
constexpr uint32_t kNotifyMultiplier = 4;
constexpr uint32_t kPendingBits = 2048;  // in BAR 1
constexpr uint32_t kCommonBytes = offsetof(virtio_pci_common_cfg, queue_used_hi) + 4;
static_assert(kCommonBytes == 56);

bool inside(uint64_t offset, uint64_t count, uint64_t size) { return offset <= size && count <= size - offset; }

virtio_pci_cap capability(uint8_t type, uint8_t bytes, Page page, uint32_t length) {
  virtio_pci_cap cap{};
  cap.cap_len = bytes;
  cap.cfg_type = type;
  cap.bar = 0;
  cap.offset = static_cast<uint32_t>(page * kPage);
  cap.length = length;
  return cap;
}

// What follows the id and next bytes of a capability.
template <typename T>
std::span<const uint8_t> body_of(const T& value) {
  return std::span(reinterpret_cast<const uint8_t*>(&value), sizeof(value)).subspan(2);
}

}  // namespace

PciFunction::PciFunction(Core& core) : core_(core) {
  use(Interrupts::kMsix);
  core_.set_interrupts(this);
}

void PciFunction::use(Interrupts interrupts) {
  interrupts_ = interrupts;
  config_.fill(0);
  writable_.fill(0);
  config_end_ = 0x40;
  last_capability_ = 0;
  build_config_space();
  initial_ = config_;
  power_on_registers();
}

void PciFunction::put(unsigned offset, unsigned bytes, uint32_t value, uint32_t writable_bits) {
  std::memcpy(&config_[offset], &value, bytes);
  std::memcpy(&writable_[offset], &writable_bits, bytes);
}

uint8_t PciFunction::add_capability(uint8_t id, std::span<const uint8_t> body) {
  const unsigned at = config_end_;
  config_[last_capability_ ? last_capability_ + 1 : unsigned{PCI_CAPABILITY_LIST}] = static_cast<uint8_t>(at);
  config_[at] = id;
  std::copy(body.begin(), body.end(), &config_[at + 2]);
  last_capability_ = at;
  config_end_ = static_cast<unsigned>((at + 2 + body.size() + 3) & ~size_t{3});
  return static_cast<uint8_t>(at);
}

void PciFunction::build_config_space() {
  put(PCI_VENDOR_ID, 2, kVendor);
  put(PCI_DEVICE_ID, 2, kDeviceId);
  put(PCI_COMMAND, 2, 0, PCI_COMMAND_MEMORY | PCI_COMMAND_MASTER | PCI_COMMAND_INTX_DISABLE);
  put(PCI_STATUS, 2, PCI_STATUS_CAP_LIST);
  put(PCI_CLASS_REVISION, 4, kClass << 8 | 1);
  put(PCI_CACHE_LINE_SIZE, 1, 0, 0xff);
  put(PCI_LATENCY_TIMER, 1, 0, 0xff);
  put(PCI_BASE_ADDRESS_0, 4, 0, static_cast<uint32_t>(~(kBar0Bytes - 1)));
  if (interrupts_ == Interrupts::kMsix) put(PCI_BASE_ADDRESS_1, 4, 0, static_cast<uint32_t>(~(kBar1Bytes - 1)));
  put(PCI_SUBSYSTEM_VENDOR_ID, 2, kVendor);
  put(PCI_SUBSYSTEM_ID, 2, kDeviceId);
  put(PCI_INTERRUPT_LINE, 1, 0, 0xff);
  put(PCI_INTERRUPT_PIN, 1, interrupts_ == Interrupts::kLine);

  add_capability(PCI_CAP_ID_VNDR,
                 body_of(capability(VIRTIO_PCI_CAP_COMMON_CFG, sizeof(virtio_pci_cap), kCommonPage, kCommonBytes)));
  add_capability(PCI_CAP_ID_VNDR, body_of(capability(VIRTIO_PCI_CAP_ISR_CFG, sizeof(virtio_pci_cap), kIsrPage, 1)));
  add_capability(PCI_CAP_ID_VNDR, body_of(capability(VIRTIO_PCI_CAP_DEVICE_CFG, sizeof(virtio_pci_cap), kDevicePage,
                                                     sizeof(vgpu_virtio_config))));
  const virtio_pci_notify_cap notify{capability(VIRTIO_PCI_CAP_NOTIFY_CFG, sizeof(virtio_pci_notify_cap), kNotifyPage,
                                                kNotifyMultiplier * VGPU_QUEUE_COUNT),
                                     kNotifyMultiplier};
  add_capability(PCI_CAP_ID_VNDR, body_of(notify));
  const virtio_pci_cfg_cap window{capability(VIRTIO_PCI_CAP_PCI_CFG, sizeof(virtio_pci_cfg_cap), kCommonPage, 0), {}};
  window_ = add_capability(PCI_CAP_ID_VNDR, body_of(window));
  std::fill_n(&writable_[window_ + offsetof(virtio_pci_cap, bar)], 1, 0xff);
  std::fill_n(&writable_[window_ + offsetof(virtio_pci_cap, offset)], 12, 0xff);  // offset, length, data
  if (interrupts_ == Interrupts::kMsix) add_msix();
}

void PciFunction::add_msix() {
  std::array<uint8_t, PCI_CAP_MSIX_SIZEOF - 2> msix{};
  const uint16_t control = kVectors - 1;
  const uint32_t table = 0 | kBar1, pending = kPendingBits | kBar1;
  std::memcpy(&msix[PCI_MSIX_FLAGS - 2], &control, 2);
  std::memcpy(&msix[PCI_MSIX_TABLE - 2], &table, 4);
  std::memcpy(&msix[PCI_MSIX_PBA - 2], &pending, 4);
  const unsigned at = add_capability(PCI_CAP_ID_MSIX, msix);
  const uint16_t changeable = PCI_MSIX_FLAGS_ENABLE | PCI_MSIX_FLAGS_MASKALL;
  std::memcpy(&writable_[at + PCI_MSIX_FLAGS], &changeable, 2);
}

void PciFunction::reset_registers() {
  device_feature_half_ = driver_feature_half_ = 0;
  config_vector_ = kNoVector;
  queue_select_ = 0;
  queue_vectors_.fill(kNoVector);
  isr_ = 0;
}

void PciFunction::power_on_registers() {
  config_ = initial_;
  msix_.fill(0);
  reset_registers();
}

void PciFunction::reset(std::function<void()> done) {
  power_on_registers();
  core_.reset(std::move(done));
}

void PciFunction::hypervisor_gone() {
  clear_vectors();
  set_line({});
  power_on_registers();
  core_.disconnected();
}

uint64_t PciFunction::region_bytes(uint32_t region) const {
  switch (region) {
    case kBar0:
      return kBar0Bytes;
    case kBar1:
      return interrupts_ == Interrupts::kMsix ? kBar1Bytes : 0;
    case kConfigSpace:
      return config_.size();
    default:
      return 0;
  }
}

// The window through which a guest without mapped BARs reaches them (virtio 1.2, section 4.1.4.9).
void PciFunction::config_window(bool store) {
  virtio_pci_cfg_cap cap{};
  std::memcpy(&cap, &config_[window_], sizeof(cap));
  if (cap.cap.length != 1 && cap.cap.length != 2 && cap.cap.length != 4) return;
  const std::span data(&config_[window_ + offsetof(virtio_pci_cfg_cap, pci_cfg_data)], cap.cap.length);
  if (!inside(cap.cap.offset, cap.cap.length, region_bytes(cap.cap.bar)) || cap.cap.bar > kBar1) return;
  if (store)
    bar_write(cap.cap.bar, cap.cap.offset, data);
  else
    bar_read(cap.cap.bar, cap.cap.offset, data);
}

bool PciFunction::read(uint32_t region, uint64_t offset, std::span<uint8_t> to) {
  if (to.empty() || !inside(offset, to.size(), region_bytes(region))) return false;
  if (region != kConfigSpace) return bar_read(region, offset, to);
  const unsigned data = window_ + offsetof(virtio_pci_cfg_cap, pci_cfg_data);
  if (offset < data + 4 && offset + to.size() > data) config_window(false);
  std::copy_n(config_.begin() + static_cast<ptrdiff_t>(offset), to.size(), to.begin());
  return true;
}

bool PciFunction::write(uint32_t region, uint64_t offset, std::span<const uint8_t> from) {
  if (from.empty() || !inside(offset, from.size(), region_bytes(region))) return false;
  if (region != kConfigSpace) return bar_write(region, offset, from);
  for (size_t i = 0; i < from.size(); ++i) {
    const uint8_t mask = writable_[offset + i];
    config_[offset + i] = static_cast<uint8_t>((config_[offset + i] & ~mask) | (from[i] & mask));
  }
  const unsigned data = window_ + offsetof(virtio_pci_cfg_cap, pci_cfg_data);
  if (offset < data + 4 && offset + from.size() > data) config_window(true);
  tell_line();  // INTx may have been enabled
  return true;
}

bool PciFunction::bar_read(uint32_t bar, uint64_t offset, std::span<uint8_t> to) {
  const size_t width = to.size();
  std::fill(to.begin(), to.end(), 0);
  if (bar == kBar1) {
    std::copy_n(msix_.begin() + static_cast<ptrdiff_t>(offset), width, to.begin());
    return true;
  }
  if (width != 1 && width != 2 && width != 4 && width != 8) return false;
  const uint64_t page = offset / kPage, at = offset % kPage;
  uint64_t value = 0;
  if (page == kCommonPage) value = common_read(at, width);
  if (page == kIsrPage && at == 0) value = std::exchange(isr_, uint8_t{0});
  if (page == kDevicePage) {
    const auto config = core_.config();
    if (at < config.size()) std::memcpy(&value, &config[at], std::min(width, config.size() - at));
  }
  std::memcpy(to.data(), &value, width);
  return true;
}

bool PciFunction::bar_write(uint32_t bar, uint64_t offset, std::span<const uint8_t> from) {
  const size_t width = from.size();
  if (bar == kBar1) {  // pending bits are read-only
    for (size_t i = 0; i < width && offset + i < kPendingBits; ++i) msix_[offset + i] = from[i];
    return true;
  }
  if (width != 1 && width != 2 && width != 4 && width != 8) return false;
  uint64_t value = 0;
  std::memcpy(&value, from.data(), width);
  const uint64_t page = offset / kPage, at = offset % kPage;
  if (page == kCommonPage) common_write(at, width, value);
  if (page == kNotifyPage && at / kNotifyMultiplier < VGPU_QUEUE_COUNT)
    core_.notify(static_cast<uint16_t>(at / kNotifyMultiplier));
  return true;
}

uint64_t PciFunction::common_read(uint64_t offset, size_t width) {
  using Common = virtio_pci_common_cfg;
  virtio_pci_common_cfg now{};
  now.device_feature_select = device_feature_half_;
  if (device_feature_half_ < 2)
    now.device_feature = static_cast<uint32_t>(core_.offered_features() >> (32 * device_feature_half_));
  now.guest_feature_select = driver_feature_half_;
  if (driver_feature_half_ < 2)
    now.guest_feature = static_cast<uint32_t>(core_.driver_features() >> (32 * driver_feature_half_));
  now.msix_config = config_vector_;
  now.num_queues = VGPU_QUEUE_COUNT;
  now.device_status = core_.status();
  now.queue_select = queue_select_;
  if (Virtqueue* queue = core_.queue(queue_select_)) {
    const Virtqueue::Setup& setup = queue->setup();
    now.queue_size = setup.size;
    now.queue_msix_vector = queue_vectors_[queue_select_];
    now.queue_enable = queue->enabled();
    now.queue_notify_off = queue_select_;
    std::memcpy(&now.queue_desc_lo, &setup.descriptors, 8);
    std::memcpy(&now.queue_avail_lo, &setup.available, 8);
    std::memcpy(&now.queue_used_lo, &setup.used, 8);
  }
  static_assert(offsetof(Common, queue_desc_lo) + 4 == offsetof(Common, queue_desc_hi));
  uint64_t value = 0;
  if (offset < kCommonBytes)
    std::memcpy(&value, reinterpret_cast<const uint8_t*>(&now) + offset,
                std::min<uint64_t>(width, kCommonBytes - offset));
  return value;
}

// Registers are written at their own width (virtio 1.2, section 4.1.3.1); 64-bit ones in halves or whole.
void PciFunction::common_write(uint64_t offset, size_t width, uint64_t value) {
  using Common = virtio_pci_common_cfg;
  const auto is = [&](size_t field, size_t bytes) { return offset == field && width == bytes; };
  const auto vector = [&] { return static_cast<uint16_t>(value < kVectors ? value : kNoVector); };
  if (is(offsetof(Common, device_feature_select), 4)) device_feature_half_ = static_cast<uint32_t>(value);
  if (is(offsetof(Common, guest_feature_select), 4)) driver_feature_half_ = static_cast<uint32_t>(value);
  if (is(offsetof(Common, guest_feature), 4))
    core_.set_driver_features(driver_feature_half_, static_cast<uint32_t>(value));
  if (is(offsetof(Common, msix_config), 2)) config_vector_ = vector();
  if (is(offsetof(Common, queue_select), 2)) queue_select_ = static_cast<uint16_t>(value);
  if (is(offsetof(Common, device_status), 1)) {
    if (value == 0) reset_registers();
    core_.set_status(static_cast<uint8_t>(value));
  }
  if (is(offsetof(Common, queue_msix_vector), 2) && queue_select_ < VGPU_QUEUE_COUNT)
    queue_vectors_[queue_select_] = vector();
  if (offset >= offsetof(Common, queue_size)) queue_write(offset, width, value);
}

void PciFunction::queue_write(uint64_t offset, size_t width, uint64_t value) {
  using Common = virtio_pci_common_cfg;
  Virtqueue* queue = core_.queue(queue_select_);
  if (!queue || queue->enabled()) return;
  Virtqueue::Setup& setup = queue->setup();
  if (offset == offsetof(Common, queue_size) && width == 2) setup.size = static_cast<uint16_t>(value);
  if (offset == offsetof(Common, queue_enable) && width == 2 && value == 1) core_.enable_queue(queue_select_);
  const auto address = [&](size_t field, uint64_t& target) {
    const bool high = offset == field + 4;
    if ((offset != field && !high) || (width != 4 && (width != 8 || high))) return;
    std::memcpy(reinterpret_cast<uint8_t*>(&target) + (high ? 4 : 0), &value, width);
  };
  address(offsetof(Common, queue_desc_lo), setup.descriptors);
  address(offsetof(Common, queue_avail_lo), setup.available);
  address(offsetof(Common, queue_used_lo), setup.used);
}

void PciFunction::set_vector(uint32_t vector, UniqueFd event) {
  if (vector >= kVectors) return;
  vectors_[vector] = std::move(event);
  uint8_t& pending = msix_[kPendingBits];
  if (vectors_[vector] && (pending & 1u << vector)) {
    pending &= static_cast<uint8_t>(~(1u << vector));
    trigger(vector);
  }
}

void PciFunction::clear_vectors() {
  for (UniqueFd& event : vectors_) event.reset();
  msix_[kPendingBits] = 0;
}

void PciFunction::set_line(UniqueFd event) {
  line_ = std::move(event);
  set_line_masked(false);
}

void PciFunction::set_line_masked(bool masked) {
  line_masked_ = masked;
  tell_line();
}

void PciFunction::tell_line() {
  if (isr_ == 0 || line_masked_ || !line_) return;
  uint16_t command = 0;
  std::memcpy(&command, &config_[PCI_COMMAND], sizeof command);
  if (command & PCI_COMMAND_INTX_DISABLE) return;
  line_masked_ = true;
  (void)signal_event(line_.get());  // fails only when the counter is full: it has been said
}

PciFunction::Registers PciFunction::registers() const {
  return {config_, config_vector_, static_cast<uint8_t>(line_masked_), core_.status()};
}

void PciFunction::go_on(const Registers& registers) {
  for (size_t i = 0; i < config_.size(); ++i) {
    config_[i] = static_cast<uint8_t>((initial_[i] & ~writable_[i]) | (registers.config[i] & writable_[i]));
  }
  config_vector_ = registers.config_vector < kVectors ? registers.config_vector : kNoVector;
  line_masked_ = registers.line_masked != 0;
  core_.lose_driver_state(registers.status);
}

void PciFunction::trigger(uint32_t vector) {
  if (vector < kVectors) raise(static_cast<uint16_t>(vector));
}

void PciFunction::raise(uint16_t vector) {
  if (vector >= kVectors) return;
  // The write fails only when the counter is full, and then an interrupt is pending anyway.
  if (!vectors_[vector] || !signal_event(vectors_[vector].get()))
    msix_[kPendingBits] |= static_cast<uint8_t>(1u << vector);
}

void PciFunction::queue_interrupt(uint16_t queue) {
  isr_ |= 1;
  if (queue < queue_vectors_.size()) raise(queue_vectors_[queue]);
  tell_line();
}

void PciFunction::config_interrupt() {
  isr_ |= 2;
  raise(config_vector_);
  tell_line();
}

}  // namespace bandsaw::virtio
