// A session's packets on the gate socket, as one that has been taken over would send them. What must hold: what is
// taken is within its bounds, and comes with the descriptors that it needs.
#include <cstdlib>
#include <cstring>
#include <span>

#include "backend/vgpud/arbiter/gate_message.h"
#include "memory/base/log.h"
#include "tests/fuzz/input.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace bandsaw;
  log::silence();
  Input input(std::as_bytes(std::span(data, size)));
  const size_t descriptors = input.byte() % 10;
  // A whole packet that begins with the input, or just the input.
  std::byte packet[sizeof(GateMessage) + 64]{};
  const bool whole = input.byte() % 2;
  const auto bytes = input.take(sizeof packet);
  std::memcpy(packet, bytes.data(), bytes.size());
  const auto message =
      read_gate_message(std::span(packet).first(whole ? sizeof(GateMessage) : bytes.size()), descriptors);
  if (!message.ok()) return 0;
  const ChannelGroupList& groups = message.value().channel_groups;
  if (message.value().slot >= kGateSlots || groups.count > groups.handles.size()) std::abort();
  if (descriptors != (groups.count > 0 ? 2 : 0)) std::abort();
  return 0;
}
