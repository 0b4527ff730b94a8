#include "backend/runner/code_link.h"

#include <cstring>
#include <span>

#include "backend/control/packet.h"

namespace bandsaw::runner {

void CodeLink::keep(const std::string& key, int file, uint64_t bytes) {
  send({.type = RunnerMessageType::kKeepCode, .bytes = bytes}, key, file);
}

void CodeLink::used(const std::string& key) { send({.type = RunnerMessageType::kCodeUsed}, key, -1); }

// Whether it arrives is not known: the next program compiles what is not there.
void CodeLink::send(const RunnerMessage& message, const std::string& key, int file) const {
  ExchangeTail tail;
  if (key.size() != tail.payload.size()) return;
  std::memcpy(tail.payload.data(), key.data(), key.size());
  const std::span<const int> fds(&file, file >= 0 ? 1 : 0);
  (void)send_packet(socket_, std::as_bytes(std::span(&message, 1)), std::as_bytes(std::span(&tail, 1)), fds);
}

}  // namespace bandsaw::runner
