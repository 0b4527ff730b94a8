#include "backend/runner/checkpointer.h"

#include <cerrno>
#include <chrono>
#include <cstdlib>
#include <thread>
#include <vector>

#include "backend/control/checkpoint_link.h"
#include "backend/control/packet.h"
#include "memory/base/log.h"

namespace bandsaw::runner {
namespace {

void carry_out(int socket, const CheckpointOrder& order, const std::function<Status(int pid, bool off)>& checkpoint) {
  const auto begin = std::chrono::steady_clock::now();
  const Status status = checkpoint(order.pid, order.off != 0);
  const auto took = std::chrono::duration_cast<std::chrono::microseconds>(std::chrono::steady_clock::now() - begin);
  if (!status.ok()) log::error("{}", status.message());
  const CheckpointAnswer answer{order.pid, order.off, status.code(), static_cast<uint32_t>(took.count())};
  const Status sent = send_packet(socket, std::as_bytes(std::span(&answer, 1)), {}, {});
  if (!sent.ok()) log::error("cannot answer the session: {}", sent.message());
}

}  // namespace

int serve_checkpoints(int socket, const std::function<Status(int pid, bool off)>& checkpoint) {
  std::vector<std::thread> threads;
  for (;;) {
    CheckpointOrder order;
    std::vector<UniqueFd> fds;
    const auto length = receive_packet(socket, std::as_writable_bytes(std::span(&order, 1)), &fds);
    if (!length.ok() && length.status().code() == EINTR) continue;
    if (!length.ok() || length.value() != sizeof order) break;
    threads.emplace_back([=, &checkpoint] { carry_out(socket, order, checkpoint); });
  }
  // Without a session nobody waits for what is under way.
  _Exit(EXIT_SUCCESS);
}

}  // namespace bandsaw::runner
