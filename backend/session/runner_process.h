// One runner process: its socket, the messages under way, its end.
#pragma once

#include <sys/types.h>

#include <chrono>
#include <deque>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "backend/control/event_ptr.h"
#include "backend/sandbox/launcher.h"
#include "backend/session/runner.h"
#include "guest-driver/uapi/wire.h"
#include "memory/base/unique_fd.h"

namespace bandsaw {

inline constexpr std::chrono::milliseconds kEndTimeout{2000};
inline constexpr std::chrono::milliseconds kFailTimeout{500};
inline constexpr std::chrono::milliseconds kStartTimeout{20000};

// How runners are started.
struct RunnerProgram {
  Launcher* launcher = nullptr;                      // borrowed, outlives all runners
  std::vector<std::string> environment;              // NAME=value
  std::string gpu{};                                 // that they are on, by its UUID; empty: any, or none
  std::string mps{};                                 // the MPS daemon that this makes it a client of; empty: none
  MpsPriority priority = MpsPriority::kBelowNormal;  // as its client
};

class RunnerProcess : public Runner {
 public:
  // Told on the event loop's thread; neither may destroy the runner.
  struct Watcher {
    std::function<void(RunnerProcess*)> ready;  // kReady has come
    // Its guest process waits for the end of a standstill.
    std::function<void()> call_waits{};
    // It asks the other runners for room on the device.
    std::function<void()> asks_room{};
    // kPublish, kFetch or kWithdraw has come
    std::function<void(RunnerProcess*, const RunnerMessage&, const ExchangeTail&, UniqueFd)> exchange;
    // kKeepCode or kCodeUsed has come
    std::function<void(const RunnerMessage&, const ExchangeTail&, UniqueFd)> code{};
  };

  static Result<std::unique_ptr<RunnerProcess>> start(event_base* base, const RunnerProgram& program, Watcher watcher);
  ~RunnerProcess() override;  // kills and reaps a process that still lives

  uint64_t window_base() const override { return window_base_; }
  int pid() const override { return pid_; }
  std::string mps() const override { return mps_; }
  MpsPriority mps_priority() const override { return priority_; }
  void send(RunnerMessage message, std::span<const std::byte> tail, std::span<const int> fds, Done done) override;
  void stop(Stop how) override;
  bool ending() const override;
  void fail(uint32_t error) override;
  void set_on_gone(std::function<void()> on_gone) override { on_gone_ = std::move(on_gone); }
  const RunnerChannelGroups* channel_groups() const override { return channel_groups_ ? &*channel_groups_ : nullptr; }
  void set_contexts_off(bool off) override;
  bool contexts_off() const override { return contexts_off_; }
  void set_on_channel_groups(std::function<void()> changed) override { on_channel_groups_ = std::move(changed); }

  bool ready() const { return window_base_ != 0; }
  // What it has said of its device; null: nothing.
  const vgpu_device_info* device_info() const { return device_info_ ? &*device_info_ : nullptr; }
  // Reaps the process if it has ended; `why` then says how. Call `gone` afterwards.
  bool reap(std::string* why);
  void gone();

 private:
  struct Waiting {
    std::vector<std::byte> bytes;
    std::vector<UniqueFd> fds;
    uint32_t serial;
  };
  RunnerProcess(event_base* base, Launcher* launcher, pid_t pid, UniqueFd socket, Watcher watcher);
  void kill();
  void receive();
  void handle(const RunnerMessage& message);
  void call_waits();
  bool handle_exchange(std::span<const std::byte> packet, std::vector<UniqueFd>& fds);
  void take_device_info(std::span<const std::byte>* packet);
  bool handle_channel_groups(std::span<const std::byte> packet, std::vector<UniqueFd>& fds);
  void set_channel_groups(std::optional<RunnerChannelGroups> channel_groups);
  void forget_channel_groups();  // if it has any
  void flush();
  void enqueue(const RunnerMessage& message, std::span<const std::byte> tail, std::span<const int> fds);
  void fail_later(uint32_t serial, int error);
  void answer_failed();
  void answer(uint32_t serial, int error);

  event_base* base_;
  Launcher* launcher_;
  pid_t pid_;
  std::string mps_;
  MpsPriority priority_ = MpsPriority::kBelowNormal;
  UniqueFd socket_;
  Watcher watcher_;
  EventPtr readable_, writable_, kill_timer_, failed_timer_, called_;
  std::deque<Waiting> out_;
  std::map<uint32_t, Done> under_way_;
  std::vector<std::pair<uint32_t, int>> failed_;
  std::function<void()> on_gone_, on_channel_groups_;
  std::optional<RunnerChannelGroups> channel_groups_;
  std::optional<vgpu_device_info> device_info_;
  uint64_t window_base_ = 0;
  uint32_t next_serial_ = 1;
  bool stopping_ = false, contexts_off_ = false;
};

}  // namespace bandsaw
