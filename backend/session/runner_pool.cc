#include "backend/session/runner_pool.h"

#include <signal.h>

#include <algorithm>
#include <set>

#include "backend/control/json_link.h"
#include "backend/control/window_bases.h"
#include "memory/base/log.h"

namespace bandsaw {
namespace {

constexpr unsigned kStartingMax = 4;
constexpr unsigned kFailuresToGiveUp = 3;
constexpr std::chrono::milliseconds kFirstPause{100};
constexpr std::chrono::milliseconds kLongestPause{10000};
constexpr std::chrono::seconds kWaiterTimeout{30};
constexpr std::chrono::seconds kPaceSaidAgain{60};
constexpr long kTickMs = 100;
constexpr long kWarmLaterMs = 300;  // after a hold
// The first warm runner waits this long: vgpud's first questions, and those of who has the virtual GPU made, go before.
constexpr long kFirstWarmMs = 50;

}  // namespace

RunnerPool::RunnerPool(event_base* base, RunnerProgram program, unsigned warm, uint32_t index)
    : base_(base), program_(std::move(program)), environment_(program_.environment), target_(warm), exchange_(index) {
  child_signal_.reset(event_new(
      base_, SIGCHLD, EV_SIGNAL | EV_PERSIST,
      [](evutil_socket_t, short, void* self) { static_cast<RunnerPool*>(self)->reap(); }, this));
  event_add(child_signal_.get(), nullptr);
  timer_.reset(event_new(
      base_, -1, EV_TIMEOUT, [](evutil_socket_t, short, void* self) { static_cast<RunnerPool*>(self)->tick(); }, this));
}

RunnerPool::~RunnerPool() {
  for (const auto runners = std::exchange(runners_, {}); const Entry& entry : runners) {
    entry.runner->stop(Runner::Stop::kKill);
    entry.runner->gone();
  }
}

void RunnerPool::start() { later(kFirstWarmMs); }

unsigned RunnerPool::warm() const {
  return static_cast<unsigned>(
      std::count_if(runners_.begin(), runners_.end(), [](const Entry& e) { return e.spare() && e.runner->ready(); }));
}

void RunnerPool::set_launch_config(RunnerLaunchConfig launch_config) {
  if (launch_config == launch_config_) return;
  if (!launch_config.why.empty()) log::info("{}", launch_config.why);
  if (!launch_config.mps.empty()) log::info("runners become clients of the MPS daemon in {}", launch_config.mps);
  launch_config_ = std::move(launch_config);
  program_.environment = with_variables(environment_, launch_config_.variables);
  program_.mps = launch_config_.mps;
  program_.gpu = launch_config_.gpu;
  program_.priority = launch_config_.priority;
  dismiss_warm();
  failures_in_a_row_ = 0;
  last_failure_.clear();
  not_before_ = {};
  if (launch_config_.refusal && launch_config_.refusal != EAGAIN)
    refuse_waiters(Status::error(launch_config_.refusal, "{}", launch_config_.why), false);
  keep_warm();
}

void RunnerPool::dismiss_warm() {
  for (Entry& entry : runners_) {
    if (!entry.spare()) continue;
    entry.dismissed = true;
    // A client that dies while it connects to an MPS server leaves a server that takes no others.
    const bool connects =
        !launch_config_.mps.empty() && entry.runner->mps() == launch_config_.mps && !entry.runner->ready();
    if (!connects) entry.runner->stop(Runner::Stop::kKill);
  }
}

void RunnerPool::end_clients(const std::string& mps) {
  unsigned count = 0;
  for (Entry& entry : runners_) {
    if (!entry.taken || entry.runner->mps() != mps || entry.kill_at != Clock::time_point::max()) continue;
    entry.kill_at = Clock::now() + kLostTimeout;
    ++count;
  }
  if (count == 0) return;
  log::error("the MPS daemon of {} runners has died; what still runs there in {} ms is killed", count,
             kLostTimeout.count());
  later(kTickMs);
}

void RunnerPool::end_all() {
  for (Entry& entry : runners_) {
    if (entry.taken) entry.runner->stop(Runner::Stop::kKill);
  }
}

std::string RunnerPool::failing() const { return failures_in_a_row_ >= kFailuresToGiveUp ? last_failure_ : ""; }

void RunnerPool::kill_due() {
  auto next = Clock::time_point::max();
  for (Entry& entry : runners_) {
    if (entry.kill_at > Clock::now()) {
      next = std::min(next, entry.kill_at);
      continue;
    }
    entry.kill_at = Clock::time_point::max();
    entry.runner->stop(Runner::Stop::kKill);
  }
  if (next != Clock::time_point::max()) later(kTickMs);
}

void RunnerPool::later(long milliseconds_from_now) {
  const timeval time = to_timeval(std::chrono::milliseconds(milliseconds_from_now));
  event_add(timer_.get(), &time);
}

void RunnerPool::take(Taken taken, uint32_t taken_bases) {
  if (waiters_.size() >= kUsageSlots) return taken(Status::error(EAGAIN, "{} processes wait already", waiters_.size()));
  if (launch_config_.refusal && launch_config_.refusal != EAGAIN)
    return taken(Status::error(launch_config_.refusal, "{}", launch_config_.why));
  if (on_call_) on_call_();
  waiters_.push_back({std::move(taken), Clock::now() + kWaiterTimeout, taken_bases});
  serve();
  keep_warm();
}

void RunnerPool::take_in_hold(Taken taken, uint32_t taken_bases) {
  waiters_.push_front({std::move(taken), Clock::now() + kWaiterTimeout, taken_bases, true});
  serve();
  keep_warm();
}

void RunnerPool::hold(bool held) {
  if (held_ == held) return;
  held_ = held;
  if (held_) return dismiss_warm();
  for (Waiter& waiter : waiters_) waiter.deadline = Clock::now() + kWaiterTimeout;
  warming_ = false;  // a context that is made stops everybody on a GPU for a moment, and calls have waited already
  serve();
  keep_warm();
  if (waiters_.empty()) later(kWarmLaterMs);
}

std::vector<Runner*> RunnerPool::serving() const {
  std::vector<Runner*> all;
  for (const Entry& entry : runners_) {
    if (entry.taken) all.push_back(entry.runner.get());
  }
  return all;
}

// Its address window lies, or will lie, where the program can have it.
bool RunnerPool::suits(const Entry& entry, const Waiter& waiter) {
  if (!entry.runner->ready()) return (waiter.taken_bases & ~entry.avoided) == 0;
  return (waiter.taken_bases & bit_of_base(entry.runner->window_base())) == 0;
}

RunnerPool::Entry* RunnerPool::ready_for(const Waiter& waiter) {
  const auto found = std::find_if(runners_.begin(), runners_.end(), [&](const Entry& entry) {
    return entry.spare() && entry.runner->ready() && suits(entry, waiter);
  });
  return found == runners_.end() ? nullptr : &*found;
}

// Gives ready runners to those who wait.
void RunnerPool::serve() {
  for (size_t i = 0; i < waiters_.size();) {
    if (held_ && !waiters_[i].in_hold) return;
    Entry* const entry = ready_for(waiters_[i]);
    if (!entry) {
      ++i;
      continue;
    }
    if (!waiters_[i].in_hold && too_early(program_pace_)) return;
    entry->taken = true;
    const Waiter waiter = std::move(waiters_[i]);
    waiters_.erase(waiters_.begin() + static_cast<long>(i));
    waiter.taken(entry->runner.get());  // which may ask for more
    i = 0;
  }
}

RunnerProcess::Watcher RunnerPool::watcher() {
  RunnerProcess::Watcher made;
  made.ready = [this](RunnerProcess* runner) {
    const bool dismissed = std::any_of(runners_.begin(), runners_.end(), [&](const Entry& entry) {
      return entry.runner.get() == runner && entry.dismissed;
    });
    if (dismissed) return runner->stop(Runner::Stop::kKill);
    failures_in_a_row_ = 0;
    if (runner->device_info()) device_info_ = *runner->device_info();
    serve();
    keep_warm();
  };
  made.call_waits = [this] {
    if (on_call_) on_call_();
  };
  made.asks_room = [this] {
    if (on_asks_room_) on_asks_room_();
  };
  made.exchange = [this](RunnerProcess* runner, const RunnerMessage& message, const ExchangeTail& tail, UniqueFd fd) {
    if (is_about_segments(message.type)) return segments_ ? segments_->request(runner, message, tail) : void();
    if (message.type == RunnerMessageType::kCheckpoint)
      return on_checkpoint_ ? on_checkpoint_(runner, message) : void();
    exchange_.request(runner, runner->served().owner, message, tail, std::move(fd));
  };
  made.code = [this](const RunnerMessage& message, const ExchangeTail& tail, const UniqueFd& file) {
    if (code_store_) code_store_->request(message, tail, file.get());
  };
  return made;
}

// Whether a runner that is started now would be of use; if not, last_failure_ says why.
bool RunnerPool::startable() {
  if (launch_config_.refusal) {
    last_failure_ = launch_config_.why;
    return false;
  }
  if (launch_config_.socket.empty()) return true;
  // Without a daemon, NVIDIA's driver would silently give the runner a context of its own.
  const Status reached = reach_unix(launch_config_.socket).status();
  if (!reached.ok()) last_failure_ = "the MPS daemon does not answer: " + reached.message();
  return reached.ok();
}

bool RunnerPool::start_one(uint32_t taken_bases) {
  if (!startable()) return false;
  RunnerProgram program = program_;
  if (taken_bases != 0) program.environment.push_back("BANDSAW_WINDOW_TAKEN=" + std::to_string(taken_bases));
  auto runner = RunnerProcess::start(base_, program, watcher());
  if (!runner.ok()) {
    note_failure(runner.status().message());
    return false;
  }
  ++started_;
  runners_.push_back({.runner = std::move(runner.value()), .avoided = taken_bases});
  return true;
}

// Runners for programs that none of the warm ones would do for. False: one is wanted and cannot be started now.
bool RunnerPool::start_for_others() {
  std::set<size_t> meant;  // which of runners_ is for somebody
  for (const Waiter& waiter : waiters_) {
    if (waiter.taken_bases == 0 || (held_ && !waiter.in_hold)) continue;
    size_t i = 0;
    const auto fits = [&] { return runners_[i].spare() && !meant.contains(i) && suits(runners_[i], waiter); };
    while (i < runners_.size() && !fits()) ++i;
    const bool may = i < runners_.size() || (starting() < kStartingMax && Clock::now() >= not_before_ &&
                                             !too_early(start_pace_) && start_one(waiter.taken_bases));
    if (!may) return false;
    meant.insert(i);
  }
  return true;
}

// A runner makes a context, which stops everybody on a GPU.
bool RunnerPool::too_early(const Pace& pace) {
  if (!pace || pace() <= std::chrono::nanoseconds(0)) return false;
  const auto now = Clock::now();
  for (Waiter& waiter : waiters_) waiter.deadline = now + kWaiterTimeout;
  if (pace_said_ == Clock::time_point() || now - pace_said_ > kPaceSaidAgain) {
    log::info("programs begin more slowly: each stops those of others for a moment (the limit 'stall_ms')");
    pace_said_ = now;
  }
  return true;
}

unsigned RunnerPool::starting() const {
  return static_cast<unsigned>(
      std::count_if(runners_.begin(), runners_.end(), [](const Entry& e) { return e.spare() && !e.runner->ready(); }));
}

void RunnerPool::keep_warm() {
  const auto idle = [](const Entry& e) { return e.spare() && e.avoided == 0; };
  const auto asks = [this](const Waiter& one) { return one.taken_bases == 0 && (!held_ || one.in_hold); };
  const auto waiting = static_cast<size_t>(std::count_if(waiters_.begin(), waiters_.end(), asks));
  const size_t wanted = waiting + (held_ || !warming_ ? 0 : target_);
  if (held_ && std::none_of(waiters_.begin(), waiters_.end(), [](const Waiter& one) { return one.in_hold; })) return;
  bool pause = !start_for_others();
  while (static_cast<size_t>(std::count_if(runners_.begin(), runners_.end(), idle)) < wanted &&
         starting() < kStartingMax) {
    pause = Clock::now() < not_before_ || too_early(start_pace_) || !start_one();
    if (pause) break;
  }
  // Where launch_config_ forbids a start, only a new one can help.
  if ((pause && !launch_config_.refusal) || !waiters_.empty()) later(kTickMs);
}

void RunnerPool::tick() {
  warming_ = true;
  kill_due();
  serve();  // some may have been too early
  refuse_waiters(
      Status::error(ETIMEDOUT, "no runner was ready in time{}{}", last_failure_.empty() ? "" : ": ", last_failure_),
      true);
  keep_warm();
}

void RunnerPool::reap() {
  for (size_t i = 0; i < runners_.size();) {
    std::string why;
    if (!runners_[i].runner->reap(&why)) {
      ++i;
      continue;
    }
    const Entry entry = std::move(runners_[i]);
    runners_.erase(runners_.begin() + static_cast<long>(i));
    if (entry.spare()) note_failure(why);
    if (entry.taken) log::debug("a runner has ended: {}", why);
    exchange_.drop(entry.runner.get());
    if (segments_) segments_->drop(entry.runner.get());
    if (on_reaped_) on_reaped_(entry.runner.get());
    entry.runner->gone();
    i = 0;  // what `gone` calls may have changed the list
  }
  keep_warm();
}

void RunnerPool::note_failure(const std::string& why) {
  ++failed_;
  ++failures_in_a_row_;
  last_failure_ = why;
  const auto pause = std::min(kLongestPause, kFirstPause * (1 << std::min(failures_in_a_row_, 10u)));
  not_before_ = Clock::now() + pause;
  log::error("a runner ended before it was of use: {}; next attempt in {} ms", why, pause.count());
  if (failures_in_a_row_ >= kFailuresToGiveUp) {
    if (on_failing_) on_failing_();
    refuse_waiters(Status::error(EIO, "runners do not start{}: {}",
                                 launch_config_.mps.empty() ? "" : " as clients of the MPS daemon", why),
                   false);
  }
}

void RunnerPool::refuse_waiters(const Status& why, bool only_late) {
  std::deque<Waiter> refused;
  for (size_t i = 0; i < waiters_.size();) {
    if (only_late && (Clock::now() < waiters_[i].deadline || (held_ && !waiters_[i].in_hold))) {
      ++i;
      continue;
    }
    refused.push_back(std::move(waiters_[i]));
    waiters_.erase(waiters_.begin() + static_cast<long>(i));
  }
  for (const Waiter& waiter : refused) waiter.taken(why);
}

}  // namespace bandsaw
