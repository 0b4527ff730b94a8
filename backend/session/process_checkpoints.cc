#include "backend/session/process_checkpoints.h"

#include <algorithm>
#include <cerrno>
#include <utility>

#include "backend/session/exchange_service.h"
#include "memory/base/log.h"

namespace bandsaw {
namespace {

// How long a step may take before a runner that is silent is killed.
constexpr std::chrono::seconds kStepMost{40};
constexpr std::chrono::hours kForEver{24 * 365};

void answer(Runner* asker, const RunnerMessage& asked, int error, uint32_t state) {
  if (asker) answer_exchange(asker, asked, error, {}, state);
}

// Of a virtual machine, or of this host; a user's processes are that user's and root's.
bool may_change(const ServedProcess& asker, const ServedProcess& process) {
  return asker.uid == 0 || asker.uid == process.uid;
}

bool one_kernel(const ServedProcess& one, const ServedProcess& other) {
  return one.owner.kind == other.owner.kind &&
         (one.owner.kind == GuestOwner::Kind::kUser || one.owner.id == other.owner.id);
}

}  // namespace

ProcessCheckpoints::ProcessCheckpoints(event_base* base, Session session) : session_(std::move(session)) {
  timer_.reset(event_new(
      base, -1, EV_TIMEOUT, [](evutil_socket_t, short, void* self) { static_cast<ProcessCheckpoints*>(self)->tick(); },
      this));
}

Runner* ProcessCheckpoints::find(const Runner& asker, uint32_t pid, int* error) const {
  for (Runner* const runner : session_.runners()) {
    const ServedProcess& served = runner->served();
    if (runner->ending() || served.slot < 0 || served.pid != pid || !one_kernel(asker.served(), served)) continue;
    *error = may_change(asker.served(), served) ? 0 : EPERM;
    return runner;
  }
  *error = ESRCH;
  return nullptr;
}

// 0: its process runs.
uint64_t ProcessCheckpoints::id_of(const Runner* runner) const {
  for (const auto& [id, entry] : entries_) {
    if (entry.runner == runner) return id;
  }
  return 0;
}

void ProcessCheckpoints::request(Runner* asker, const RunnerMessage& message) {
  int error = 0;
  Runner* const runner = find(*asker, static_cast<uint32_t>(message.value), &error);
  const uint64_t id = error == 0 ? id_of(runner) : 0;
  if (error == 0 && message.flags == VGPU_CHECKPOINT_STATE) {
    const bool there = id != 0 && entries_[id].state >= State::kLocked;
    const bool away = there && (entries_[id].state == State::kCheckpointed || entries_[id].state == State::kReturning);
    return answer(asker, message, 0, away ? VGPU_PROCESS_CHECKPOINTED : there ? VGPU_PROCESS_LOCKED : 0);
  }
  if (error == 0 && runner == asker) error = ENOTSUP;  // its call to unlock would wait like all others
  if (error != 0) return answer(asker, message, error, 0);
  switch (message.flags) {
    case VGPU_CHECKPOINT_LOCK:
      return id ? answer(asker, message, EPROTO, 0) : lock(asker, message, runner);
    case VGPU_CHECKPOINT_SAVE:
    case VGPU_CHECKPOINT_UNLOCK:
      return change(id, State::kLocked, asker, message);
    case VGPU_CHECKPOINT_RESTORE:
      return change(id, State::kCheckpointed, asker, message);
    default:
      return answer(asker, message, EINVAL, 0);
  }
}

void ProcessCheckpoints::lock(Runner* asker, const RunnerMessage& message, Runner* runner) {
  if (const Status status = session_.check(*runner); !status.ok()) {
    log::info("process {} is not locked: {}", runner->served().pid, status.message());
    return answer(asker, message, status.code(), 0);
  }
  const auto most = std::chrono::duration_cast<std::chrono::milliseconds>(kForEver);
  const auto timeout = message.bytes == 0 ? most : std::min(most, std::chrono::milliseconds(message.bytes));
  const uint64_t id = next_++;
  entries_[id] = {.runner = runner, .asker = asker, .asked = message};
  tell(id, {.type = RunnerMessageType::kStandstill, .value = static_cast<uint64_t>(timeout.count())},
       [this, id](Entry* entry, int error) {
         if (error != 0) return forget(id, error);
         log::info("process {} is locked", entry->runner->served().pid);
         settle(entry, State::kLocked, 0);
       });
  entries_[id].deadline = Clock::now() + timeout + kStepMost;
  schedule();
}

void ProcessCheckpoints::change(uint64_t id, State from, Runner* asker, const RunnerMessage& message) {
  if (id == 0 || entries_[id].state != from) return answer(asker, message, EPROTO, 0);
  entries_[id].asker = asker;
  entries_[id].asked = message;
  if (message.flags == VGPU_CHECKPOINT_SAVE) return find_room(id);
  if (message.flags == VGPU_CHECKPOINT_RESTORE) return come_back(id);
  unlock(id);
}

// Of all processes together no more than the memory share lies in the host's memory.
void ProcessCheckpoints::find_room(uint64_t id) {
  Entry& entry = entries_[id];
  if (const Status status = session_.check(*entry.runner); !status.ok()) {
    log::info("process {} stays on the device: {}", entry.runner->served().pid, status.message());
    return settle(&entry, State::kLocked, status.code());
  }
  const uint64_t on_device = session_.usage_page->usage(entry.runner->served().slot).on_device();
  const uint64_t share = session_.usage_page->memory_share(), held = bytes();
  if (on_device > share || held > share - on_device) return settle(&entry, State::kLocked, ENOMEM);
  entry.bytes = on_device;
  entry.state = State::kWaitingForRoom;
  entry.deadline = Clock::now() + session_.room_timeout;
  schedule();
  if (entry.bytes == 0) return leave(id);
  session_.changed();
}

// Who waits got in the way of nobody: one for whom there is no room is told so, and the others may yet find it.
void ProcessCheckpoints::give_room(uint64_t room) {
  for (auto& [id, entry] : entries_) {
    if (entry.state != State::kWaitingForRoom) continue;
    if (bytes() <= room) {
      leave(id);
    } else {
      entry.bytes = 0;
      settle(&entry, State::kLocked, ENOMEM);
    }
  }
}

bool ProcessCheckpoints::wants_room() const {
  return std::any_of(entries_.begin(), entries_.end(),
                     [](const auto& one) { return one.second.state == State::kWaitingForRoom; });
}

void ProcessCheckpoints::leave(uint64_t id) {
  entries_[id].state = State::kLeaving;
  tell(id, {.type = RunnerMessageType::kMoveMemory}, [this, id](Entry* entry, int error) {
    if (error == 0) return contexts_leave(id);
    entry->bytes = 0;
    settle(entry, State::kLocked, error);
  });
}

// A context that stays costs memory, and nothing else.
void ProcessCheckpoints::contexts_leave(uint64_t id) {
  const Step left = [this](Entry* entry, int error) {
    if (error != 0) log::warn("contexts of runner {} stay on the GPU: error {}", entry->runner->pid(), error);
    // What has become of them nobody has said: then they are taken for gone, and are to be brought back.
    entry->off = session_.checkpointer && (error == 0 || error == EPIPE || error == ETIMEDOUT);
    if (!entry->off) entry->runner->set_contexts_off(false);
    session_.usage_page->uncharge(entry->runner->served().slot, entry->bytes);
    log::info("process {} is checkpointed: {} bytes have left the device", entry->runner->served().pid, entry->bytes);
    settle(entry, State::kCheckpointed, 0);
  };
  Entry& entry = entries_[id];
  if (!session_.checkpointer) return left(&entry, 0);
  entry.runner->set_contexts_off(true);
  session_.checkpointer->carry_out(entry.runner->pid(), true, then(id, left));
}

void ProcessCheckpoints::come_back(uint64_t id) {
  Entry& entry = entries_[id];
  if (!session_.usage_page->charge(entry.runner->served().slot, entry.bytes)) {
    return settle(&entry, State::kCheckpointed, ENOMEM);
  }
  entry.state = State::kReturning;
  if (!entry.off) return memory_returns(id);
  session_.checkpointer->carry_out(entry.runner->pid(), false, then(id, [this, id](Entry* there, int error) {
                                     if (error == 0) {
                                       there->off = false;
                                       there->runner->set_contexts_off(false);
                                       return memory_returns(id);
                                     }
                                     session_.usage_page->uncharge(there->runner->served().slot, there->bytes);
                                     settle(there, State::kCheckpointed, EIO);
                                   }));
  entry.deadline = Clock::now() + kStepMost;
  schedule();
}

void ProcessCheckpoints::memory_returns(uint64_t id) {
  tell(id, {.type = RunnerMessageType::kMoveMemory, .flags = kToDevice}, [this](Entry* entry, int error) {
    if (error != 0) {
      session_.usage_page->uncharge(entry->runner->served().slot, entry->bytes);
      return settle(entry, State::kCheckpointed, error);
    }
    entry->bytes = 0;
    settle(entry, State::kLocked, 0);
  });
}

void ProcessCheckpoints::unlock(uint64_t id) {
  entries_[id].state = State::kUnlocking;
  tell(id, {.type = RunnerMessageType::kGoOn}, [this, id](Entry*, int error) { forget(id, error); });
}

// What is done with the answer, if its process is still there.
Runner::Done ProcessCheckpoints::then(uint64_t id, Step step) {
  return [this, id, step = std::move(step)](int error) {
    const auto found = entries_.find(id);
    if (found == entries_.end()) return;
    found->second.deadline = Clock::time_point::max();
    step(&found->second, error);
  };
}

void ProcessCheckpoints::tell(uint64_t id, const RunnerMessage& message, Step step) {
  Entry& entry = entries_[id];
  entry.deadline = Clock::now() + kStepMost;
  schedule();
  entry.runner->send(message, {}, {}, then(id, std::move(step)));
}

void ProcessCheckpoints::settle(Entry* entry, State state, int error) {
  entry->state = state;
  entry->deadline = Clock::time_point::max();
  const bool away = state == State::kCheckpointed;
  answer(std::exchange(entry->asker, nullptr), entry->asked, error,
         away ? VGPU_PROCESS_CHECKPOINTED : VGPU_PROCESS_LOCKED);
  session_.changed();
}

// Its process runs again, or has ended.
void ProcessCheckpoints::forget(uint64_t id, int error) {
  const auto gone = entries_.extract(id);
  answer(gone.mapped().asker, gone.mapped().asked, error == EPIPE ? ESRCH : error, 0);
  if (entries_.empty() && session_.checkpointer) session_.checkpointer->stop();
  session_.changed();
}

void ProcessCheckpoints::drop(Runner* runner) {
  for (auto& [id, entry] : entries_) {
    if (entry.asker == runner) entry.asker = nullptr;
  }
  if (const uint64_t id = id_of(runner)) forget(id, ESRCH);
}

void ProcessCheckpoints::schedule() {
  auto next = Clock::time_point::max();
  for (const auto& [id, entry] : entries_) next = std::min(next, entry.deadline);
  if (next == Clock::time_point::max()) return;
  const auto wait =
      std::chrono::ceil<std::chrono::milliseconds>(std::max(next - Clock::now(), Clock::duration::zero()));
  const timeval time = to_timeval(wait);
  event_add(timer_.get(), &time);
}

void ProcessCheckpoints::tick() {
  const auto now = Clock::now();
  for (auto& [id, entry] : entries_) {
    if (now < entry.deadline) continue;
    if (entry.state == State::kWaitingForRoom) {
      log::warn("vgpud says nothing of room in the host's memory for process {}", entry.runner->served().pid);
      entry.bytes = 0;
      settle(&entry, State::kLocked, ENOMEM);
    } else {
      log::error("runner {} does not answer; killing it", entry.runner->pid());
      entry.deadline = Clock::time_point::max();
      entry.runner->stop(Runner::Stop::kKill);
    }
  }
  schedule();
}

uint64_t ProcessCheckpoints::bytes() const {
  uint64_t sum = 0;
  for (const auto& [id, entry] : entries_) sum += entry.bytes;
  return sum;
}

std::string ProcessCheckpoints::state_of(int runner) const {
  for (const auto& [id, entry] : entries_) {
    if (entry.runner->pid() != runner || entry.state < State::kLocked) continue;
    return entry.state == State::kCheckpointed ? "checkpointed" : "locked";
  }
  return {};
}

std::string ProcessCheckpoints::locked() const {
  if (entries_.empty()) return {};
  return fmt::format("process {} is locked by another program (cuCheckpointProcessLock)",
                     entries_.begin()->second.runner->served().pid);
}

}  // namespace bandsaw
