#include "backend/session/process.h"

#include <fcntl.h>
#include <linux/magic.h>
#include <sys/eventfd.h>

#include <sys/mman.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <sys/vfs.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "guest-driver/uapi/vgpu_ring.h"
#include "memory/base/eventfd.h"
#include "memory/base/log.h"

namespace bandsaw {
namespace {

constexpr std::chrono::milliseconds kAssignTimeout{10000};
constexpr std::chrono::milliseconds kRamDropTimeout{2000};

void reply(const Processes::Answer& answer, const Status& status) {
  answer(make_reply(status.code(), status.message()), {});
}

Status outcome(int error, const char* what) {
  if (error == 0) return {};
  return Status::error(error, "{}: {}", what, error == EPIPE ? "the runner of this process is gone" : strerror(error));
}

// Half of the window, sparse, and of one size for ever: what one side maps the other cannot take away.
Result<UniqueFd> make_arena(uint64_t bytes) {
  UniqueFd fd(::memfd_create("bandsaw-arena", MFD_CLOEXEC | MFD_ALLOW_SEALING));
  if (!fd || ::ftruncate(fd.get(), static_cast<off_t>(bytes)) < 0 ||
      ::fcntl(fd.get(), F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL) < 0) {
    return Status::system("cannot make the arena");
  }
  return fd;
}

bool make_key(ReturnKey* key) {
  if (::getrandom(key->data(), key->size(), 0) == static_cast<ssize_t>(key->size())) return true;
  *key = {};
  return false;
}

}  // namespace

Status check_arena(int fd, uint64_t bytes) {
  struct stat info{};
  struct statfs system{};
  const int wanted = F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL;
  if (::fstat(fd, &info) < 0 || ::fstatfs(fd, &system) < 0) return Status::system("the arena that came along");
  const int seals = ::fcntl(fd, F_GET_SEALS);
  // Huge pages may run out under whoever touches them; a file that shrinks takes its pages away.
  if (system.f_type != TMPFS_MAGIC || seals != wanted || static_cast<uint64_t>(info.st_size) != bytes) {
    return Status::error(EINVAL, "the descriptor that came along is no arena of another virtual GPU");
  }
  return {};
}

Status check_memory_file(int fd, std::span<const vgpu_segment> segments) {
  struct stat info{};
  struct statfs system{};
  if (::fstat(fd, &info) < 0 || ::fstatfs(fd, &system) < 0) return Status::system("the file that came along");
  if (!S_ISREG(info.st_mode) || system.f_type != TMPFS_MAGIC) {
    return Status::error(EINVAL, "only files in memory (tmpfs, memfd) can be shared with a virtual GPU");
  }
  const uint64_t end = round_to_pages(static_cast<uint64_t>(info.st_size));
  for (const vgpu_segment& segment : segments) {
    if (segment.address + segment.bytes > end) {  // check_mapping: no overflow
      return Status::error(EINVAL, "the region ends beyond its file of {} bytes", info.st_size);
    }
  }
  return {};
}

Process::Process(Processes* owner, const Request& create, UniqueFd arena)
    : owner_(owner),
      id_(create.process),
      who_(create.create),
      taken_bases_(create.taken_bases),
      key_(create.key),
      arena_(std::move(arena)) {}

Process::~Process() {
  if (runner_) runner_->stop(Runner::Stop::kAsk);
  if (owner_->config_.ended && !left_) owner_->config_.ended(key_);
}

void Process::start(const Answer& answer) {
  if (owner_->config_.replaceable && !make_key(&key_)) log::warn("process {} cannot be known again: no key", id_);
  owner_->source_->take(
      [weak = weak_from_this(), answer](Result<Runner*> runner) {
        const auto process = weak.lock();
        if (!process) {
          if (runner.ok()) runner.value()->stop(Runner::Stop::kAsk);
          return reply(answer, Status::error(EPIPE, "the process ended before it had a runner"));
        }
        if (runner.ok()) return process->assign(runner.value(), answer);
        process->gone();
        reply(answer, runner.status());
      },
      taken_bases_);
}

GuestOwner Process::owner() const {
  if (owner_->config_.direct) return {GuestOwner::Kind::kUser, who_.uid};
  return owner_->config_.vm ? owner_->config_.vm() : GuestOwner{};
}

Status Process::make_descriptors() {
  kick_.reset(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
  wake_.reset(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
  if (!kick_ || !wake_) return Status::system("cannot make an eventfd");
  if (owner_->config_.direct) {
    if (!arena_) {
      auto arena = make_arena(owner_->config_.arena_bytes);
      if (!arena.ok()) return arena.status();
      arena_ = std::move(arena.value());
    }
    UniqueFd again(::fcntl(arena_.get(), F_DUPFD_CLOEXEC, 0));
    return owner_->ram_.add({.id = 0, .base = 0, .bytes = owner_->config_.arena_bytes, .fd = std::move(again)});
  }
  wake_event_.reset(event_new(
      owner_->base_, wake_.get(), EV_READ | EV_PERSIST,
      [](evutil_socket_t fd, short, void* self) {
        uint64_t count;
        auto* process = static_cast<Process*>(self);
        if (::read(fd, &count, sizeof count) == sizeof count) process->owner_->watcher_->wake(process->id_);
      },
      this));
  event_add(wake_event_.get(), nullptr);
  return {};
}

Status Process::take_slot(Runner* runner) {
  slot_ = owner_->usage_page_->take_slot();
  // The slot comes back when the runner is reaped, whether this object still lives or not.
  runner->set_on_gone([usage_page = owner_->usage_page_, slot = slot_, weak = weak_from_this(), mps = runner->mps(),
                       ended = owner_->config_.client_ended, slots = owner_->config_.slots] {
    if (slot >= 0 && slots) slots->left(static_cast<uint32_t>(slot));
    if (slot >= 0 && ended && !mps.empty()) ended(mps, usage_page->usage(slot).sticky);
    if (slot >= 0) usage_page->give_back(slot);
    if (const auto process = weak.lock()) process->gone();
  });
  runner_ = runner;
  runner->set_served({owner(), who_.pid, who_.uid, slot_, key_});
  pid_ = runner->pid();
  window_base_ = runner->window_base();
  if (slot_ >= 0) owner_->usage_page_->set_priority(slot_, -nice_);
  if (slot_ < 0) return Status::error(EAGAIN, "all {} slots of this virtual GPU are in use", kUsageSlots);
  if (owner_->config_.slots) owner_->config_.slots->taken(static_cast<uint32_t>(slot_), runner);
  return {};
}

void Process::send_assignment(Runner::Done done) {
  AssignTail tail{};
  tail.direct = owner_->config_.direct;
  tail.usage_slot = static_cast<uint32_t>(slot_);
  tail.guest_pid = who_.pid;
  tail.part = who_.schema.part;
  owner_->config_.vgpu.copy(tail.vgpu, sizeof tail.vgpu - 1);
  printable(who_.comm).copy(tail.comm, sizeof tail.comm - 1);
  owner_->usage_page_->set_kick(slot_, kick_.get());
  std::vector<int> fds = {kick_.get(), wake_.get(), owner_->usage_page_->fd(), owner_->usage_page_->limits_fd(),
                          owner_->usage_page_->doorbell()};
  if (arena_) fds.push_back(arena_.get());
  runner_->send({.type = RunnerMessageType::kAssign, .value = arena_ ? owner_->config_.arena_bytes : 0},
                std::as_bytes(std::span(&tail, 1)), fds, std::move(done));
  for (const auto& [base, ram] : owner_->ram_.by_base()) {
    if (!owner_->config_.direct) add_ram(ram);
  }
}

void Process::assign(Runner* runner, const Answer& answer) {
  Status status = take_slot(runner);
  if (status.ok()) status = make_descriptors();
  if (!status.ok()) {
    log::error("process {}: {}", id_, status.message());
    end(Runner::Stop::kKill, nullptr);
    return reply(answer, status);
  }
  send_assignment([weak = weak_from_this(), answer](int error) {
    if (const auto process = weak.lock()) return process->assigned(error, answer);
    reply(answer, Status::error(EPIPE, "the process has ended"));
  });
  start_timer_.reset(event_new(
      owner_->base_, -1, EV_TIMEOUT,
      [](evutil_socket_t, short, void* self) { static_cast<Process*>(self)->runner_->stop(Runner::Stop::kKill); },
      this));
  const timeval timeout = to_timeval(kAssignTimeout);
  event_add(start_timer_.get(), &timeout);
}

void Process::assigned(int error, const Answer& answer) {
  start_timer_.reset();
  if (state_ != State::kStarting) return reply(answer, Status::error(EPIPE, "the process has ended"));
  if (error) {
    end(Runner::Stop::kKill, nullptr);
    return reply(answer, outcome(error, "the runner refused the process"));
  }
  state_ = State::kRunning;
  if (owner_->config_.log->allow()) {
    log::info("process {} ({}, pid {}, user {}) has runner {}", id_, printable(who_.comm), uint32_t{who_.pid},
              uint32_t{who_.uid}, runner_->pid());
  }
  answer_ready(answer);
}

void Process::answer_ready(const Answer& answer) const {
  vgpu_ctl_reply ready = make_reply(0, "", window_base_);
  ready.schema = owner_->config_.schema;
  ready.schema.part = who_.schema.part;
  std::copy(key_.begin(), key_.end(), ready.message);
  const int fds[] = {arena_.get(), kick_.get()};
  answer(ready, owner_->config_.direct ? std::span<const int>(fds) : std::span<const int>());
}

void Process::end(Runner::Stop how, std::function<void()> done) {
  const auto self = shared_from_this();  // the last reference may be the owner's
  if (done) when_gone_.push_back(std::move(done));
  if (!runner_) {
    // Lost, or nothing of the guest was given to anybody yet: the runner, when it comes, is sent away.
    state_ = State::kEnding;
    return gone();
  }
  state_ = State::kEnding;
  runner_->stop(how);
}

// The runner is reaped, or there was none.
void Process::gone() {
  const auto self = shared_from_this();
  const bool away = may_be_away();
  runner_ = nullptr;
  start_timer_.reset();
  if (away) {
    if (std::exchange(state_, State::kAway) == State::kRunning) {
      log::info("process {} waits for another runner: what {} had is in a file", id_, pid_);
      set_away(true);
    }
    if (leaving_) leave(std::exchange(leaving_, nullptr));
    return;
  }
  wake_event_.reset();
  if (leaving_) reply(std::exchange(leaving_, nullptr), Status::error(EPIPE, "the process has ended"));
  const bool lost = state_ == State::kRunning;
  if (lost) state_ = State::kLost;  // until the guest destroys it
  for (const auto& request : std::exchange(later_, {})) request();
  if (lost) {
    log::warn("process {} ({}, pid {}) has lost its runner", id_, printable(who_.comm), uint32_t{who_.pid});
    if (owner_->config_.ended) owner_->config_.ended(key_);
    rings_.clear();
    regions_.clear();
    window_.clear();
    segments_ = kept_pieces_ = 0;
    for (const auto& done : std::exchange(when_gone_, {})) done();
    owner_->watcher_->lost(id_);
    return;
  }
  if (state_ == State::kEnding && owner_->config_.log->allow())
    log::info("process {} ({}) has ended", id_, printable(who_.comm));
  if (owner_->config_.direct) owner_->ram_.remove(0);
  if (const auto entry = owner_->processes_.find(id_); entry != owner_->processes_.end() && entry->second == self) {
    owner_->processes_.erase(entry);
  }
  for (const auto& done : std::exchange(when_gone_, {})) done();
}

Status Process::usable(const char* what) const {
  if (state_ == State::kLost || state_ == State::kEnding) {
    return Status::error(EPIPE, "{}: the runner of process {} is gone", what, id_);
  }
  if (state_ == State::kStarting) return Status::error(EAGAIN, "{}: process {} is not ready", what, id_);
  if (outstanding_ >= owner_->config_.outstanding_max) {
    return Status::error(EBUSY, "{}: {} requests are unanswered", what, outstanding_);
  }
  return {};
}

void Process::kick(const Answer& answer) {
  Status status = usable("kick");
  if (status.ok() && !signal_event(kick_.get()) && errno != EAGAIN) status = Status::system("kick");
  reply(answer, status);
}

void Process::ping(const Answer& answer) const {
  const bool alive = state_ != State::kEnding && state_ != State::kLost;
  reply(answer, alive ? Status() : Status::error(EPIPE, "the runner of process {} is gone", id_));
}

void Process::forward(const RunnerMessage& message, std::span<const std::byte> tail, const Answer& answer,
                      std::function<void(Process*, int error)> then, std::function<void()> again) {
  ++outstanding_;
  runner_->send(message, tail, {},
                [weak = weak_from_this(), answer, then = std::move(then), again = std::move(again)](int error) {
                  if (const auto process = weak.lock()) {
                    --process->outstanding_;
                    then(process.get(), error);
                    if (error == EPIPE && process->may_be_away()) return process->later_.push_back(again);
                  }
                  reply(answer, outcome(error, "the runner"));
                });
}

void Process::add_ram(const Ram& ram) {
  if (!runner_) return;
  const int fds[] = {ram.fd.get()};
  runner_->send({.type = RunnerMessageType::kRamAdd,
                 .id = ram.id,
                 .flags = ram.writable ? 0 : VGPU_REGION_READ_ONLY,
                 .value = ram.bytes,
                 .offset = ram.offset},
                {}, fds, [weak = weak_from_this(), id = ram.id](int error) {
                  const auto process = weak.lock();
                  if (!error || !process || !process->runner_ || error == EPIPE) return;
                  log::error("process {}: its runner cannot map RAM {}: {}", process->id_, id, strerror(error));
                  process->runner_->stop(Runner::Stop::kKill);
                });
}

bool Process::uses(uint32_t ram) const {
  const auto has = [ram](const Mappings::value_type& entry) {
    return std::binary_search(entry.second.rams.begin(), entry.second.rams.end(), ram);
  };
  return std::any_of(rings_.begin(), rings_.end(), has) || std::any_of(regions_.begin(), regions_.end(), has);
}

void Process::remove_ram(uint32_t ram, std::function<void()> done) {
  if (!runner_) return done();
  if (state_ == State::kEnding || uses(ram)) {
    // The process cannot go on. It counts as lost, unless it was ending anyhow.
    when_gone_.push_back(std::move(done));
    runner_->stop(Runner::Stop::kKill);
    return;
  }
  // Lives as long as the answer is awaited.
  struct Watch {
    std::weak_ptr<Process> process;
    EventPtr timer;
  };
  const auto watch = std::make_shared<Watch>(Watch{weak_from_this(), nullptr});
  watch->timer.reset(event_new(
      owner_->base_, -1, EV_TIMEOUT,
      [](evutil_socket_t, short, void* argument) {
        const auto process = static_cast<Watch*>(argument)->process.lock();
        if (!process || !process->runner_) return;
        log::warn("process {}: its runner does not let go of RAM; killing it", process->id_);
        process->runner_->stop(Runner::Stop::kKill);
      },
      watch.get()));
  const timeval timeout = to_timeval(kRamDropTimeout);
  event_add(watch->timer.get(), &timeout);
  runner_->send({.type = RunnerMessageType::kRamDrop, .id = ram}, {}, {}, [watch, done = std::move(done)](int error) {
    const auto process = watch->process.lock();
    if (error && process && process->runner_) process->runner_->stop(Runner::Stop::kKill);
    done();
  });
}

void Process::set_nice(int32_t nice) {
  nice_ = nice;
  if (slot_ >= 0 && runner_) owner_->usage_page_->set_priority(slot_, -nice);
}

std::optional<ProcessSlot> Process::slot() const {
  if (slot_ < 0 || !runner_) return std::nullopt;
  return ProcessSlot{who_.pid, slot_};
}

nlohmann::json Process::status() const {
  static constexpr const char* kNames[] = {"starting", "running", "ending", "lost", "away", "returning"};
  nlohmann::json object = {{"process", id_},
                           {"pid", uint32_t{who_.pid}},
                           {"uid", uint32_t{who_.uid}},
                           {"comm", printable(who_.comm)},
                           {"direct", owner_->config_.direct},
                           {"state", kNames[static_cast<int>(state_)]},
                           {"rings", rings_.size()},
                           {"regions", regions_.size()}};
  if (runner_ && runner_->pid() > 0) object["runner"] = runner_->pid();
  if (runner_) object["mps"] = runner_->mps();
  if (runner_ && !runner_->mps().empty()) object["mps_priority"] = to_text(runner_->mps_priority());
  if (slot_ >= 0) object["slot"] = slot_;
  if (nice_ != 0) object["nice"] = nice_;
  if (slot_ >= 0 && runner_) object["usage"] = to_json(owner_->usage_page_->usage(slot_));
  return object;
}

}  // namespace bandsaw
