#include "backend/vgpud/mps/mps_daemon.h"

#include <signal.h>
#include <sys/wait.h>

#include <algorithm>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <utility>

#include "memory/base/log.h"

namespace bandsaw {
namespace {

using std::chrono::milliseconds;

constexpr milliseconds kPoll{50}, kStartTimeout{10000}, kFirstPause{200}, kLongestPause{10000}, kStable{10000},
    kStopTimeout{5000}, kReplacedTimeout{10000};

}  // namespace

MpsDaemon::MpsDaemon(event_base* base, MpsConfig config, std::function<void()> changed)
    : base_(base), config_(std::move(config)), changed_(std::move(changed)) {
  timer_.reset(event_new(
      base_, -1, EV_TIMEOUT, [](evutil_socket_t, short, void* self) { static_cast<MpsDaemon*>(self)->tick(); }, this));
  replaced_timer_.reset(event_new(
      base_, -1, EV_TIMEOUT, [](evutil_socket_t, short, void* self) { static_cast<MpsDaemon*>(self)->tick_replaced(); },
      this));
}

MpsDaemon::~MpsDaemon() = default;

void MpsDaemon::wait(milliseconds time) {
  const timeval value = to_timeval(time);
  event_add(timer_.get(), &value);
}

MpsDaemon::Instance* MpsDaemon::current() {
  const auto found =
      std::find_if(instances_.begin(), instances_.end(), [](const Instance& one) { return one.current; });
  return found == instances_.end() ? nullptr : &*found;
}

void MpsDaemon::became(Phase phase, std::string directory, std::string error) {
  phase_ = phase;
  const bool same = state_.directory == directory && state_.error == error;
  state_.directory = std::move(directory);
  state_.error = std::move(error);
  if (!same) changed_();
}

void MpsDaemon::want(bool wanted) {
  if (!std::exchange(adopted_, true)) adopt_left_overs();
  if (stopping_ || wanted == wanted_) return;
  wanted_ = wanted;
  if (wanted) {
    if (phase_ == Phase::kOff) begin();
    return;
  }
  event_del(timer_.get());
  if (Instance* instance = current()) {
    log::info("no virtual GPU is 'mps' any more: the MPS daemon (pid {}) ends when its last client has gone",
              instance->process.pid);
    instance->current = false;
    if (Status status = ask_mps_to_quit(config_, instance->process); !status.ok()) log::warn("{}", status.message());
  }
  became(Phase::kOff, "", "");
}

// Of those that an earlier vgpud left, the first goes on; others were about to end.
void MpsDaemon::adopt_left_overs() {
  for (MpsProcess& process : find_left_mps(config_)) {
    log::info("the MPS daemon (pid {}) has lived on", process.pid);
    watch(std::move(process));
    if (instances_.size() > 1) continue;
    wanted_ = true;  // until it turns out that nobody does
    instances_.back().current = true;
    since_ = Clock::now();
    became(Phase::kRunning, instances_.back().process.pipe(), "");
  }
}

void MpsDaemon::begin() {
  auto process = start_mps(config_);
  if (!process.ok()) return failed(process.status().message());
  log::info("started the MPS daemon (pid {}) in {}", process.value().pid, process.value().folder);
  since_ = Clock::now();
  deadline_ = since_ + kStartTimeout;
  watch(std::move(process.value()));
  instances_.back().current = true;
  // What was wrong with the last one is still what there is to say.
  phase_ = Phase::kStarting;
  wait(kPoll);
}

void MpsDaemon::watch(MpsProcess process) {
  Instance& instance = instances_.emplace_back(Instance{.daemon = this, .process = std::move(process)});
  instance.exit.reset(event_new(
      base_, instance.process.pidfd.get(), EV_READ,
      [](evutil_socket_t, short, void* argument) {
        auto* ended = static_cast<Instance*>(argument);
        ended->daemon->died(ended);
      },
      &instance));
  event_add(instance.exit.get(), nullptr);
}

void MpsDaemon::tick() {
  if (stopping_) {
    for (const Instance& instance : instances_) {
      log::warn("the MPS daemon (pid {}) does not end; killing it", instance.process.pid);
      kill_mps(instance.process);
    }
    return;
  }
  if (phase_ == Phase::kWaiting) return begin();
  Instance* instance = current();
  if (phase_ != Phase::kStarting || !instance) return;
  if (reach_mps(instance->process)) return reached();
  if (Clock::now() < deadline_) return wait(kPoll);
  log::error("the MPS daemon (pid {}) does not answer; killing it", instance->process.pid);
  kill_mps(instance->process);
}

void MpsDaemon::reached() {
  log::info("the MPS daemon (pid {}) is ready", current()->process.pid);
  became(Phase::kRunning, current()->process.pipe(), "");
}

void MpsDaemon::died(Instance* instance) {
  const MpsProcess& process = instance->process;
  kill_mps(process);  // its servers: who is their client is to know
  int status = 0;
  std::string how = "has ended";
  if (process.child && ::waitpid(process.pid, &status, 0) == process.pid) {
    how = WIFSIGNALED(status) ? fmt::format("was killed by signal {}", WTERMSIG(status))
                              : fmt::format("exited with status {}", WEXITSTATUS(status));
  }
  const bool was_current = instance->current;
  const std::string pipe = process.pipe(), tail = was_current && !stopping_ ? mps_log_tail(process) : "";
  const auto told = fmt::format("the MPS daemon (pid {}) {}", process.pid, how);
  if (was_current && !stopping_) {
    log::error("{}{}{}", told, tail.empty() ? "; it logged nothing" : "; its log ends with\n", tail);
  } else {
    log::info("{}", told);
  }
  std::error_code ignored;
  std::filesystem::remove_all(process.folder, ignored);
  instances_.remove_if([instance](const Instance& one) { return &one == instance; });
  if (stopping_) {
    if (instances_.empty()) {
      event_del(timer_.get());
      for (const auto& gone : std::exchange(when_gone_, {})) gone();
    }
    return;
  }
  if (!was_current) return;
  if (Clock::now() - since_ > kStable) failures_ = 0;
  ++restarts_;
  state_.lost = pipe;
  failed(told + "; it is started again");
}

void MpsDaemon::replace(const std::string& why) {
  Instance* instance = current();
  if (!instance || stopping_ || phase_ != Phase::kRunning) return;
  log::error("the MPS daemon (pid {}) is replaced: {}", instance->process.pid, why);
  instance->current = false;
  instance->deadline = Clock::now() + kReplacedTimeout;
  if (Status status = ask_mps_to_quit(config_, instance->process); !status.ok()) log::warn("{}", status.message());
  const timeval timeout = to_timeval(kReplacedTimeout);
  event_add(replaced_timer_.get(), &timeout);
  if (Clock::now() - since_ > kStable) failures_ = 0;
  ++restarts_;
  state_.lost = instance->process.pipe();
  failed(why + "; the MPS daemon is replaced");
}

void MpsDaemon::tick_replaced() {
  auto next = Clock::time_point::max();
  for (Instance& instance : instances_) {
    if (instance.deadline > Clock::now()) {
      next = std::min(next, instance.deadline);
      continue;
    }
    instance.deadline = Clock::time_point::max();
    log::warn("the MPS daemon (pid {}) does not end; killing it", instance.process.pid);
    kill_mps(instance.process);
  }
  if (next == Clock::time_point::max()) return;
  const timeval rest =
      to_timeval(std::chrono::ceil<milliseconds>(std::max(next - Clock::now(), Clock::duration::zero())));
  event_add(replaced_timer_.get(), &rest);
}

// Tries again after a pause that doubles.
void MpsDaemon::failed(const std::string& why) {
  if (why != state_.error) log::error("programs on MPS virtual GPUs are refused: {}", why);
  wait(std::min(kLongestPause, kFirstPause * (1 << std::min(failures_++, 8u))));
  became(Phase::kWaiting, "", why);
}

void MpsDaemon::stop(std::function<void()> gone) {
  if (!std::exchange(adopted_, true)) adopt_left_overs();
  stopping_ = true;
  event_del(timer_.get());
  if (instances_.empty()) return gone();
  when_gone_.push_back(std::move(gone));
  for (const Instance& instance : instances_) {
    if (ask_mps_to_quit(config_, instance.process).ok()) continue;
    kill_mps(instance.process);
  }
  wait(kStopTimeout);
}

nlohmann::json MpsDaemon::describe() const {
  static constexpr const char* kNames[] = {"off", "starting", "running", "waiting"};
  pid_t pid = 0;
  std::string log;
  for (const Instance& instance : instances_) {
    if (!instance.current) continue;
    pid = instance.process.pid;
    log = instance.process.folder + "/log";
  }
  return {{"state", kNames[static_cast<int>(phase_)]},
          {"pid", pid},
          {"restarts", restarts_},
          {"error", state_.error},
          {"log", log}};
}

}  // namespace bandsaw
