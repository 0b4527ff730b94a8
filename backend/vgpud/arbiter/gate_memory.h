// The memory of a session's gates, and the doorbell that says when to read it.
#pragma once

#include <memory>

#include "backend/control/gate_link.h"
#include "memory/base/status.h"
#include "memory/base/unique_fd.h"

namespace bandsaw {

class GateMemory {
 public:
  // Takes the greeting from the socket. EPROTO: it is not as it should be.
  static Result<std::unique_ptr<GateMemory>> receive(int socket);
  ~GateMemory();
  GateMemory(const GateMemory&) = delete;

  GrantPage* grant_page() { return reinterpret_cast<GrantPage*>(static_cast<char*>(memory_) + offset_); }
  int doorbell() const { return doorbell_.get(); }

 private:
  GateMemory(UniqueFd doorbell, void* memory, const GateHello& hello)
      : doorbell_(std::move(doorbell)),
        memory_(memory),
        bytes_(hello.usage_page_bytes),
        offset_(hello.grant_page_offset) {}
  UniqueFd doorbell_;
  void* memory_;
  uint64_t bytes_, offset_;
};

}  // namespace bandsaw
