// The memory of a session's gates, and the doorbell that says when to read it.
#pragma once

#include <memory>
#include <vector>

#include "backend/control/runner_link.h"
#include "memory/base/status.h"
#include "memory/base/unique_fd.h"

namespace bandsaw {

// Whether the places that a greeting names lie in a usage page of `file_bytes`. EPROTO: they do not.
Status check_greeting(const GateHello& hello, uint64_t file_bytes);

class GateMemory {
 public:
  // Takes the greeting from the socket, which does not block. EPROTO: it is not as it should be; then `refused` has its
  // descriptors, whose end may take its time.
  static Result<std::unique_ptr<GateMemory>> receive(int socket, std::vector<UniqueFd>* refused);
  ~GateMemory();
  GateMemory(const GateMemory&) = delete;

  GrantPage* grant_page() { return reinterpret_cast<GrantPage*>(static_cast<char*>(memory_) + offset_); }
  // The page that the grant page is a part of. Null: the session has another idea of it than this vgpud.
  const UsagePage* usage_page() const;
  // An eventfd, to be watched for its edges. It is never read: the session has it too, and could let a read wait.
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
