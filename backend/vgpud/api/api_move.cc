// vgpuctl move: another device of this host for a virtual GPU, whose session stays.
//
// Its programs come to a standstill first. Then one write of the registry says where it is; the session hears of it and
// goes on. So a vgpud that dies in the middle leaves it on the old device, or is followed by one that ends the move.
#include <algorithm>
#include <utility>

#include "backend/vgpud/api/api.h"
#include "backend/vgpud/api/api_answers.h"
#include "backend/vgpud/api/share_limits.h"
#include "backend/vgpud/api/shares.h"
#include "backend/vgpud/placement.h"
#include "memory/base/json.h"
#include "memory/base/log_about.h"

namespace bandsaw {

using api::Refusal;
using api::refuse;
using api::refuse_shares;
using api::refuse_storage;
using nlohmann::json;

namespace {

// `now`: what its session says of its suspension, which was to come and did not.
Refusal why_it_stays(const std::string& name, const Result<json>& now) {
  const std::string why = now.ok() ? now.value().value("error", "") : now.status().message();
  return {409, fmt::format("'{}' cannot be moved: {}", name, why),
          "it stays where it is, and its programs go on as before"};
}

std::string kind_of(const VgpuSpec& spec) { return spec.device.substr(0, spec.device.find(':')); }

// Programs that have a runner: others wait for one, or have lost it.
size_t programs_in(const json& view) {
  static const json::json_pointer processes("/live/processes");
  if (!view.contains(processes)) return 0;
  const json& all = view[processes];
  return static_cast<size_t>(
      std::count_if(all.begin(), all.end(), [](const json& one) { return one.value("runner", 0) != 0; }));
}

// A session runs, and gave no answer.
bool is_silent(const json& view) {
  return view.value("/session/state"_json_pointer, "") == "running" && !view.value("live", json()).is_object();
}

// Its memory is where the segment is.
std::string segment_that_stays(const std::string& vgpu, std::span<const SegmentSpec> segments) {
  for (const SegmentSpec& segment : segments) {
    if (segment.vgpu == vgpu) return fmt::format("owns the shared segment '{}'", segment.name);
    if (segment.grants.contains(vgpu)) return fmt::format("may use the shared segment '{}'", segment.name);
  }
  return "";
}

bool is_instance(const PhysicalDevice& device) { return device.visible.starts_with("MIG-"); }

// What programs were told of their device must stay true, and NVIDIA's driver brings contexts back on a GPU of the same
// kind alone, if their runners may open it. Empty: they can come along.
std::string why_programs_stay(const VgpuSpec& spec, const Gpu* from, const PhysicalDevice& to, bool sees_all) {
  if (spec.sharing == Sharing::kMps) return "it is an mps virtual GPU, whose programs stay where they are";
  if (kind_of(spec) == "cuda") {
    if (!from || from->device.visible.empty()) return "the GPU that they are on has not been found";
    if (!sees_all) return "its runners see no GPU but their own ([sandbox] peers)";
    if (is_instance(from->device) || is_instance(to)) return "programs do not move from or to a MIG instance";
    if (from->device.model != to.model) {
      return fmt::format("'{}' is of the model {}, and '{}' of {}", from->device.name, from->device.model, to.name,
                         to.model);
    }
  }
  if (!from || from->device.sms == to.sms) return "";
  const auto sms = [](uint32_t count) {
    return count == 0 ? std::string("SMs by the cores") : fmt::format("{} SMs", count);
  };
  return fmt::format("its programs were told of {}, and '{}' has {}", sms(from->device.sms), to.name, sms(to.sms));
}

std::optional<Refusal> check_target(const VgpuSpec& spec, const Gpu* from, const Gpu& to) {
  if (&to == from) {
    return Refusal{409, fmt::format("'{}' is on '{}' already", spec.name, spec.device), "name another device"};
  }
  if (to.device.kind == kind_of(spec)) return std::nullopt;
  return Refusal{
      409, fmt::format("'{}' is on '{}', and '{}' is a device of another kind", spec.name, spec.device, to.device.name),
      "destroy it and create it anew there"};
}

}  // namespace

std::optional<Refusal> Api::find_target(const std::string& device, const json& view, VgpuSpec* spec) const {
  const Gpu* const from = gpus_->of(*spec);
  const Gpu* const wanted = std::as_const(*gpus_).find(device);
  if (!device.empty() && !wanted) {
    return Refusal{400, "no device " + json_text(device).substr(0, 80),
                   fmt::format("this host has {}", gpus_->names())};
  }
  if (auto refusal = wanted ? check_target(*spec, from, *wanted) : std::nullopt) return refusal;
  if (const std::string segment = segment_that_stays(spec->name, registry_->segments()); !segment.empty()) {
    return Refusal{409, fmt::format("'{}' {}, whose memory is on '{}'", spec->name, segment, spec->device),
                   "`vgpuctl segment destroy` or `vgpuctl segment revoke` first"};
  }
  if (is_silent(view)) {
    return Refusal{409, fmt::format("the session of '{}' does not say what runs there", spec->name), "try again"};
  }
  const size_t programs = programs_in(view);
  std::vector<const PhysicalDevice*> devices;
  std::string stay;
  for (const Gpu& gpu : gpus_->all()) {
    if (&gpu == from || (wanted && wanted != &gpu) || gpu.device.kind != kind_of(*spec)) continue;
    const std::string why = programs == 0 ? "" : why_programs_stay(*spec, from, gpu.device, config_.sandbox_peers);
    if (why.empty()) devices.push_back(&gpu.device);
    if (stay.empty()) stay = why;
  }
  if (devices.empty() && stay.empty()) {
    return Refusal{409, fmt::format("this host has no other device of the kind of '{}'", spec->device),
                   "`vgpuctl status` lists its devices"};
  }
  if (devices.empty()) {
    return Refusal{409, fmt::format("'{}' has {} program{}: {}", spec->name, programs, programs == 1 ? "" : "s", stay),
                   "end its programs, and it moves without them"};
  }
  const Status status = place(devices, registry_->all(), config_.placement, spec);
  return status.ok() ? std::nullopt : std::optional(api::refusal_of_shares(status));
}

void Api::move(const json& body, const VgpuSpec& spec, const Answer& asker) {
  const Answer answer = claim(spec.name, "moved", asker);
  if (!answer) return;
  const std::string device = text_in(body, "device");
  if (!body.is_object() || body.size() > 1 || (body.size() == 1 && device.empty())) {
    return refuse(answer, 400, "what can be said here is 'device'", "send {\"device\": NAME}, or {} for any with room");
  }
  view(spec, [this, spec, device, answer](const json& now) {
    VgpuSpec to = spec;
    if (const auto refusal = find_target(device, now, &to)) return refuse(answer, *refusal);  // nothing was touched
    if (spec.suspended) return commit_move(spec, device, now, answer);
    pause_and_move(spec, device, answer);
  });
}

void Api::pause_and_move(const VgpuSpec& spec, const std::string& device, const Answer& answer) {
  session_manager_->set_hold(spec.name, SessionManager::Hold::kPause);
  session_manager_->await_suspension(spec.name, "paused", [this, spec, device, answer](const Result<json>& now) {
    const bool absent = now.status().code() == ENOTCONN || now.status().code() == ENOENT;  // nothing of it runs
    if (!absent && !(now.ok() && stands_still(now.value()))) {
      session_manager_->set_hold(spec.name, SessionManager::Hold::kNone);
      return refuse(answer, why_it_stays(spec.name, now));
    }
    const uint64_t bytes = absent ? 0 : now.value().value("bytes", uint64_t{0});
    view(spec, [this, spec, device, bytes, answer](const json& paused) {
      if (kind_of(spec) != "cuda" || programs_in(paused) == 0) return commit_move(spec, device, paused, answer);
      leave_and_move(spec, device, bytes, paused, answer);
    });
  });
}

// Its programs stand still. On a GPU they must also have left it before they can come to another one.
void Api::leave_and_move(const VgpuSpec& spec, const std::string& device, uint64_t bytes, const json& paused,
                         const Answer& answer) {
  const auto stay = [this, name = spec.name] { session_manager_->set_hold(name, SessionManager::Hold::kNone); };
  VgpuSpec to = spec;
  if (const auto refusal = find_target(device, paused, &to)) {
    stay();
    return refuse(answer, *refusal);
  }
  if (Status room = check_suspend(spec, bytes, with_sleepers(), config_.swap_memory); !room.ok()) {
    stay();
    return refuse(answer, 409, room.message(),
                  "end programs of it, or raise 'memory' in the table [swap] of vgpud's configuration");
  }
  session_manager_->set_hold(spec.name, SessionManager::Hold::kLeave, bytes);
  session_manager_->await_suspension(
      spec.name, "suspended", [this, spec, device, stay, answer](const Result<json>& now) {
        if (now.ok() && is_in(now.value(), "suspended")) {
          return view(spec, [this, spec, device, answer](const json& off) { commit_move(spec, device, off, answer); });
        }
        stay();
        refuse(answer, why_it_stays(spec.name, now));
      });
}

// Its programs stand still, and what they have used is in `view`.
void Api::commit_move(const VgpuSpec& spec, const std::string& device, const json& view, const Answer& answer) {
  const std::optional<VgpuSpec> found = registry_->find(spec.name);
  if (!found) return not_found(spec.name, answer);
  const auto stay = [&] { session_manager_->set_hold(spec.name, SessionManager::Hold::kNone); };
  // It may have changed while its session was asked.
  if (found->suspended != spec.suspended || found->device != spec.device) {
    stay();
    return refuse(answer, 409, fmt::format("'{}' was suspended, resumed or moved meanwhile", spec.name), "try again");
  }
  VgpuSpec to = *found;
  if (const auto refusal = find_target(device, view, &to)) {
    stay();
    return refuse(answer, *refusal);
  }
  note_use(view);  // the new arbiter counts from 0
  const Gpu& gpu = *gpus_->of(to);
  if (Status status = gpu.arbiter->add(to.name, engine_shares(to)); !status.ok()) {
    stay();
    return refuse_shares(answer, status);
  }
  if (Status status = registry_->put(to); !status.ok()) {
    gpu.arbiter->remove(to.name);
    stay();
    return refuse_storage(answer, status);
  }
  tell_arbiter(gpu, to, registry_->all());
  if (const Gpu* from = gpus_->of(*found)) from->arbiter->remove(to.name);
  review_lending();
  session_manager_->move(to, [this, before = *found, to, answer](const Status& status) {
    const std::optional<VgpuSpec> now = registry_->find(to.name);
    if (!now) return not_found(to.name, answer);
    if (status.ok() && !now->suspended && kind_of(*now) == "cuda") return finish_move(before, answer);
    end_move(before, status, answer);
  });
}

// Its session knows the new GPU. Whether its programs can come there the driver says only now.
void Api::finish_move(const VgpuSpec& before, const Answer& answer) {
  session_manager_->await_suspension(before.name, "running", [this, before, answer](const Result<json>& now) {
    const std::string error = now.ok() && !is_in(now.value(), "running") ? now.value().value("error", "") : "";
    end_move(before, error.empty() ? Status() : Status::error(EIO, "{}", error), answer);
  });
}

void Api::end_move(const VgpuSpec& before, const Status& moved, const Answer& answer) {
  const std::optional<VgpuSpec> now = registry_->find(before.name);
  if (!now) return not_found(before.name, answer);
  if (moved.ok()) {
    session_manager_->set_hold(now->name, SessionManager::Hold::kNone);  // nothing of it is in the host's memory
    log::info(log::About{now->name, now->device}, "moved from '{}' to '{}'", before.device, now->device);
    return show(*now, 200, answer);
  }
  undo_move(before, *now);
  refuse(answer, 409, fmt::format("'{}' cannot be moved: {}", now->name, moved.message()),
         fmt::format("it stays on '{}', and its programs go on as before", before.device));
}

void Api::undo_move(const VgpuSpec& before, const VgpuSpec& refused) {
  VgpuSpec back = refused;  // with what was changed since
  back.device = before.device;
  back.device_uuid = before.device_uuid;
  back.sms = before.sms;
  gpus_->of(refused)->arbiter->remove(back.name);
  restore(back);
  const Gpu* const gpu = gpus_->of(before);
  if (!gpu) return;
  add_to_arbiter(*gpu, back, registry_->all());
  review_lending();
  const auto return_to = [this, back] {
    session_manager_->move(back, [this, name = back.name](const Status&) {
      session_manager_->set_hold(name, SessionManager::Hold::kNone);
    });
  };
  if (kind_of(back) != "cuda") return return_to();
  // Of several programs some may have come to the new GPU: these leave it again.
  session_manager_->set_hold(back.name, SessionManager::Hold::kLeave, session_manager_->asleep_bytes(back.name));
  session_manager_->await_suspension(back.name, "suspended", [return_to](const Result<json>&) { return_to(); });
}

}  // namespace bandsaw
