// Which opcodes the host has for this library's calls: their own, if both are of one build; else the ones that the host
// says it has for calls of the same id (guest-driver/uapi/protocol.md, "Versions").
#pragma once

#include <array>
#include <cstdint>
#include <span>

#include "guest-driver/uapi/wire.h"

namespace bandsaw::libcuda {

class HostCalls {
 public:
  HostCalls();

  // `ids` is what the host answers to call_ids: the ids of its opcodes from 1. Before cuInit ends, by one thread.
  void learn(std::span<const uint64_t> ids);

  // The host's opcode; 0 if it has no such call. Thread-safe after learn().
  uint32_t opcode(wire::Opcode call) const { return opcodes_[static_cast<uint32_t>(call)]; }

  // How many calls the host has not.
  uint32_t missing() const;

 private:
  std::array<uint32_t, wire::kOpcodes> opcodes_;
};

}  // namespace bandsaw::libcuda
