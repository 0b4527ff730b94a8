// Rings and descriptors of any content: the device reads and writes guest RAM only, and goes on after a reset.
// Input: options, then per queue its available index and eight heads, then descriptors of six bytes (address / 4,
// length, flags, next) for both rings and for indirect tables.
#include <linux/virtio_config.h>

#include <cstdlib>

#include "memory/base/log.h"
#include "tests/unit/virtio/fake_guest.h"

namespace bandsaw::virtio {
namespace {

constexpr uint64_t kBase = 0x10000, kBytes = 0x20000;

class Input {
 public:
  Input(const uint8_t* data, size_t size) : data_(data), left_(size) {}
  uint8_t byte() { return left_ ? --left_, *data_++ : 0; }
  uint16_t word() { return static_cast<uint16_t>(byte() | byte() << 8); }
  bool empty() const { return left_ == 0; }

 private:
  const uint8_t* data_;
  size_t left_;
};

// Half of the addresses lie outside RAM, some at the end of the address space.
vring_desc descriptor(Input& input) {
  const uint16_t address = input.word(), length = input.word();
  const uint8_t flags = input.byte();
  return {flags & 0x80 ? 0 - uint64_t{address} : kBase + uint64_t{address} * 4,
          flags & 0x40 ? uint32_t{length} << 16 : length, static_cast<uint16_t>(flags & 7), input.byte()};
}

void fill(Input& input, FakeRam& ram, FakeDriver& driver) {
  for (uint16_t queue = 0; queue < 2; ++queue) {
    uint16_t* available = driver.available(queue);
    available[1] = input.byte();
    for (int i = 0; i < 8; ++i) available[2 + i] = input.byte();
  }
  for (uint64_t at = kBase; !input.empty() && at < kBase + 0x200; at += 16) *ram.at<vring_desc>(at) = descriptor(input);
  for (uint64_t at = kBase + 0x6000; !input.empty() && at < kBase + 0x6080; at += 16)
    *ram.at<vring_desc>(at) = descriptor(input);
  for (uint64_t at = kBase + 0x10000; !input.empty() && at < kBase + kBytes; at += 16)
    *ram.at<vring_desc>(at) = descriptor(input);
}

void run(const uint8_t* data, size_t size) {
  static FakeRam ram(kBase, kBytes);
  Input input(data, size);
  const uint8_t options = input.byte();
  FakeSink sink;
  sink.answer_at_once = options & 1;
  Device device({.name = "fuzz"}, sink);
  device.pci().core().connected();
  if (!device.pci().core().add_ram(kBase, kBytes, ram.dup_fd(), 0, true).ok()) std::abort();
  FakeDriver driver(device.pci(), ram);
  std::memset(ram.at<uint8_t>(kBase), 0, kBytes);
  uint64_t features = 1ull << VIRTIO_F_VERSION_1;
  if (options & 2) features |= 1ull << VIRTIO_RING_F_EVENT_IDX;
  if (options & 4) features |= 1ull << VIRTIO_RING_F_INDIRECT_DESC;
  driver.start(features, static_cast<uint16_t>(1 << (options >> 4 & 7)));
  fill(input, ram, driver);
  for (int round = 0; round < 2; ++round) {
    device.post_event(VGPU_EVENT_WAKE, 1);
    device.post_event(VGPU_EVENT_PROCESS_LOST, 2);
    driver.notify(0);
    driver.notify(1);
    for (auto& request : std::exchange(sink.requests, {})) {
      if (request.bytes.size() > kRequestMaxBytes) std::abort();
      request.reply({});
    }
    if (options & 8) device.pci().core().remove_ram(kBase, kBytes, [](Status) {});
  }
  driver.set_status(0);
  if (driver.status() != 0) std::abort();
}

}  // namespace
}  // namespace bandsaw::virtio

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  bandsaw::log::silence();
  bandsaw::virtio::run(data, size);
  return 0;
}
