#include "backend/runner/checkpointer.h"

#include <cerrno>
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <thread>
#include <vector>

#include "backend/control/checkpoint_link.h"
#include "backend/control/packet.h"
#include "memory/base/log.h"

namespace bandsaw::runner {
namespace {

std::string text_of(const GpuUuidText& uuid) { return {uuid.data(), ::strnlen(uuid.data(), uuid.size())}; }

Status carry_out(const CheckpointOrder& order, const CheckpointDriver& driver) {
  const std::string left = text_of(order.left), wanted = text_of(order.wanted);
  if (left == wanted) return driver.checkpoint(order.pid, order.off != 0, {});
  const auto gpus = driver.host_gpus();
  if (!gpus.ok()) return gpus.status();
  const auto pairs = pairs_for_move(left, wanted, gpus.value());
  return pairs.ok() ? driver.checkpoint(order.pid, order.off != 0, pairs.value()) : pairs.status();
}

void carry_out_and_answer(int socket, const CheckpointOrder& order, const CheckpointDriver& driver) {
  const auto begin = std::chrono::steady_clock::now();
  const Status status = carry_out(order, driver);
  const auto took = std::chrono::duration_cast<std::chrono::microseconds>(std::chrono::steady_clock::now() - begin);
  if (!status.ok()) log::error("{}", status.message());
  const CheckpointAnswer answer{order.pid, order.off, status.code(), static_cast<uint32_t>(took.count())};
  const Status sent = send_packet(socket, std::as_bytes(std::span(&answer, 1)), {}, {});
  if (!sent.ok()) log::error("cannot answer the session: {}", sent.message());
}

}  // namespace

Result<std::vector<GpuPair>> pairs_for_move(const std::string& left, const std::string& wanted,
                                            const std::vector<std::string>& host_gpus) {
  std::vector<GpuPair> pairs;
  size_t found = 0;
  for (const std::string& gpu : host_gpus) {
    found += gpu == left || gpu == wanted ? 1 : 0;
    pairs.push_back({gpu, gpu == left ? wanted : gpu == wanted ? left : gpu});
  }
  if (found != 2) return Status::error(EINVAL, "no move from '{}' to '{}': this host lacks one of them", left, wanted);
  return pairs;
}

int serve_checkpoints(int socket, const CheckpointDriver& driver) {
  std::vector<std::thread> threads;
  for (;;) {
    CheckpointOrder order;
    std::vector<UniqueFd> fds;
    const auto length = receive_packet(socket, std::as_writable_bytes(std::span(&order, 1)), &fds);
    if (!length.ok() && length.status().code() == EINTR) continue;
    if (!length.ok() || length.value() != sizeof order) break;
    threads.emplace_back([=, &driver] { carry_out_and_answer(socket, order, driver); });
  }
  // Without a session nobody waits for what is under way.
  _Exit(EXIT_SUCCESS);
}

}  // namespace bandsaw::runner
