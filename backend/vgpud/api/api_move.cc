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

// What programs were told of their device must stay true. Empty: they can come along.
std::string why_programs_stay(const VgpuSpec& spec, const Gpu* from, const PhysicalDevice& to) {
  if (kind_of(spec) == "cuda") return "what its programs have on a GPU cannot go to another one";
  if (spec.sharing == Sharing::kMps) return "it is an mps virtual GPU, whose programs stay where they are";
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
    const std::string why = programs == 0 ? "" : why_programs_stay(*spec, from, gpu.device);
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
  session_manager_->set_pausing(spec.name, true);
  session_manager_->await_suspension(spec.name, "paused", [this, spec, device, answer](const Result<json>& now) {
    const bool absent = now.status().code() == ENOTCONN || now.status().code() == ENOENT;  // nothing of it runs
    if (!absent && !(now.ok() && stands_still(now.value()))) {
      session_manager_->set_pausing(spec.name, false);
      const std::string why = now.ok() ? now.value().value("error", "") : now.status().message();
      return refuse(answer, 409, fmt::format("'{}' cannot be moved: {}", spec.name, why),
                    "it stays where it is, and its programs go on as before");
    }
    view(spec, [this, spec, device, answer](const json& paused) { commit_move(spec, device, paused, answer); });
  });
}

// Its programs stand still, and what they have used is in `view`.
void Api::commit_move(const VgpuSpec& spec, const std::string& device, const json& view, const Answer& answer) {
  const std::optional<VgpuSpec> found = registry_->find(spec.name);
  if (!found) return not_found(spec.name, answer);
  const auto stay = [&] { session_manager_->set_pausing(spec.name, false); };
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
    if (status.ok()) {
      log::info(log::About{to.name, to.device}, "moved from '{}' to '{}'", before.device, to.device);
      return show(*now, 200, answer);
    }
    undo_move(before, *now);
    refuse(answer, 409, fmt::format("'{}' cannot be moved: {}", to.name, status.message()),
           fmt::format("it stays on '{}', and its programs go on as before", before.device));
  });
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
  session_manager_->move(back, [](const Status&) {});
}

}  // namespace bandsaw
