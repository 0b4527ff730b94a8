// The runner's side of the link to its session (backend/control/runner_link.h).
#pragma once

#include <functional>
#include <memory>
#include <span>
#include <vector>

#include "backend/control/runner_link.h"
#include "backend/runner/process.h"
#include "backend/runner/wire/record_loop.h"
#include "memory/base/status.h"
#include "memory/base/unique_fd.h"

namespace bandsaw::runner {

class Service {
 public:
  // `process` must outlive this.
  Service(UniqueFd socket, Process* process);

  // Says that the runner is ready, then serves messages until the session ends it or is gone. An error: the link is
  // broken. Either way the process is to exit.
  Status run();
  // Called when records go on after a standstill, on the thread that serves messages; before run().
  void set_on_go_on(std::function<void()> on_go_on) { on_go_on_ = std::move(on_go_on); }

 private:
  struct Message {
    RunnerMessage header;
    std::span<const std::byte> tail;
    std::vector<UniqueFd> fds;
  };
  enum class Received { kMessage, kEnd };

  Result<Received> receive(Message* message);
  Status handle(Message& message);
  Status take_tail_file(Message* message);
  Status assign(Message& message);
  Status add_ram(Message& message);
  Status add_ring(const Message& message, std::span<const RunnerSegment> segments);
  Status save_memory(const Message& message);
  Status write_saved(int pipe, bool contexts_off);
  Status make_saved(int pipe);
  void answer(uint32_t serial, int error) const;
  bool send_ready() const;
  bool send(const RunnerMessage& message) const;

  const UniqueFd socket_;
  Process* const process_;
  std::unique_ptr<RecordLoop> record_loop_;  // once assigned
  std::vector<CommandRingRef> going_on_;     // rings that the record loop gets once their state has come
  std::vector<std::byte> buffer_;
  std::function<void()> on_go_on_;
};

}  // namespace bandsaw::runner
