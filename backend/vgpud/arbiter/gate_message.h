// A session's packets on the gate socket. A session is fed by guests, so nothing of them is believed.
#pragma once

#include <cstddef>
#include <span>

#include "backend/control/gate_link.h"
#include "memory/base/status.h"

namespace bandsaw {

// What the packet says, if its length, its numbers and its count of descriptors are possible. EPROTO: they are not.
Result<GateMessage> read_gate_message(std::span<const std::byte> packet, size_t descriptors);

}  // namespace bandsaw
