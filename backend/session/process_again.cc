// A process gets another runner, after its first one has ended while all that it had was in a file; or the session has,
// and the process comes to another one.
#include <unistd.h>

#include <cerrno>
#include <cstddef>

#include "backend/control/window_bases.h"
#include "backend/session/process.h"
#include "guest-driver/uapi/vgpu_ring.h"
#include "memory/base/log.h"

namespace bandsaw {
namespace {

// Of one process; those that have more are not kept.
constexpr uint64_t kPiecesMost = uint64_t{256} << 10;
constexpr std::chrono::milliseconds kRevivalTimeout{10000};

// What has to be answered before the rest may come.
struct Steps {
  size_t pending = 1;
  int error = 0;  // the first
  Runner::Done done;

  void one_less(int came) {
    if (error == 0) error = came;
    if (--pending == 0) done(error);
  }
};

}  // namespace

std::string Process::lacks() const {
  if (files_) return "pages of files";
  return kept_pieces_ > kPiecesMost ? "pinned memory in too many pieces" : "";
}

bool Process::may_be_away() const {
  if (state_ == State::kAway) return true;
  const auto& replaceable = owner_->config_.replaceable;
  return state_ == State::kRunning && replaceable && lacks().empty() && replaceable(key_);
}

void Process::come_back(const Request& request, const Answer& answer) {
  window_base_ = request.window_base;
  state_ = State::kReturning;
  if (Status status = make_descriptors(); !status.ok()) {
    log::error("process {}: {}", id_, status.message());
    const auto self = shared_from_this();
    end(Runner::Stop::kKill, nullptr);
    return answer(make_reply(status.code(), status.message()), {});
  }
  answer_ready(answer);
}

void Process::all_announced(const Answer& answer) {
  if (state_ != State::kReturning) return answer(make_reply(EALREADY, "no process that is coming back"), {});
  state_ = State::kAway;
  log::info("process {} ({}, pid {}, user {}) has come back, and waits for what it had", id_, printable(who_.comm),
            uint32_t{who_.pid}, uint32_t{who_.uid});
  set_away(true);
  answer(make_reply(0, ""), {});
}

// Where its runner is still to be reaped, that is waited for.
void Process::leave(const Answer& answer) {
  if (runner_ && !leaving_ && state_ == State::kRunning && runner_->ending() && may_be_away()) {
    leaving_ = answer;
    return;
  }
  if (state_ != State::kReturning && (state_ != State::kAway || runner_)) {
    return answer(make_reply(EBUSY, "what the process has is in no file"), {});
  }
  left_ = true;
  log::info("process {} ({}) leaves, and what it had waits for it in a file", id_, printable(who_.comm));
  end(Runner::Stop::kKill, [answer] { answer(make_reply(0, ""), {}); });
}

// In direct mode the rings say so, which the session may write to as the runner may.
void Process::set_away(bool is) {
  if (!arena_) return;
  const uint32_t word = is ? 1 : 0;
  for (const auto& [id, ring] : rings_) {
    if (ring.pieces.empty()) continue;
    const auto at = static_cast<off_t>(ring.pieces.front().offset + offsetof(vgpu_ring_header, away));
    if (::pwrite(arena_.get(), &word, sizeof word, at) != sizeof word) {
      log::error("process {}: ring {} does not say that it is away", id_, id);
    }
  }
}

void Process::wait_for_runner(std::function<void()> request, const Answer& answer) {
  if (later_.size() < owner_->config_.outstanding_max) {
    later_.push_back(std::move(request));
  } else {
    answer(make_reply(EBUSY, "too many requests wait for a runner"), {});
  }
}

void Process::revive(const std::function<void(Result<Runner*>)>& done) {
  if (runner_) return done(Status::error(EBUSY, "process {} has a runner already", id_));
  owner_->source_->take_in_hold(
      [weak = weak_from_this(), done](Result<Runner*> runner) {
        const auto process = weak.lock();
        if (!runner.ok()) return done(runner.status());
        if (process && process->away() && !process->runner_) return process->take_again(runner.value(), done);
        runner.value()->stop(Runner::Stop::kKill);
        done(Status::error(ECANCELED, "its program has ended"));
      },
      VGPU_WINDOW_TAKEN_MASK & ~bit_of_base(window_base_));
}

void Process::take_again(Runner* runner, const std::function<void(Result<Runner*>)>& done) {
  const int before = pid_;
  const uint64_t window = window_base_;
  Status status = take_slot(runner);
  pid_ = before;
  window_base_ = window;
  if (status.ok() && runner->window_base() != window) {
    status = Status::error(EADDRNOTAVAIL, "the addresses of process {} are not free in a new runner", id_);
  }
  if (!status.ok()) {
    runner->stop(Runner::Stop::kKill);
    return done(status);
  }
  const auto steps = std::make_shared<Steps>();
  steps->done = [weak = weak_from_this(), runner, done](int error) {
    const auto process = weak.lock();
    const bool there = process && process->runner_ == runner;
    if (error == 0 && there) return done(runner);
    done(Status::error(error == 0 ? EPIPE : error, "a new runner could not take over a program"));
  };
  const Runner::Done step = [steps](int error) { steps->one_less(error); };
  steps->pending += 2;
  send_assignment(step);
  runner_->send({.type = RunnerMessageType::kStandstill, .value = static_cast<uint64_t>(kRevivalTimeout.count())}, {},
                {}, [weak = weak_from_this(), steps, step](int error) {
                  const auto process = weak.lock();
                  if (process && process->runner_ && error == 0) {
                    steps->pending += process->rings_.size() + process->regions_.size();
                    process->send_mappings(step);
                  }
                  step(error);
                });
  step(0);
}

void Process::send_mappings(const Runner::Done& done) {
  for (const bool is_ring : {true, false}) {
    for (const auto& [id, mapping] : mappings(is_ring)) {
      const RunnerMessage message{.type = is_ring ? RunnerMessageType::kAddRing : RunnerMessageType::kAddRegion,
                                  .id = id,
                                  .flags = mapping.flags,
                                  .value = mapping.va,
                                  .bytes = mapping.bytes,
                                  .offset = is_ring ? kRingGoesOn : 0,
                                  .count = static_cast<uint32_t>(mapping.pieces.size())};
      runner_->send(message, std::as_bytes(std::span(mapping.pieces)), {}, done);
    }
  }
}

void Process::revived(bool well) {
  if (!runner_) return;
  if (!well) return runner_->stop(Runner::Stop::kKill);
  state_ = State::kRunning;
  pid_ = runner_->pid();
  log::info("process {} goes on in runner {}", id_, pid_);
  set_away(false);
  for (const auto& request : std::exchange(later_, {})) request();
}

}  // namespace bandsaw
