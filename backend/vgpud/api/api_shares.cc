// What changes shares and how the GPU is scheduled: create, change, and the resource /v1/scheduler.
//
// Everything that decides about a change, its record on disk and the arbiter's knowledge of it happen in one turn of
// the event loop, so that of two administrators' changes one sees the other's.
#include <algorithm>
#include <utility>

#include "backend/control/paths.h"
#include "backend/vgpud/api/api.h"
#include "backend/vgpud/api/api_answers.h"
#include "backend/vgpud/api/share_limits.h"
#include "backend/vgpud/api/shares.h"
#include "backend/vgpud/arbiter/partitions.h"
#include "backend/vgpud/owners.h"
#include "backend/vgpud/placement.h"
#include "memory/base/json.h"
#include "memory/base/log.h"

namespace bandsaw {

using api::refuse;
using api::refuse_shares;
using api::refuse_storage;
using nlohmann::json;

namespace {

// Takes the fields of a policy out of `body`: how the GPU is to be scheduled, beginning from how it is.
Status take_choice(json* body, PolicyChoice* choice) {
  for (const auto& [key, field] : {std::pair{"policy", &choice->policy}, std::pair{"queues", &choice->queues}}) {
    if (!body->is_object() || !body->contains(key)) continue;
    if (!(*body)[key].is_string()) return Status::error(EINVAL, "'{}' must be a text", key);
    *field = (*body)[key].get<std::string>();
    body->erase(key);
  }
  Status status = check_policy(choice->policy);
  return status.ok() ? check_queues(choice->queues) : status;
}

MemoryUse memory_use(const json& status) {
  const auto bytes = [&status](const char* key) {
    return static_cast<uint64_t>(std::max<int64_t>(status.value(key, int64_t{0}), 0));
  };
  const uint64_t all = bytes("memory_used");
  return {all, all - std::min(all, bytes("memory_swapped"))};
}

// What a request that can be understood says.
std::optional<uint32_t> asked_sms(const json& body) {
  if (!body.is_object() || !body.contains("sms") || !body["sms"].is_number_integer()) return std::nullopt;
  return body["sms"].get<uint32_t>();
}

void refuse_policy(const HttpServer::Answer& answer, const Status& status) {
  refuse(answer, status.code() == ENOTSUP ? 409 : 400, status.message(),
         "`vgpuctl scheduler show` shows how the device is scheduled");
}

// True: the request for one virtual GPU has a setting of all devices, and is refused.
bool refuse_device_settings(const json& body, const HttpServer::Answer& answer) {
  for (const char* key : {"policy", "queues", "planning"}) {
    if (!body.is_object() || !body.contains(key)) continue;
    refuse(answer, 400, fmt::format("'{}' is a setting of all devices together", key),
           "`vgpuctl scheduler set` changes it (PATCH /v1/scheduler)");
    return true;
  }
  return false;
}

}  // namespace

Status Api::take_policy(json* body, std::optional<PolicyChoice>* choice) const {
  if (!body->is_object() || (!body->contains("policy") && !body->contains("queues"))) return {};
  if (!scheduled()) {
    return Status::error(ENOTSUP, "this vgpud schedules nothing: 'scheduler.policy' is \"none\" in its configuration");
  }
  PolicyChoice wanted = common_choice();
  Status status = take_choice(body, &wanted);
  if (status.ok()) *choice = std::move(wanted);
  return status;
}

PolicyChoice Api::common_choice() const { return choice_of(effective_options(config_.scheduler, registry_->choice())); }

Status Api::set_policy(const PolicyChoice& choice) {
  const PolicyChoice before = common_choice();
  if (choice == before) return {};
  Status status = bandsaw::set_policy(*gpus_, choice);
  if (!status.ok()) return status;
  status = registry_->put_choice({choice, choice_of(config_.scheduler)});
  if (!status.ok()) {
    if (Status undone = bandsaw::set_policy(*gpus_, before); !undone.ok()) log::error("{}", undone.message());
    return status;
  }
  log::info("devices {} are scheduled by {}, {}", gpus_->names(), choice.policy, choice.queues);
  return {};
}

void Api::scheduler(const Answer& answer) const { api::send(answer, 200, scheduler_state()); }

void Api::change_scheduler(json body, const Answer& answer) {
  std::optional<PolicyChoice> choice;
  std::optional<PlanningMode> mode;
  if (!body.is_object()) return refuse(answer, 400, "not a JSON object", "send {\"policy\": NAME}");
  Status status = take_policy(&body, &choice);
  if (status.ok()) status = take_planning_mode(&body, &mode);
  if (!status.ok()) return refuse_policy(answer, status);
  if (!body.empty() || (!choice && !mode)) {
    return refuse_policy(answer,
                         Status::error(EINVAL, "what can be changed here is 'policy', 'queues' and 'planning'"));
  }
  if (choice) status = set_policy(*choice);
  if (status.ok() && mode) status = set_planning_mode(*mode);
  if (!status.ok()) return refuse_storage(answer, status);
  scheduler(answer);
}

Status Api::check_new(json fields, const Gpu* gpu, VgpuSpec* spec) const {
  if (Status status = from_json(fields, false, spec); !status.ok()) return status;
  if (Status status = check_owner(*spec); !status.ok()) return status;
  std::vector<const PhysicalDevice*> devices;
  for (const Gpu& one : gpus_->all()) {
    if (!gpu || gpu == &one) devices.push_back(&one.device);
  }
  if (Status status = place(devices, registry_->all(), config_.placement, spec); !status.ok()) return status;
  return check_swap(*spec, with_sleepers(), config_.swap_memory);
}

void Api::create(json body, const Answer& answer) {
  if (!body.is_object() || !body.contains("name") || !body["name"].is_string()) {
    return refuse(answer, 400, "the request has no 'name'", "send a JSON object with name and memory");
  }
  VgpuSpec spec;
  spec.name = body["name"].get<std::string>();
  body.erase("name");
  const Gpu* gpu = nullptr;
  if (body.contains("device")) {
    if (body["device"].is_string()) gpu = gpus_->find(body["device"].get<std::string>());
    if (!gpu) {
      return refuse(answer, 400, "no device " + json_text(body["device"]).substr(0, 80),
                    fmt::format("this host has {}", gpus_->names()));
    }
    body.erase("device");
  }
  if (refuse_device_settings(body, answer)) return;
  if (registry_->find(spec.name)) {
    return refuse(answer, 409, fmt::format("the name '{}' is taken", spec.name),
                  fmt::format("choose another, or `vgpuctl destroy {}` first", spec.name));
  }
  const auto asked = asked_sms(body);
  Status status = check_new(std::move(body), gpu, &spec);
  if (!status.ok()) return refuse_shares(answer, status);
  spec.index = registry_->free_index();
  start_new(spec, asked, answer);
}

void Api::start_new(const VgpuSpec& spec, std::optional<uint32_t> asked_sms, const Answer& answer) {
  const Gpu& gpu = *gpus_->of(spec);
  Status status = check_debt(gpu);
  if (status.ok()) status = gpu.arbiter->add(spec.name, engine_shares(spec));
  if (!status.ok()) return refuse_shares(answer, status);
  status = registry_->put(spec);
  if (!status.ok()) {
    undo_create(spec);
    return refuse_storage(answer, status);
  }
  tell_arbiter(gpu, spec, registry_->all());
  review_lending();
  session_manager_->add(spec, [this, spec, answer, asked_sms](const Status& ready) {
    std::vector<std::string> notes = sharing_notes(spec, true);
    for (std::string& note : sms_notes({}, spec, asked_sms)) notes.push_back(std::move(note));
    for (std::string& note : latency_notes({}, spec)) notes.push_back(std::move(note));
    if (ready.ok()) return show(spec, 201, answer, notes);
    undo_create(spec);
    session_manager_->give_up(spec.name);
    refuse(answer, 500, ready.message(),
           fmt::format("nothing was created; {} says why, and vgpud's log", failed_log(config_.run, spec.name)));
  });
}

void Api::undo_create(const VgpuSpec& spec) {
  gpus_->of(spec)->arbiter->remove(spec.name);
  if (!registry_->find(spec.name)) return;
  if (Status undone = registry_->remove(spec.name); !undone.ok()) log::error("{}", undone.message());
  review_lending();
}

void Api::change(json body, const VgpuSpec& spec, const Answer& answer) {
  VgpuSpec changed = spec;
  Status status =
      from_json(json{{"memory", body.is_object() ? body.value("memory", json(spec.memory)) : json()}}, false, &changed);
  if (!status.ok()) return refuse_shares(answer, status);
  if (body.is_object() && body.contains("resident"))
    status = from_json({{"resident", body["resident"]}}, false, &changed);
  if (!status.ok()) return refuse_shares(answer, status);
  const bool less = changed.memory < spec.memory || reserved_memory(changed) < reserved_memory(spec);
  if (!less) return commit_change(std::move(body), spec.name, {}, answer);
  session_manager_->request(spec.name, {{"op", "status"}},
                            [this, body = std::move(body), name = spec.name, answer](const Result<json>& reply) {
                              if (!reply.ok() && reply.status().code() == ETIMEDOUT) {
                                return refuse(answer, 409,
                                              fmt::format("the session of '{}' does not say what it uses", name),
                                              "try again, or end the programs that run there");
                              }
                              // Where no session runs, nothing is in use.
                              commit_change(body, name, reply.ok() ? memory_use(reply.value()) : MemoryUse{}, answer);
                            });
}

void Api::commit_change(json body, const std::string& name, const MemoryUse& used, const Answer& answer) {
  // It may have changed or gone while its session was asked.
  const std::optional<VgpuSpec> found = registry_->find(name);
  if (!found) return not_found(name, answer);
  const VgpuSpec& before = *found;
  VgpuSpec changed = before;
  if (refuse_device_settings(body, answer)) return;
  const Gpu* gpu = gpus_->of(before);
  // One of a device that this vgpud does not have is bounded by the others there; nobody but the registry knows it.
  const DeviceCapacity missing{.name = before.device, .memory = UINT64_MAX};
  const DeviceCapacity& capacity = gpu ? gpu->device : missing;
  Status status = from_json(body, false, &changed);
  if (changed.sharing != Sharing::kMps && !body.contains("group")) changed.group.clear();
  if (status.ok()) status = check_shares(changed, registry_->all(), capacity);
  if (status.ok() && changed.owner != before.owner) status = check_owner(changed);
  if (status.ok() && changed.memory < before.memory) status = check_memory_in_use(changed, used.all);
  if (status.ok() && reserved_memory(changed) < reserved_memory(before)) {
    status = check_resident_in_use(changed, used.resident);
  }
  if (status.ok()) status = check_swap(changed, with_sleepers(), config_.swap_memory);
  if (status.ok() && gpu && held_memory(changed) > held_memory(before)) status = check_debt(*gpu);
  if (status.ok() && gpu) status = fit_sms(registry_->all(), capacity, &changed);
  if (!status.ok()) return refuse_shares(answer, status);
  if (changed.direct_mode != before.direct_mode || changed.direct_group != before.direct_group) {
    return refuse(answer, 400, "the direct socket's permissions are fixed when it is made",
                  fmt::format("destroy and create '{}' anew", name));
  }
  status = registry_->put(changed);
  if (!status.ok()) {
    restore(before);
    return refuse_storage(answer, status);
  }
  if (gpu) status = gpu->arbiter->set_shares(name, engine_shares(changed));
  if (!status.ok()) {
    restore(before);
    return refuse_shares(answer, status);
  }
  if (gpu) tell_arbiter(*gpu, changed, registry_->all());
  review_lending();
  session_manager_->update(changed);
  std::vector<std::string> notes;
  if (body.contains("sharing") || body.contains("group")) notes = sharing_notes(changed, false);
  if (changed.owner != before.owner) {
    notes.push_back(fmt::format(
        "'{}' is {} for programs that start from now on; those that run go on", name,
        changed.owner.empty() ? "anybody's who may open its sockets" : fmt::format("{}'s alone", changed.owner)));
  }
  for (std::string& note : sms_notes(before, changed, asked_sms(body))) notes.push_back(std::move(note));
  for (std::string& note : latency_notes(before, changed)) notes.push_back(std::move(note));
  show(changed, 200, answer, notes);
}

void Api::restore(const VgpuSpec& before) {
  if (Status undone = registry_->put(before); !undone.ok()) log::error("{}", undone.message());
}

}  // namespace bandsaw
