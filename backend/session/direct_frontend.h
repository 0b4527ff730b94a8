// Direct mode: CUDA programs of this host reach the virtual GPU over a SOCK_SEQPACKET socket, without a VM.
//
// One connection is one guest process; messages are those of vgpu_control.h. When either side goes, the other does.
// Threads: the event loop's only.
#pragma once

#include <functional>
#include <list>
#include <memory>
#include <nlohmann/json_fwd.hpp>

#include "backend/control/event_ptr.h"
#include "backend/session/processes.h"
#include "memory/base/unique_fd.h"

namespace bandsaw {

class DirectFrontend {
 public:
  // `config` is the pattern for each connection. Source and usage_page outlive the frontend.
  DirectFrontend(event_base* base, UniqueFd listener, ProcessesConfig config, RunnerSource* source,
                 UsagePageOwner* usage_page);
  ~DirectFrontend();
  DirectFrontend(const DirectFrontend&) = delete;

  // Who may be served, by the socket of whoever connects: an error is the answer to all that this one asks. It is asked
  // once for each connection, so that those who have connected go on when the owner changes.
  using Admission = std::function<Status(int socket)>;
  void admit(Admission admission) { admission_ = std::move(admission); }
  size_t connections() const;
  nlohmann::json processes() const;
  std::string lacks() const;                           // as Processes::lacks()
  std::vector<std::shared_ptr<Process>> away() const;  // as Processes::away()
  bool has(const ReturnKey& key) const;                // as Processes::has()
  std::vector<ProcessSlot> slots() const;              // of all connections

 private:
  class Connection;
  void accept();
  void close_later(Connection* connection);  // when no call of it is on the stack
  void reap();

  event_base* base_;
  UniqueFd listener_;
  ProcessesConfig config_;
  RunnerSource* source_;
  UsagePageOwner* usage_page_;
  Admission admission_;  // null: everybody
  EventPtr acceptable_, reap_timer_;
  std::list<std::unique_ptr<Connection>> connections_;
};

}  // namespace bandsaw
