// The guest processes of one VM, or the one of a direct connection: checks control requests and drives runners.
//
// Two frontends use it: the virtio device (ids chosen by the guest's kernel module, RAM that comes and goes) and the
// direct socket (one process, its arena as RAM). A request's answer comes through its callback, once, possibly from
// inside `request`, possibly after the Processes is gone.
//
// Threads: the event loop's only. The runner source and the usage page outlive it.
#pragma once

#include <array>
#include <functional>
#include <map>
#include <memory>
#include <nlohmann/json_fwd.hpp>
#include <span>
#include <string>
#include <vector>

#include "backend/session/exchange.h"
#include "backend/session/ram_map.h"
#include "backend/session/request.h"
#include "backend/session/runner_slots.h"
#include "backend/session/usage_page_owner.h"
#include "memory/base/log_budget.h"

struct event_base;

namespace bandsaw {

// Told of what happens to processes without a request.
class ProcessWatcher {
 public:
  virtual ~ProcessWatcher() = default;
  virtual void wake(uint32_t process) = 0;  // a waiting thread of it has something to read
  virtual void lost(uint32_t process) = 0;  // its runner died; must not destroy the Processes before it returns
};

// A process that has a runner, and the runner's slot of the usage page.
struct ProcessSlot {
  uint32_t pid = 0;  // as its kernel says
  int slot = 0;
};

struct ProcessesConfig {
  std::string vgpu;
  vgpu_schema schema{};
  bool direct = false;
  uint64_t arena_bytes = VGPU_WINDOW_DEVICE_OFFSET;  // direct mode only
  uint32_t processes_max = kUsageSlots;
  // How many runners all processes of the virtual GPU may have now, since each holds a context. Empty: all slots.
  std::function<uint32_t()> runners_max{};
  std::function<uint32_t()> limit{};          // of all processes of the virtual GPU, as an administrator set it
  uint32_t regions_max = 16384;               // per process
  uint64_t segments_max = uint64_t{4} << 20;  // per process, regions and rings together
  uint32_t outstanding_max = 1024;            // unanswered requests per process
  // A client of an MPS daemon has ended, with this sticky error of its context.
  std::function<void(const std::string& mps, uint32_t sticky)> client_ended{};
  // Whose the processes of a VM are. Empty: nobody's. In direct mode they are their users'.
  std::function<GuestOwner()> vm{};
  // Whether what the process had is in a file, so that it may get another runner. Empty: never; then nothing is kept
  // for that, and no process may come back.
  std::function<bool(const ReturnKey&)> replaceable{};
  // Whether a process of this virtual GPU has the key; and that one has ended, so that the file is of no use to it.
  std::function<bool(const ReturnKey&)> has{};
  std::function<void(const ReturnKey&)> ended{};
  RunnerSlots* slots = nullptr;  // told of runners and their slots; outlives the runners
  // Answers VGPU_CTL_QUERY. Empty: nobody does.
  std::function<vgpu_ctl_reply(const vgpu_ctl_query&)> query{};
  std::shared_ptr<LogBudget> log = std::make_shared<LogBudget>();
};

class Process;

class Processes {
 public:
  // `fds` is not empty only in direct mode with CREATE_PROCESS: the arena, then the kick eventfd.
  using Answer = std::function<void(const vgpu_ctl_reply& reply, std::span<const int> fds)>;

  Processes(event_base* base, ProcessesConfig config, RunnerSource* source, UsagePageOwner* usage_page,
            ProcessWatcher* watcher);
  ~Processes();  // ends every process
  Processes(const Processes&) = delete;

  // `bytes` is a private copy of what the guest sent. In direct mode `file` may come along: with CREATE_PROCESS the
  // arena of another virtual GPU of the same guest process, so that both runners see its memory; with ADD_REGION a file
  // in memory, whose offsets the segments are then.
  void request(std::span<const std::byte> bytes, const Answer& answer, UniqueFd file = {});

  Status add_ram(Ram ram);
  // `done` is called when no runner has the RAM mapped; processes that use it in a ring or region are ended.
  void remove_ram(uint32_t id, std::function<void()> done);
  const RamMap& ram() const { return ram_; }

  // Ends every process at once; `done` when all are reaped. `forget_ram` drops the map too.
  void end_all(bool forget_ram, std::function<void()> done);

  size_t count() const { return processes_.size(); }
  nlohmann::json status() const;
  std::vector<ProcessSlot> slots() const;
  // Of the pages of all, what other runners could not be given, in words; empty: nothing.
  std::string lacks() const;
  // Those that wait for another runner.
  std::vector<std::shared_ptr<Process>> away() const;
  bool has(const ReturnKey& key) const;

 private:
  friend class Process;
  using ProcessRef = std::shared_ptr<Process>;
  void create(const Request& request, UniqueFd arena, const Answer& answer);
  // An error: what it asks for cannot be; of a process that is to begin, or to come back.
  Status check_new(const Request& request, const UniqueFd& arena) const;
  Status check_return(const Request& request) const;
  void destroy(const Request& request, const Answer& answer);
  ProcessRef find(uint32_t id) const;

  event_base* base_;
  const ProcessesConfig config_;
  RunnerSource* source_;
  UsagePageOwner* usage_page_;
  ProcessWatcher* watcher_;
  RamMap ram_;
  std::map<uint32_t, ProcessRef> processes_;
};

// A reply with this status (0 or an errno) and text; the text is for the guest's log.
vgpu_ctl_reply make_reply(int status, const std::string& message, uint64_t value = 0);

}  // namespace bandsaw
