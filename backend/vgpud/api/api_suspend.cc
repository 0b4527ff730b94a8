// vgpuctl suspend and resume. A change is noted before the session is told to carry it out, so that a vgpud that dies
// in the middle is followed by one that ends what was begun.
#include <fmt/ranges.h>
#include <sys/random.h>

#include <array>
#include <utility>

#include "backend/control/paths.h"
#include "backend/vgpud/api/api.h"
#include "backend/vgpud/api/api_answers.h"
#include "backend/vgpud/api/share_limits.h"
#include "memory/base/log.h"

namespace bandsaw {

using api::refuse;
using api::refuse_shares;
using api::refuse_storage;
using nlohmann::json;

namespace {

// By then its session has said that a file comes, if it still does.
constexpr std::chrono::seconds kRestoreKnown{3};

Status why_not(const json& suspension) { return Status::error(EBUSY, "{}", suspension.value("error", "")); }

}  // namespace

// Each waits for a state that another would leave again.
Api::Answer Api::claim(const std::string& name, const char* what, const Answer& answer) {
  if (const auto [other, claimed] = claimed_.try_emplace(name, what); !claimed) {
    refuse(answer, 409, fmt::format("'{}' is being {}", name, other->second), "wait for it");
    return nullptr;
  }
  return [this, name, answer](const HttpAnswer& given) {
    claimed_.erase(name);
    answer(given);
  };
}

void Api::suspend(const VgpuSpec& spec, bool contexts_stay, const Answer& asker) {
  const Answer answer = claim(spec.name, "suspended", asker);
  if (!answer) return;
  if (spec.suspended) {
    return refuse(answer, 409, fmt::format("'{}' is suspended already", spec.name),
                  fmt::format("`vgpuctl resume {}` lets it go on", spec.name));
  }
  if (spec.sharing == Sharing::kMps) {
    return refuse(
        answer, 409, fmt::format("'{}' is an mps virtual GPU: the MPS daemon keeps what its programs have", spec.name),
        fmt::format("`vgpuctl set {} --sharing time-sliced`, for programs that start from then on", spec.name));
  }
  session_manager_->set_contexts_stay(spec.name, contexts_stay);
  session_manager_->set_hold(spec.name, SessionManager::Hold::kPause);
  session_manager_->await_suspension(spec.name, "paused", [this, name = spec.name, answer](const Result<json>& now) {
    if (!now.ok()) return refuse_suspend(name, 500, now.status(), answer);
    if (!stands_still(now.value())) return refuse_suspend(name, 409, why_not(now.value()), answer);
    commit_suspend(name, now.value(), answer);
  });
}

void Api::refuse_suspend(const std::string& name, int code, const Status& why, const Answer& answer) {
  session_manager_->set_hold(name, SessionManager::Hold::kNone);
  refuse(answer, code, fmt::format("'{}' cannot be suspended: {}", name, why.message()),
         "its programs go on as before");
}

// Its programs wait, and nothing has moved.
void Api::commit_suspend(const std::string& name, const json& paused, const Answer& answer) {
  const std::optional<VgpuSpec> found = registry_->find(name);
  if (!found) return not_found(name, answer);
  VgpuSpec changed = *found;
  const uint64_t bytes = paused.value("bytes", uint64_t{0});
  Status status = check_suspend(changed, bytes, with_sleepers(), config_.swap_memory);
  if (!status.ok()) {
    session_manager_->set_hold(name, SessionManager::Hold::kNone);
    return refuse(answer, 409, status.message(),
                  "end programs of it, resume another, or raise 'memory' in the table [swap] of vgpud's configuration");
  }
  changed.suspended = true;
  changed.suspended_bytes = bytes;
  status = registry_->put(changed);
  if (!status.ok()) {
    session_manager_->set_hold(name, SessionManager::Hold::kNone);
    return refuse_storage(answer, status);
  }
  review_lending();
  session_manager_->update(changed);
  finish_suspension(*found, "suspended", answer);
}

void Api::resume(const VgpuSpec& spec, const Answer& asker) {
  const Answer answer = claim(spec.name, "resumed", asker);
  if (!answer) return;
  if (!spec.suspended) {
    return refuse(answer, 409, fmt::format("'{}' is not suspended", spec.name), "`vgpuctl list` says which are");
  }
  session_manager_->request(spec.name, {{"op", "suspension"}},
                            [this, name = spec.name, answer](const Result<json>& now) {
                              const std::optional<VgpuSpec> found = registry_->find(name);
                              if (!found) return not_found(name, answer);
                              if (!now.ok() || now.value().value("saved", std::string()).empty())
                                return commit_resume(*found, answer);
                              refuse(answer, 409, fmt::format("the memory of '{}' is in a file", name),
                                     fmt::format("`vgpuctl restore {} FILE` brings it back, and lets it go on", name));
                            });
}

void Api::commit_resume(const VgpuSpec& spec, const Answer& answer) {
  VgpuSpec changed = spec;
  changed.suspended = false;
  changed.suspended_bytes = 0;
  if (const Gpu* const gpu = gpus_->of(spec)) {
    // Its place on the device may be another's now.
    Status status = check_shares(changed, registry_->all(), gpu->device);
    if (status.ok()) status = check_debt(*gpu);
    if (!status.ok()) return refuse_shares(answer, status);
  }
  if (Status status = registry_->put(changed); !status.ok()) return refuse_storage(answer, status);
  session_manager_->set_hold(spec.name, SessionManager::Hold::kNone);
  review_lending();
  session_manager_->update(changed);
  finish_suspension(spec, "running", answer);
}

void Api::save(const VgpuSpec& spec, uid_t uid, const Answer& answer) {
  if (!spec.suspended) {
    return refuse(answer, 409, fmt::format("'{}' is not suspended", spec.name),
                  fmt::format("`vgpuctl save {} FILE` suspends it first", spec.name));
  }
  if (const Gpu* const gpu = gpus_->of(spec); gpu && gpu->device.kind != "soft" && !config_.save_on_gpus) {
    return refuse(answer, 409,
                  fmt::format("'{}' is on '{}', and what programs have on GPUs is not saved", spec.name, spec.device),
                  "set 'on_gpus' in the table [save] of vgpud's configuration; it stays suspended");
  }
  expect_file(spec, "save", uid, answer);
}

void Api::bring_back(const VgpuSpec& spec, uid_t uid, const Answer& answer) {
  if (!spec.suspended) {
    return refuse(answer, 409, fmt::format("'{}' is not suspended, and nothing of it is in a file", spec.name),
                  "`vgpuctl show` says what is");
  }
  // Of what another session has saved nobody knows yet how much it is.
  const uint64_t bytes = spec.suspended_bytes != 0 ? spec.suspended_bytes : reserved_memory(spec);
  const Status room = check_suspend(spec, bytes, with_sleepers(), config_.swap_memory);
  if (!room.ok()) {
    return refuse(answer, 409, room.message(),
                  "resume another, or raise 'memory' in the table [swap] of vgpud's configuration");
  }
  const auto now = std::chrono::steady_clock::now();
  std::erase_if(restoring_, [now](const auto& one) { return one.second.until <= now; });
  restoring_[spec.name] = {bytes, now + kRestoreKnown};
  expect_file(spec, "restore", uid, answer);
}

void Api::expect_file(const VgpuSpec& spec, const char* op, uid_t uid, const Answer& answer) {
  std::array<uint8_t, 16> random{};
  if (::getrandom(random.data(), random.size(), 0) != static_cast<ssize_t>(random.size())) {
    return refuse(answer, 500, "no random number for a token", "try again");
  }
  const std::string token = fmt::format("{:02x}", fmt::join(random, ""));
  session_manager_->request(
      spec.name, {{"op", op}, {"token", token}, {"uid", uid}},
      [this, name = spec.name, op, token, answer](const Result<json>& reply) {
        const Status status = !reply.ok() ? reply.status()
                              : reply.value().value("ok", false)
                                  ? Status()
                                  : Status::error(EBUSY, "{}", reply.value().value("error", ""));
        if (status.ok()) {
          return api::send(answer, 200,
                           {{"name", name}, {"socket", files_socket(config_.run, name)}, {"token", token}});
        }
        restoring_.erase(name);
        refuse(answer, 409, fmt::format("'{}' cannot be {}d: {}", name, std::string_view(op), status.message()),
               "nothing was touched");
      });
}

void Api::finish_suspension(const VgpuSpec& before, const char* wanted, const Answer& answer) {
  session_manager_->await_suspension(before.name, wanted, [this, before, wanted, answer](const Result<json>& now) {
    session_manager_->set_hold(before.name, SessionManager::Hold::kNone);
    const std::optional<VgpuSpec> found = registry_->find(before.name);
    if (!found) return not_found(before.name, answer);
    // A session that is not there has nothing on the device: its next one begins as it is noted.
    if (!now.ok() || is_in(now.value(), wanted)) return show(*found, 200, answer);
    VgpuSpec back = *found;
    back.suspended = before.suspended;
    back.suspended_bytes = before.suspended_bytes;
    if (Status undone = registry_->put(back); !undone.ok()) log::error("{}", undone.message());
    review_lending();
    session_manager_->update(back);
    refuse(answer, 409,
           fmt::format("'{}' cannot be {}: {}", before.name, back.suspended ? "resumed" : "suspended",
                       why_not(now.value()).message()),
           back.suspended ? "it stays suspended; its session's log says more" : "its programs go on as before");
  });
}

}  // namespace bandsaw
