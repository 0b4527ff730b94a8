#include "backend/vgpud/api/api.h"

#include <unistd.h>

#include <algorithm>

#include "backend/control/paths.h"
#include "backend/vgpud/api/api_answers.h"
#include "backend/vgpud/arbiter/partitions.h"
#ifdef BANDSAW_WITH_LIBVIRT
#include "hypervisor/libvirt/domain.h"
#endif
#include "memory/base/clock.h"
#include "memory/base/json.h"
#include "memory/base/log.h"

namespace bandsaw {

using api::refuse;
using api::refuse_storage;
using api::send;
using nlohmann::json;

namespace {

bool in_use(const json& view) {
  const json live = view.value("live", json());
  if (!live.is_object()) return false;  // no session runs
  return !live.value("processes", json::array()).empty() || live.value("/vm/connected"_json_pointer, false);
}

}  // namespace

Api::Api(const Config& config, Registry* registry, SessionManager* session_manager, Gpus* gpus,
         std::function<void()> shut_down)
    : config_(config),
      registry_(registry),
      session_manager_(session_manager),
      gpus_(gpus),
      shut_down_(std::move(shut_down)) {
  for (Gpu& gpu : gpus_->all()) gpu.device.drained = registry_->drained(gpu.device);
  session_manager_->set_room_to_sleep([this](const VgpuSpec& spec, uint64_t bytes) {
    return check_suspend(spec, bytes, with_sleepers(), config_.swap_memory);
  });
}

std::vector<VgpuSpec> Api::with_sleepers() const {
  std::vector<VgpuSpec> all = registry_->all();
  for (VgpuSpec& spec : all) {
    if (!spec.suspended) spec.suspended_bytes = session_manager_->asleep_bytes(spec.name);
    if (spec.suspended && session_manager_->saved(spec.name)) spec.suspended_bytes = 0;
    if (spec.suspended) spec.suspended_bytes = std::max(spec.suspended_bytes, room_to_restore(spec.name));
  }
  return all;
}

void Api::review_lending() const {
  tell_memory(*gpus_, with_sleepers(), config_.swap_memory, config_.swap_lend.value_or(true));
}

Status Api::check_debt(const Gpu& gpu) const {
  const uint64_t debt = gpu.arbiter->memory_debt();
  if (debt == 0) return {};
  return Status::error(EBUSY,
                       "{} of device '{}' that a virtual GPU had lent is still to be given back: try again in a moment",
                       format_size(debt), gpu.device.name);
}

// What a session says of a file that comes is not known at once.
uint64_t Api::room_to_restore(const std::string& name) const {
  const auto begun = restoring_.find(name);
  const bool just_now = begun != restoring_.end() && std::chrono::steady_clock::now() < begun->second.until;
  return std::max(session_manager_->restored_bytes(name), just_now ? begun->second.bytes : 0);
}

json Api::device_state(const Gpu& gpu) const {
  const PhysicalDevice& device = gpu.device;
  uint64_t memory = 0, promised = 0;
  uint32_t compute = 0, copy = 0, reserve = 0, count = 0;
  for (const VgpuSpec& spec : registry_->all()) {
    if (gpus_->of(spec) != &gpu) continue;
    ++count;
    memory += held_memory(spec);
    promised += spec.memory;
    compute += spec.compute;
    copy += spec.copy;
    reserve += spec.reserve;
  }
  return {{"id", device.name},
          {"kind", device.kind},
          {"index", device.index},
          {"name", device.model},
          {"uuid", device.uuid},
          {"driver", device.driver},
          {"lost", device.lost},
          {"drained", device.drained},
          {"policy", scheduled() ? gpu.arbiter->options().policy : "none"},
          {"queues", choice_of(gpu.arbiter->options()).queues},
          {"planning", to_text(planning_mode_of(gpu))},
          {"memory", device.memory},
          {"memory_given", memory},
          {"memory_promised", promised},
          {"sms", device.sms},
          {"sm_step", device.sm_step},
          {"compute_given", compute},
          {"copy_given", copy},
          {"reserve_given", reserve},
          {"vgpus", count},
          {"compute", compute_state(gpu)},
          {"mps", mps_state(gpu)}};
}

// `device`, `mps` and `scheduler.compute` are of the first device, for clients that know of one.
void Api::change_device(const HttpRequest& request, const json& body, const Answer& answer) {
  Gpu* const gpu = gpus_->find(request.path[2]);
  if (!gpu) {
    return refuse(answer, 404, fmt::format("no device '{}'", request.path[2].substr(0, 80)),
                  fmt::format("this host has {}", gpus_->names()));
  }
  if (!body.is_object() || body.size() != 1 || !body.contains("drained") || !body["drained"].is_boolean()) {
    return refuse(answer, 400, "what can be changed here is 'drained'", "send {\"drained\": true} or false");
  }
  const bool drained = body["drained"].get<bool>();
  if (Status status = registry_->put_drained(gpu->device, drained); !status.ok()) return refuse_storage(answer, status);
  gpu->device.drained = drained;
  send(answer, 200, device_state(*gpu));
}

json Api::status_state() const {
  json devices = json::array();
  for (const Gpu& gpu : gpus_->all()) devices.push_back(device_state(gpu));
  return {{"pid", ::getpid()},
          {"run", config_.run},
          {"state", config_.state},
          {"vgpus", registry_->all().size()},
          {"scheduler", scheduler_state()},
          {"cgroups", session_manager_->describe_cgroups()},
          {"sandbox", session_manager_->describe_sandbox()},
          {"mps", devices.front()["mps"]},
          {"device", devices.front()},
          {"devices", devices}};
}

PlanningMode Api::planning_mode_of(const Gpu& gpu) const {
  return gpu.device.planning.value_or(effective_planning_mode(config_.planning_mode, registry_->planning_mode()));
}

json Api::compute_state(const Gpu& gpu) const {
  if (!scheduled()) return {};
  const std::string why = gpu.arbiter->why_gates();
  const char* const gates = gpu.arbiter->shares_by_progress() ? "progress" : "gates";
  return {{"by", why.empty() ? "time-slices" : gates}, {"why", why}};
}

json Api::scheduler_state() const {
  ArbiterOptions common = gpus_->first().arbiter->options();
  const PolicyChoice choice = common_choice();
  common.policy = choice.policy;
  common.model = queue_model(choice);
  json state = scheduled() ? to_json(common) : json{{"policy", "none"}};
  if (scheduled()) state["compute"] = compute_state(gpus_->first());
  state["planning"] = to_text(effective_planning_mode(config_.planning_mode, registry_->planning_mode()));
  return state;
}

std::optional<VgpuUse> Api::use_of(const VgpuSpec& spec) const {
  const Gpu* gpu = gpus_->of(spec);
  if (!gpu) return std::nullopt;
  for (VgpuUse& use : gpu->arbiter->use()) {
    if (use.vgpu == spec.name) return std::move(use);
  }
  return std::nullopt;
}

void Api::status(const Answer& answer) const { send(answer, 200, status_state()); }

void Api::view(const VgpuSpec& spec, SharedQuestions::Then then) {
  views_.want(
      spec.name, [this, spec](SharedQuestions::Then tell) { ask_view(spec, std::move(tell)); }, std::move(then));
}

void Api::ask_view(const VgpuSpec& spec, SharedQuestions::Then then) {
  json object = to_json(spec);
  object["session"] = session_manager_->describe(spec.name);
  if (const Gpu* gpu = gpus_->of(spec)) {
    object["sms_given"] = describe_part(sm_part(spec, registry_->all(), gpu->device), gpu->device);
  } else {
    object["sms_given"] = nullptr;
  }
  object["latency"] = latency_state(spec);
  object["sockets"] = {{"vfio", vfio_socket(config_.run, spec.name)},
                       {"vfio_live", vfio_live_socket(config_.run, spec.name)},
                       {"direct", direct_socket(config_.run, spec.name)}};
  session_manager_->request(
      spec.name, {{"op", "status"}},
      [this, spec, object = std::move(object), then = std::move(then)](Result<json> reply) mutable {
        object["live"] = reply.ok() ? std::move(reply.value()) : json();
        const auto use = scheduled() ? use_of(spec) : std::nullopt;
        object["engines"] = use ? to_json(*use) : json();
        object["keeps_engine"] = use && use->keeps_engine;
        object["used"] = used_time(use, object["live"]);
        object["at_ns"] = monotonic_ns();
        then(object);
      });
}

void Api::collect(std::function<void(const json&, const json&)> then) {
  collect_views([this, then = std::move(then)](const json& views) { then(status_state(), views); });
}

void Api::collect_views(SharedQuestions::Then then) {
  const auto views = std::make_shared<json>(json::array());
  // Answers when the last view has come.
  const std::shared_ptr<void> latch(nullptr, [views, then = std::move(then)](void*) {
    std::sort(views->begin(), views->end(), [](const json& a, const json& b) { return a["name"] < b["name"]; });
    then(*views);
  });
  for (const VgpuSpec& spec : registry_->all()) {
    view(spec, [views, latch](const json& object) { views->push_back(object); });
  }
}

void Api::list(const Answer& answer) {
  collect_views([answer](const json& views) { send(answer, 200, views); });
}

void Api::show(const VgpuSpec& spec, int code, const Answer& answer, const std::vector<std::string>& notes) {
  view(spec, [this, code, answer, notes](const json& object) {
    note_use(object);  // from its creation on, and what was promised up to a change
    if (notes.empty()) return send(answer, code, object);
    json with_notes = object;
    with_notes["notes"] = notes;
    send(answer, code, with_notes);
  });
}

void Api::destroy(const VgpuSpec& spec, bool force, const Answer& answer) {
  view(spec, [this, spec, force, answer](const json& object) {
    note_use(object);
    if (!force && !spec.domain.empty()) {
      return refuse(answer, 409, fmt::format("'{}' is attached to domain '{}'", spec.name, spec.domain),
                    fmt::format("`vgpuctl detach {}` first", spec.name));
    }
    if (!force && in_use(object)) {
      return refuse(answer, 409, fmt::format("'{}' is in use", spec.name),
                    "end its programs or its VM first, or add --force to end them now");
    }
    const auto& segments = registry_->segments();
    const auto owned =
        std::find_if(segments.begin(), segments.end(), [&](const SegmentSpec& one) { return one.vgpu == spec.name; });
    if (!force && owned != segments.end()) {
      return refuse(answer, 409, fmt::format("'{}' owns the shared segment '{}'", spec.name, owned->name),
                    fmt::format("`vgpuctl segment destroy {}` first, or add --force to end all of its segments now",
                                owned->name));
    }
    Status status = registry_->remove(spec.name);
    if (!status.ok()) return refuse_storage(answer, status);
    session_manager_->tell_all(spec.device);
    if (const Gpu* gpu = gpus_->of(spec)) gpu->arbiter->remove(spec.name);
    review_lending();
    session_manager_->remove(spec.name,
                             [name = spec.name, answer] { send(answer, 200, {{"name", name}, {"destroyed", true}}); });
  });
}

void Api::attach(const json& body, const VgpuSpec& spec, const Answer& answer) {
  if (!body.is_object() || !body.contains("domain") || !body["domain"].is_string() ||
      body["domain"].get<std::string>().empty()) {
    return refuse(answer, 400, "the request has no 'domain'", "send a JSON object with the domain's name");
  }
  VgpuSpec changed = spec;
  changed.domain = body["domain"].get<std::string>().substr(0, 255);
  if (!spec.domain.empty() && spec.domain != changed.domain) {
    return refuse(answer, 409, fmt::format("'{}' is attached to domain '{}'", spec.name, spec.domain),
                  fmt::format("`vgpuctl detach {}` first", spec.name));
  }
  Status status = registry_->put(changed);
  if (!status.ok()) return refuse_storage(answer, status);
  session_manager_->update(changed);
  show(changed, 200, answer);
}

void Api::detach(const VgpuSpec& spec, const Answer& answer) {
  VgpuSpec changed = spec;
  changed.domain.clear();
  Status status = registry_->put(changed);
  if (!status.ok()) return refuse_storage(answer, status);
  session_manager_->update(changed);
  show(changed, 200, answer);
}

void Api::xml(const VgpuSpec& spec, const Answer& answer) const {
#ifdef BANDSAW_WITH_LIBVIRT
  answer({.code = 200,
          .body = libvirt::domain_snippet(
              {.vgpu = spec.name, .socket = vfio_socket(config_.run, spec.name), .shares = share_texts(to_json(spec))}),
          .type = "application/xml"});
#else
  refuse(answer, 501, "this vgpud was built without libvirt", "build with libvirt-dev and libxml2-dev installed");
#endif
}

void Api::shut_down(const Answer& answer) {
  log::info("asked to end every session and vgpud");
  ending_ = true;
  session_manager_->remove_all([this, answer] {
    send(answer, 200, {{"ended", true}});
    shut_down_();
  });
}

}  // namespace bandsaw
