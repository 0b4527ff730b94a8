#include "hypervisor/vfio_user/commands.h"

#include <fcntl.h>

#include <algorithm>
#include <bit>
#include <cerrno>
#include <cstring>
#include <string>

#include "hypervisor/vfio_user/version.h"
#include "memory/base/log.h"

namespace bandsaw::vfio_user {

namespace {

template <typename T>
T take(const std::vector<uint8_t>& payload, size_t offset = 0) {
  T value;
  std::memcpy(&value, payload.data() + offset, sizeof(value));
  return value;
}

template <typename T>
Answer answer_with(const T& value) {
  const auto* bytes = reinterpret_cast<const uint8_t*>(&value);
  return {0, {bytes, bytes + sizeof(value)}};
}

Answer failure(int error) { return {error, {}}; }

}  // namespace

// One row per command: its payload's bounds and how many descriptors it may carry are checked before its function runs.
struct Commands::Row {
  uint16_t command;
  size_t least, most;  // payload bytes
  size_t fds;
  void (Commands::*run)(Message&, const Done&);
};

const Commands::Row* Commands::find(uint16_t command) {
  static constexpr Row kRows[] = {
      {kVersion, sizeof(Version), 65536, 0, &Commands::version},
      {kDmaMap, sizeof(DmaMap), sizeof(DmaMap), 1, &Commands::dma_map},
      {kDmaUnmap, sizeof(DmaUnmap), sizeof(DmaUnmap), 0, &Commands::dma_unmap},
      {kDeviceGetInfo, sizeof(DeviceInfo), sizeof(DeviceInfo) + 16, 0, &Commands::device_info},
      {kDeviceGetRegionInfo, sizeof(RegionInfo), sizeof(RegionInfo), 0, &Commands::region_info},
      {kDeviceGetRegionIoFds, 0, kPayloadMax, 0, &Commands::unsupported},
      {kDeviceGetIrqInfo, sizeof(IrqInfo), sizeof(IrqInfo), 0, &Commands::irq_info},
      {kDeviceSetIrqs, sizeof(IrqSet), sizeof(IrqSet) + virtio::PciFunction::kVectors, kFdsMax, &Commands::set_irqs},
      {kRegionRead, sizeof(RegionAccess), sizeof(RegionAccess), 0, &Commands::region_read},
      {kRegionWrite, sizeof(RegionAccess), sizeof(RegionAccess) + kTransferMax, 0, &Commands::region_write},
      {kDeviceReset, 0, 0, 0, &Commands::device_reset},
      {kRegionWriteMulti, sizeof(uint64_t), kPayloadMax, 0, &Commands::region_write_multi},
      {kDeviceFeature, 0, kPayloadMax, 0, &Commands::unsupported},
      {kMigDataRead, 0, kPayloadMax, 0, &Commands::unsupported},
      {kMigDataWrite, 0, kPayloadMax, 0, &Commands::unsupported},
  };
  const auto* row =
      std::find_if(std::begin(kRows), std::end(kRows), [&](const Row& r) { return r.command == command; });
  return row == std::end(kRows) ? nullptr : row;
}

void Commands::handle(Message message, Done done) {
  const Row* row = find(message.header.command);
  if (!row) {
    log::warn("vfio-user: unknown command {}", message.header.command);
    return done(failure(ENOTSUP));
  }
  const size_t bytes = message.payload.size();
  if (bytes < row->least || bytes > row->most || message.fds.size() > row->fds || message.fds_cut) {
    log::warn("vfio-user: command {} with {} bytes and {} descriptors refused", message.header.command, bytes,
              message.fds.size());
    return done(failure(EINVAL));
  }
  if (version_agreed_ == (row->command == kVersion)) return done(failure(EINVAL));  // VERSION first, and once
  (this->*row->run)(message, done);
}

void Commands::forget_client() {
  version_agreed_ = false;
  maps_.clear();
}

// What was sent is checked as if the client had sent it.
void Commands::go_on(Held held) {
  using Interrupts = virtio::PciFunction::Interrupts;
  version_agreed_ = changed_ = true;
  pci_.use(held.head.line ? Interrupts::kLine : Interrupts::kMsix);
  auto next = held.fds.begin();
  for (const HeldMap& map : held.maps) {
    UniqueFd fd = map.has_fd ? std::move(*next++) : UniqueFd();
    UniqueFd kept(fd ? ::fcntl(fd.get(), F_DUPFD_CLOEXEC, 0) : -1);
    const Status status = pci_.core().add_ram(map.gpa, map.bytes, std::move(fd), map.offset, map.writable != 0);
    if (!status.ok()) log::warn("vfio-user: DMA map refused: {}", status.message());
    if (status.ok()) maps_.push_back({map, std::move(kept)});
  }
  for (uint32_t vector = 0; vector < virtio::PciFunction::kVectors; ++vector) {
    if (held.head.vectors & 1u << vector) pci_.set_vector(vector, std::move(*next++));
  }
  if (held.head.has_line) pci_.set_line(std::move(*next++));
  pci_.go_on(held.head.registers);
}

size_t Commands::held(HeldPacket* packet, std::vector<int>* fds) {
  changed_ = false;
  registers_ = pci_.registers();
  fds->clear();
  if (!version_agreed_ || maps_.size() > kHeldMapsMax) return 0;
  HeldHead& head = packet->head = {};
  head.line = has_line();
  head.maps = static_cast<uint32_t>(maps_.size());
  head.registers = registers_;
  for (size_t i = 0; i < maps_.size(); ++i) {
    packet->maps[i] = maps_[i].about;
    if (maps_[i].about.has_fd && !maps_[i].fd) return 0;  // no descriptor was left for it
    if (maps_[i].fd) fds->push_back(maps_[i].fd.get());
  }
  for (uint32_t vector = 0; vector < virtio::PciFunction::kVectors; ++vector) {
    if (!pci_.vector(vector)) continue;
    head.vectors |= 1u << vector;
    fds->push_back(pci_.vector(vector).get());
  }
  head.has_line = bool{pci_.line()};
  if (pci_.line()) fds->push_back(pci_.line().get());
  return held_bytes(head.maps);
}

void Commands::version(Message& message, const Done& done) {
  const auto asked = take<Version>(message.payload);
  if (asked.major != kMajor) return done(failure(ENOTSUP));
  const std::string_view text(reinterpret_cast<const char*>(message.payload.data()) + sizeof(Version),
                              message.payload.size() - sizeof(Version));
  Result<std::string> capabilities = negotiate(text);
  if (!capabilities.ok()) {
    log::warn("vfio-user: {}", capabilities.status().message());
    return done(failure(EINVAL));
  }
  Answer answer = answer_with(Version{kMajor, std::min(asked.minor, kMinor)});
  const std::string& json = capabilities.value();
  if (!json.empty()) answer.payload.insert(answer.payload.end(), json.c_str(), json.c_str() + json.size() + 1);
  version_agreed_ = changed_ = true;
  done(std::move(answer));
}

void Commands::dma_map(Message& message, const Done& done) {
  const auto map = take<DmaMap>(message.payload);
  if (map.argsz < sizeof(map) || map.flags == 0 || (map.flags & ~(kDmaReadable | kDmaWritable)))
    return done(failure(EINVAL));
  const bool readable = map.flags & kDmaReadable;
  UniqueFd fd = message.fds.empty() || !readable ? UniqueFd() : std::move(message.fds[0]);
  UniqueFd kept(fd ? ::fcntl(fd.get(), F_DUPFD_CLOEXEC, 0) : -1);
  const HeldMap about{map.address, map.size, map.offset, map.flags & kDmaWritable, bool{fd}};
  Status status = pci_.core().add_ram(map.address, map.size, std::move(fd), map.offset, map.flags & kDmaWritable);
  if (!status.ok()) log::warn("vfio-user: DMA map refused: {}", status.message());
  if (status.ok()) maps_.push_back({about, std::move(kept)});
  changed_ = true;
  done(failure(status.code()));
}

void Commands::dma_unmap(Message& message, const Done& done) {
  const auto unmap = take<DmaUnmap>(message.payload);
  if (unmap.argsz < sizeof(unmap)) return done(failure(EINVAL));
  auto finish = [done, payload = std::move(message.payload)](Status status) {
    done(status.ok() ? Answer{0, payload} : failure(status.code()));
  };
  std::erase_if(maps_, [&unmap](const Map& one) {
    return unmap.flags == kUnmapAll || (one.about.gpa == unmap.address && one.about.bytes == unmap.size);
  });
  changed_ = true;
  if (unmap.flags == kUnmapAll && unmap.address == 0 && unmap.size == 0)
    return pci_.core().remove_all_ram(std::move(finish));
  if (unmap.flags != 0) return done(failure(ENOTSUP));
  pci_.core().remove_ram(unmap.address, unmap.size, std::move(finish));
}

void Commands::device_info(Message& message, const Done& done) {
  if (take<DeviceInfo>(message.payload).argsz < sizeof(DeviceInfo)) return done(failure(EINVAL));
  done(answer_with(DeviceInfo{sizeof(DeviceInfo), VFIO_DEVICE_FLAGS_RESET | VFIO_DEVICE_FLAGS_PCI, VFIO_PCI_NUM_REGIONS,
                              VFIO_PCI_NUM_IRQS}));
}

void Commands::region_info(Message& message, const Done& done) {
  const auto asked = take<RegionInfo>(message.payload);
  if (asked.argsz < sizeof(asked) || asked.index >= VFIO_PCI_NUM_REGIONS) return done(failure(EINVAL));
  const uint64_t bytes = pci_.region_bytes(asked.index);
  const uint32_t flags = bytes ? VFIO_REGION_INFO_FLAG_READ | VFIO_REGION_INFO_FLAG_WRITE : 0;
  done(answer_with(RegionInfo{sizeof(RegionInfo), flags, asked.index, 0, bytes, 0}));
}

void Commands::irq_info(Message& message, const Done& done) {
  const auto asked = take<IrqInfo>(message.payload);
  if (asked.argsz < sizeof(asked) || asked.index >= VFIO_PCI_NUM_IRQS) return done(failure(EINVAL));
  IrqInfo info{sizeof(IrqInfo), 0, asked.index, 0};
  if (asked.index == VFIO_PCI_MSIX_IRQ_INDEX && !has_line()) {
    info.flags = VFIO_IRQ_INFO_EVENTFD;
    info.count = virtio::PciFunction::kVectors;
  }
  if (asked.index == VFIO_PCI_INTX_IRQ_INDEX && has_line()) {
    info.flags = VFIO_IRQ_INFO_EVENTFD | VFIO_IRQ_INFO_MASKABLE | VFIO_IRQ_INFO_AUTOMASKED;
    info.count = 1;
  }
  done(answer_with(info));
}

bool Commands::has_line() const { return pci_.interrupts() == virtio::PciFunction::Interrupts::kLine; }

void Commands::set_irqs(Message& message, const Done& done) {
  changed_ = true;
  const auto request = take<IrqSet>(message.payload);
  const uint32_t data = request.flags & VFIO_IRQ_SET_DATA_TYPE_MASK;
  const uint32_t action = request.flags & VFIO_IRQ_SET_ACTION_TYPE_MASK;
  if (request.argsz < sizeof(request) || request.flags != (data | action) || !std::has_single_bit(data) ||
      !std::has_single_bit(action) || request.index >= VFIO_PCI_NUM_IRQS)
    return done(failure(EINVAL));
  const bool all = data == VFIO_IRQ_SET_DATA_NONE && request.start == 0 && request.count == 0;
  if (request.index == VFIO_PCI_INTX_IRQ_INDEX && has_line()) {
    if (!all) return done(failure(set_line(request, message)));
    if (action == VFIO_IRQ_SET_ACTION_TRIGGER) pci_.set_line({});
    return done({});
  }
  if (request.index == VFIO_PCI_MSIX_IRQ_INDEX && !has_line()) {
    if (!all) return done(failure(set_msix(request, message)));
    if (action == VFIO_IRQ_SET_ACTION_TRIGGER) pci_.clear_vectors();
    return done({});
  }
  done(failure(all ? 0 : EINVAL));  // the device has no interrupts of other kinds
}

int Commands::set_line(const IrqSet& request, Message& message) {
  const size_t flags_bytes = message.payload.size() - sizeof(IrqSet);
  const bool chosen = request.flags & VFIO_IRQ_SET_DATA_BOOL, event = request.flags & VFIO_IRQ_SET_DATA_EVENTFD;
  if (request.start != 0 || request.count != 1 || flags_bytes != (chosen ? 1 : 0) ||
      message.fds.size() > (event ? 1 : 0)) {
    return EINVAL;
  }
  if (request.flags & VFIO_IRQ_SET_ACTION_TRIGGER) {
    if (!event) return ENOTSUP;  // the line is as the ISR register says
    pci_.set_line(message.fds.empty() ? UniqueFd() : std::move(message.fds[0]));
    return 0;
  }
  // Where there is no eventfd for it, QEMU sends messages.
  if (event) return ENOTSUP;
  if (!chosen || message.payload[sizeof(IrqSet)]) pci_.set_line_masked(request.flags & VFIO_IRQ_SET_ACTION_MASK);
  return 0;
}

int Commands::set_msix(const IrqSet& request, Message& message) {
  constexpr uint32_t kVectors = virtio::PciFunction::kVectors;
  if (request.count == 0 || request.start >= kVectors || request.count > kVectors - request.start) return EINVAL;
  if (!(request.flags & VFIO_IRQ_SET_ACTION_TRIGGER)) return ENOTSUP;  // the hypervisor masks vectors itself
  const size_t flags_bytes = message.payload.size() - sizeof(IrqSet);
  if (request.flags & VFIO_IRQ_SET_DATA_EVENTFD) {
    if (flags_bytes != 0 || (!message.fds.empty() && message.fds.size() != request.count)) return EINVAL;
    for (uint32_t i = 0; i < request.count; ++i)
      pci_.set_vector(request.start + i, message.fds.empty() ? UniqueFd() : std::move(message.fds[i]));
    return 0;
  }
  const bool chosen = request.flags & VFIO_IRQ_SET_DATA_BOOL;
  if (!message.fds.empty() || flags_bytes != (chosen ? request.count : 0)) return EINVAL;
  for (uint32_t i = 0; i < request.count; ++i)
    if (!chosen || message.payload[sizeof(IrqSet) + i]) pci_.trigger(request.start + i);
  return 0;
}

void Commands::region_read(Message& message, const Done& done) {
  const auto access = take<RegionAccess>(message.payload);
  if (access.count > kTransferMax) return done(failure(EINVAL));
  Answer answer = answer_with(access);
  answer.payload.resize(sizeof(access) + access.count);
  const std::span data = std::span(answer.payload).subspan(sizeof(access));
  if (!pci_.read(access.region, access.offset, data)) return done(failure(EINVAL));
  done(std::move(answer));
}

void Commands::region_write(Message& message, const Done& done) {
  const auto access = take<RegionAccess>(message.payload);
  const std::span data = std::span<const uint8_t>(message.payload).subspan(sizeof(access));
  if (access.count != data.size() || !pci_.write(access.region, access.offset, data)) return done(failure(EINVAL));
  done(answer_with(access));
}

void Commands::region_write_multi(Message& message, const Done& done) {
  const auto count = take<uint64_t>(message.payload);
  const size_t bytes = message.payload.size() - sizeof(count);
  if (bytes % sizeof(RegionWrite8) != 0 || count != bytes / sizeof(RegionWrite8)) return done(failure(EINVAL));
  for (uint64_t i = 0; i < count; ++i) {
    const auto one = take<RegionWrite8>(message.payload, sizeof(count) + i * sizeof(RegionWrite8));
    if (one.access.count > sizeof(one.data) ||
        !pci_.write(one.access.region, one.access.offset, std::span(one.data).first(one.access.count)))
      return done(failure(EINVAL));
  }
  done(answer_with(count));
}

void Commands::device_reset(Message&, const Done& done) {
  pci_.reset([done] { done({}); });
}

void Commands::unsupported(Message& message, const Done& done) {
  log::debug("vfio-user: command {} is not supported", message.header.command);
  done(failure(ENOTSUP));
}

}  // namespace bandsaw::vfio_user
