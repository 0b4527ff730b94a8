#include "backend/session/suspension.h"

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <map>
#include <memory>
#include <nlohmann/json.hpp>
#include <utility>

#include "memory/base/log.h"

namespace bandsaw {
namespace {

// How long work may take to end; and how long any step may take before runners that are silent are killed.
constexpr std::chrono::milliseconds kStandstillTimeout{10000};
constexpr timeval kStepMost{40, 0};
// How long what is idle may take to be at rest.
constexpr std::chrono::milliseconds kIdleStandstillTimeout{200};
// Between attempts to come back while calls wait.
constexpr std::chrono::milliseconds kLongestPause{30000};

// What has become of the runner nobody has said.
bool is_unknown(int error) { return error == EPIPE || error == ETIMEDOUT; }

std::string reason(int error) {
  switch (error) {
    case EBUSY:
      return fmt::format("its work on the device did not end within {} s", kStandstillTimeout.count() / 1000);
    case ENOMEM:
      return "there is no memory for what it holds";
    case ENOTSUP:
      return "its device cannot give memory back";
    case EIO:
      return "its device refuses to move its memory; the session's log says more";
    default:
      return std::strerror(error);
  }
}

}  // namespace

// One message to each runner.
struct Suspension::Step {
  std::map<Runner*, int> errors;  // of those that answered with one
  std::vector<Runner*> silent;
  std::string error;  // of the first
};

Suspension::Suspension(event_base* base, Session session) : session_(std::move(session)) {
  timer_.reset(event_new(
      base, -1, EV_TIMEOUT, [](evutil_socket_t, short, void* self) { static_cast<Suspension*>(self)->end_silent(); },
      this));
  again_.reset(event_new(
      base, -1, EV_TIMEOUT, [](evutil_socket_t, short, void* self) { static_cast<Suspension*>(self)->try_again(); },
      this));
}

Suspension::~Suspension() = default;

Status Suspension::want(const std::string& text) {
  for (const auto& [name, value] :
       {std::pair{"run", Want::kRun}, std::pair{"pause", Want::kPause}, std::pair{"suspend", Want::kSuspend}}) {
    if (text != name) continue;
    want(value);
    return {};
  }
  return Status::error(EINVAL, "'suspension' may be run, pause or suspend");
}

void Suspension::want(Want want) {
  if (want == told_) return;
  told_ = wanted_ = want;
  const bool slept = std::exchange(sleeps_, false);  // what it has begun goes on in vgpud's name
  event_del(again_.get());
  pause_ = session_.first_pause;
  error_.clear();
  advance();
  if (slept && session_.changed) session_.changed();
}

Status Suspension::sleep(uint64_t most) {
  if (!running()) return Status::error(EBUSY, "it does not run");
  if (Status status = session_.check(); !status.ok()) return status;
  sleeps_ = true;
  call_waits_ = false;
  pause_ = session_.first_pause;
  most_ = most;
  wanted_ = Want::kSuspend;
  error_.clear();
  advance();
  return {};
}

void Suspension::call_waits() {
  if (!sleeps_) return;
  event_del(again_.get());
  if (!std::exchange(call_waits_, true)) woken_ = std::chrono::steady_clock::now();
  wanted_ = Want::kRun;
  advance();
}

void Suspension::try_again() {
  if (sleeps_) return call_waits();
  if (told_ != Want::kRun || state_ != State::kSuspended) return;
  wanted_ = Want::kRun;
  advance();
}

// It could not come back, and somebody waits for that.
void Suspension::try_later() {
  const bool awaited = sleeps_ ? call_waits_ : told_ == Want::kRun;
  if (!awaited || wanted_ == Want::kRun) return;
  log::error("cannot come back to the device, next attempt in {} ms: {}", pause_.count(), error_);
  const timeval time = to_timeval(pause_);
  event_add(again_.get(), &time);
  if (session_.changed) session_.changed();
  pause_ = std::min(2 * pause_, kLongestPause);
}

// No process gets a runner until all goes on.
void Suspension::hold() {
  session_.hold(true);
  if (moves_contexts() && !session_.runners().empty()) session_.checkpointer->start();
}

void Suspension::advance() {
  if (step_) return;
  const bool run = wanted_ == Want::kRun;
  if (state_ == State::kRunning && !run) {
    if (const Status status = session_.check(); !status.ok()) {
      error_ = status.message();
      wanted_ = Want::kRun;
      return;
    }
    if_idle_ = sleeps_;
    if (!if_idle_) hold();
    const auto timeout = if_idle_ ? kIdleStandstillTimeout : kStandstillTimeout;
    tell(State::kPausing,
         {.type = RunnerMessageType::kStandstill,
          .flags = if_idle_ ? kIfIdle : 0,
          .value = static_cast<uint64_t>(timeout.count())},
         &Suspension::paused);
  } else if (state_ == State::kPaused && run) {
    tell(State::kGoingOn, {.type = RunnerMessageType::kGoOn}, &Suspension::went_on);
  } else if (state_ == State::kPaused && wanted_ == Want::kSuspend) {
    tell(State::kLeaving, {.type = RunnerMessageType::kMoveMemory}, &Suspension::left);
  } else if (state_ == State::kSuspended && run) {
    const bool nobody = session_.runners().empty() && !(session_.awaits && session_.awaits());
    if (stay_.empty() || nobody) return contexts_return();
    error_ = stay_;
    wanted_ = Want::kSuspend;
  } else if (state_ == State::kSuspended && told_ == Want::kSuspend && some_returned_) {
    contexts_leave();
  }
}

void Suspension::tell(State state, const RunnerMessage& message, Then then) {
  start(state, [message](Runner* runner, Runner::Done done) { runner->send(message, {}, {}, std::move(done)); }, then);
}

// `then` is called when all have answered.
void Suspension::start(State state, const Ask& ask, Then then) {
  state_ = state;
  step_begun_ = std::chrono::steady_clock::now();
  step_ = std::make_shared<Step>();
  // Answers may come when this has ended, and the step with it.
  const std::weak_ptr<Step> weak = step_;
  step_->silent = session_.runners();
  event_add(timer_.get(), &kStepMost);
  // Goes when the last answer has come.
  const std::shared_ptr<void> latch(nullptr, [this, weak, then](void*) {
    if (weak.expired()) return;
    event_del(timer_.get());
    (this->*then)();
    if (step_ == weak.lock()) step_ = nullptr;
    advance();
  });
  for (Runner* const runner : std::vector<Runner*>(step_->silent)) {
    ask(runner, [weak, runner, latch, pid = runner->pid()](int error) {
      const auto step = weak.lock();
      if (!step) return;
      std::erase(step->silent, runner);
      if (error == 0 || error == EPIPE) return;  // of one that has ended nothing is left
      step->errors[runner] = error;
      if (step->error.empty()) step->error = fmt::format("runner {}: {}", pid, reason(error));
    });
  }
}

void Suspension::end_silent() {
  if (!step_) return;
  for (Runner* const runner : session_.runners()) {
    if (std::find(step_->silent.begin(), step_->silent.end(), runner) == step_->silent.end()) continue;
    log::error("runner {} does not answer; killing it", runner->pid());
    runner->stop(Runner::Stop::kKill);
  }
}

// Back to where it was. What cannot even do that is ended, so that the others can.
void Suspension::fall_back(State state) {
  if (falling_back_) {
    for (const auto& [runner, error] : step_->errors) {
      log::error("runner {} can neither leave the device nor return: killing it", runner->pid());
      runner->stop(Runner::Stop::kKill);
    }
    falling_back_ = false;
    return;
  }
  log::warn("{}", step_->error);
  error_ = step_->error;
  falling_back_ = true;
  wanted_ = state == State::kSuspended ? Want::kSuspend : Want::kRun;
}

// Whether it goes on from here. A call that came in time is nobody's error; if vgpud wants it to stop by now, that
// begins anew.
bool Suspension::paused_to_sleep() {
  const bool refused = !step_->errors.empty() || (sleeps_ && bytes_ > most_);
  if (refused && sleeps_) wanted_ = Want::kRun;
  if (refused && wanted_ != Want::kRun) tell(State::kGoingOn, {.type = RunnerMessageType::kGoOn}, &Suspension::went_on);
  if (!refused && wanted_ != Want::kRun) hold();
  return !refused;
}

void Suspension::paused() {
  state_ = State::kPaused;
  leave_ = {.at_rest = step_took()};
  bytes_ = session_.on_device();
  if (std::exchange(if_idle_, false) && !paused_to_sleep()) return;
  if (!step_->errors.empty()) return fall_back(State::kRunning);
  const Status status = session_.check();  // what the last work has begun
  if (status.ok()) return;
  step_->error = status.message();
  fall_back(State::kRunning);
}

void Suspension::left() {
  leave_.memory = step_took();
  if (!step_->errors.empty()) {
    state_ = State::kSuspended;
    return fall_back(State::kRunning);
  }
  contexts_leave();
}

// What was moved by then need not be moved by the driver, which is slow.
void Suspension::contexts_leave() {
  some_returned_ = false;
  if (!moves_contexts()) return contexts_left();
  if (session_.runners().empty()) {  // nobody waits for its answer
    session_.checkpointer->stop();
    return contexts_left();
  }
  start(
      State::kLeaving,
      [this](Runner* runner, const Runner::Done& done) {
        if (off_.contains(runner->pid())) return done(0);
        runner->set_contexts_off(true);
        session_.checkpointer->carry_out(runner->pid(), true, [this, pid = runner->pid(), done](int error) {
          Runner* const there = living(pid);
          leave_.contexts = step_took();
          leave_.driver = std::max(leave_.driver, session_.checkpointer->last_took());
          if (error == 0 || is_unknown(error)) {
            off_.insert(pid);
          } else if (there) {
            there->set_contexts_off(false);
          }
          done(is_unknown(error) ? EIO : there ? error : 0);
        });
      },
      &Suspension::contexts_left);
}

// Null: it has ended, or is about to.
Runner* Suspension::living(int pid) const {
  for (Runner* const runner : session_.runners()) {
    if (runner->pid() == pid && !runner->ending()) return runner;
  }
  return nullptr;
}

// A context that stays costs memory, and nothing else.
void Suspension::contexts_left() {
  if (step_ && !step_->errors.empty()) {
    log::warn("contexts stay on the GPU: {}", step_->error);
    keeps_contexts_ =
        std::all_of(step_->errors.begin(), step_->errors.end(), [](const auto& one) { return one.second == ENOTSUP; });
  }
  state_ = State::kSuspended;
  falling_back_ = false;
  since_ = std::chrono::system_clock::to_time_t(std::chrono::system_clock::now());
  log::info("{}: {} bytes have left the device: at rest after {} us, memory {} us, contexts {} us (the driver {} us)",
            sleeps_ ? "asleep" : "suspended", bytes_, leave_.at_rest.count(), leave_.memory.count(),
            leave_.contexts.count(), leave_.driver.count());
  if (sleeps_ && session_.changed) session_.changed();
  try_later();
}

bool Suspension::contexts_off() const {
  const std::vector<Runner*> runners = session_.runners();
  return suspended() && std::all_of(runners.begin(), runners.end(),
                                    [this](const Runner* runner) { return off_.contains(runner->pid()); });
}

std::chrono::microseconds Suspension::step_took() const {
  return std::chrono::duration_cast<std::chrono::microseconds>(std::chrono::steady_clock::now() - step_begun_);
}

void Suspension::contexts_return() {
  return_ = {};
  start(
      State::kReturning,
      [this](Runner* runner, const Runner::Done& done) {
        const int pid = runner->pid();
        if (!off_.contains(pid) || runner->ending()) return done(0);
        session_.checkpointer->carry_out(pid, false, [this, pid, done](int error) {
          Runner* const there = living(pid);
          if (error == 0) off_.erase(pid);
          return_.driver = std::max(return_.driver, session_.checkpointer->last_took());
          if (error == 0 && there) there->set_contexts_off(false);
          // The driver's words about a process that has ended in the middle are nobody's error.
          done(!there ? 0 : is_unknown(error) ? EIO : error);
        });
      },
      &Suspension::contexts_returned);
}

void Suspension::contexts_returned() {
  return_.contexts = step_took();
  if (step_->errors.empty()) {
    return tell(State::kReturning, {.type = RunnerMessageType::kMoveMemory, .flags = kToDevice}, &Suspension::returned);
  }
  // The others wait with their contexts: the next attempt goes on from here, unless all are to be off once more.
  some_returned_ = true;
  log::warn("{}", step_->error);
  error_ = step_->error;
  wanted_ = Want::kSuspend;
  state_ = State::kSuspended;
  try_later();
}

void Suspension::returned() {
  return_.memory = step_took();
  const bool failed = !step_->errors.empty();
  state_ = State::kPaused;
  if (failed) fall_back(State::kSuspended);
}

void Suspension::went_on() {
  state_ = State::kRunning;
  falling_back_ = false;
  return_.going_on = step_took();
  some_returned_ = false;
  bytes_ = 0;
  off_.clear();
  const bool slept = std::exchange(sleeps_, false);
  if (std::exchange(since_, 0) != 0 && slept) {
    const auto took = std::chrono::steady_clock::now() - woken_;
    log::info("awake again, {} ms after a call: contexts {} us (the driver {} us), memory {} us",
              std::chrono::duration_cast<std::chrono::milliseconds>(took).count(), return_.contexts.count(),
              return_.driver.count(), return_.memory.count());
  }
  if (session_.checkpointer) session_.checkpointer->stop();
  session_.hold(false);
  if (session_.changed) session_.changed();
}

nlohmann::json Suspension::describe() const {
  static constexpr const char* kNames[] = {"running",   "pausing",   "paused",  "leaving",
                                           "suspended", "returning", "going on"};
  return {{"state", kNames[static_cast<int>(state_)]},
          {"error", error_},
          {"bytes", bytes_},
          {"asleep", asleep()},
          {"since", suspended() ? since_ : 0},
          {"leave_us",
           {{"at_rest", leave_.at_rest.count()},
            {"memory", leave_.memory.count()},
            {"contexts", leave_.contexts.count()},
            {"driver", leave_.driver.count()}}},
          {"return_us",
           {{"driver", return_.driver.count()},
            {"contexts", return_.contexts.count()},
            {"memory", return_.memory.count()},
            {"going_on", return_.going_on.count()}}}};
}

}  // namespace bandsaw
