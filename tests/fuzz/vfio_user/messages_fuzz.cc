// vfio-user commands from any client: each message is answered once, and nothing is touched that should not be.
// Input: messages of [command, descriptors, length low, length high, payload].
#include <sys/eventfd.h>

#include <cstdlib>

#include "hypervisor/vfio_user/commands.h"
#include "memory/base/log.h"
#include "tests/unit/virtio/fake_guest.h"

namespace bandsaw::vfio_user {
namespace {

int answers = 0;

void send(Commands& commands, uint16_t command, std::vector<uint8_t> payload, std::vector<UniqueFd> fds) {
  Message message;
  message.header.command = command;
  message.payload = std::move(payload);
  message.fds = std::move(fds);
  answers = 0;
  commands.handle(std::move(message), [](Answer answer) {
    ++answers;
    if (answer.error && !answer.payload.empty()) std::abort();
  });
  if (answers != 1) std::abort();
}

void run(const uint8_t* data, size_t size) {
  static const virtio::FakeRam ram(0, 1 << 20);
  virtio::FakeSink sink;
  virtio::Device device({.name = "fuzz"}, sink);
  Commands commands(device.pci());
  device.pci().core().connected();
  send(commands, kVersion, {0, 0, 1, 0}, {});
  while (size >= 4) {
    const size_t bytes = std::min<size_t>(data[2] | data[3] << 8, size - 4);
    std::vector<UniqueFd> fds;
    for (int i = 0; i < data[1] % 4; ++i)
      fds.push_back(data[0] == kDmaMap ? ram.dup_fd() : UniqueFd(eventfd(0, EFD_NONBLOCK)));
    send(commands, data[0], {data + 4, data + 4 + bytes}, std::move(fds));
    data += 4 + bytes;
    size -= 4 + bytes;
    for (auto& request : std::exchange(sink.requests, {})) request.reply({});
    device.post_event(VGPU_EVENT_WAKE, 1);
  }
  device.pci().hypervisor_gone();
}

}  // namespace
}  // namespace bandsaw::vfio_user

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  bandsaw::log::silence();
  bandsaw::vfio_user::run(data, size);
  return 0;
}
