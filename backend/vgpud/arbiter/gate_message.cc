#include "backend/vgpud/arbiter/gate_message.h"

#include <cstring>

namespace bandsaw {

Result<GateMessage> read_gate_message(std::span<const std::byte> packet, size_t descriptors) {
  GateMessage message;
  if (packet.size() != sizeof message) return Status::error(EPROTO, "a packet of {} bytes", packet.size());
  std::memcpy(&message, packet.data(), sizeof message);
  const uint32_t count = message.channel_groups.count;
  if (message.slot >= kGateSlots) return Status::error(EPROTO, "slot {}", message.slot);
  switch (message.type) {
    case GateMessageType::kChannelGroups:
      if (count > kChannelGroupsMax) return Status::error(EPROTO, "{} channel groups", count);
      break;
    case GateMessageType::kRunnerEnds:
      if (count > 0) return Status::error(EPROTO, "{} channel groups of a runner that ends", count);
      break;
    default:
      return Status::error(EPROTO, "a packet of type {}", static_cast<uint32_t>(message.type));
  }
  if (descriptors != (count > 0 ? 2u : 0u))
    return Status::error(EPROTO, "{} descriptors with {} channel groups", descriptors, count);
  return message;
}

}  // namespace bandsaw
