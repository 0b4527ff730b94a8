// The session's part in talking with vgpud: what it is told, and what it says of itself.
#include <charconv>
#include <nlohmann/json.hpp>

#include "backend/control/vgpu_spec.h"
#include "backend/session/session.h"
#include "guest-driver/uapi/wire.h"
#include "memory/base/log.h"

namespace bandsaw {
namespace {

constexpr std::chrono::milliseconds kStopDelay{5};  // long enough for the answer to leave

Status take_owner(const nlohmann::json& request, const char* key, Owner* owner) {
  if (!request.contains(key)) return {};  // as a vgpud of an earlier version asks
  if (!request[key].is_string()) return Status::error(EINVAL, "'{}' must be a text", key);
  const auto parsed = parse_owner(request[key].get<std::string>());
  if (parsed.ok()) *owner = parsed.value();
  return parsed.status();
}

nlohmann::json reply_of(const Status& status) {
  if (status.ok()) return {{"ok", true}};
  return {{"ok", false}, {"error", status.message()}};
}

// Of a request whose only part that is.
Result<uint64_t> bytes_in(const nlohmann::json& request) {
  const auto bytes = request.find("bytes");
  if (bytes != request.end() && bytes->is_number_unsigned()) return bytes->get<uint64_t>();
  return Status::error(EINVAL, "'bytes' must be a number of bytes");
}

}  // namespace

nlohmann::json Session::answer(const nlohmann::json& request) {
  const std::string op = request.contains("op") && request["op"].is_string() ? request["op"].get<std::string>() : "";
  if (op == "status") return status();
  if (op == "set") {
    nlohmann::json reply = reply_of(set(request));
    if (reply["ok"] == true) {
      reply.update({{"notices", true}, {"device", sharing_config_.device}, {"sandbox", sandbox_state()}});
    }
    return reply;
  }
  if (op == "suspension") {
    nlohmann::json state = suspension_state();
    state["ok"] = true;
    return state;
  }
  if (op == "segment_end") return reply_of(end_segment(request));
  if (op == "sleep") return reply_of(sleep(request));
  if (op == "room") return reply_of(give_room(request));
  if (op == "save") return reply_of(expect_file(request, Saver::What::kSave));
  if (op == "restore") return reply_of(expect_file(request, Saver::What::kRestore));
  if (op == "faulted") return health();
  if (op == "shutdown") {
    stop_soon();
    return reply_of({});
  }
  return {{"ok", false}, {"error", "unknown request '" + op.substr(0, 32) + "'"}};
}

Status Session::set(const nlohmann::json& request) {
  if (!request.contains("memory") || !request["memory"].is_number_unsigned()) {
    return Status::error(EINVAL, "set needs a number 'memory'");
  }
  SharingConfig wanted = sharing_config_;
  if (Status status = read_sharing_config(request, &wanted); !status.ok()) return status;
  if (Status status = check_device(wanted); !status.ok()) return status;
  if (!same_device(wanted, sharing_config_)) pool_->forget_device();
  sharing_config_ = std::move(wanted);
  Limits limits = usage_page_.limits();
  if (request.contains("limits")) {
    if (!request["limits"].is_string()) return Status::error(EINVAL, "'limits' must be a text");
    if (Status status = read_limits(request["limits"].get<std::string>(), &limits); !status.ok()) return status;
  }
  for (size_t i = kLimitedBefore; i < kLimitedCount; ++i) {
    const auto limit = request.find(kLimitedNames[i]);
    if (limit == request.end()) continue;
    if (!limit->is_number_unsigned() || limit->get<uint64_t>() > kLimitMax) {
      return Status::error(EINVAL, "'{}' must be a whole number up to {}", kLimitedNames[i], kLimitMax);
    }
    limits[i] = limit->get<uint32_t>();
  }
  if (Status status = set_owners(request); !status.ok()) return status;
  if (Status status = expect_domain(request); !status.ok()) return status;
  usage_page_.set_limits(limits);
  if (code_store_) code_store_->set_most(disk_bytes(limits));
  const uint64_t before = usage_page_.memory_share();
  const auto resident = request.find("resident");
  if (resident != request.end() && !resident->is_number_unsigned()) {
    return Status::error(EINVAL, "'resident' must be a number");
  }
  usage_page_.set_memory_share(request["memory"].get<uint64_t>(),
                               resident != request.end() ? resident->get<uint64_t>() : UINT64_MAX);
  if (before != usage_page_.memory_share()) log::info("memory share is now {} bytes", usage_page_.memory_share());
  apply_sharing_config();
  const auto contexts = request.find("contexts");
  if (contexts != request.end()) suspension_->set_contexts_stay(*contexts == "stay");
  if (request.contains("suspension")) {
    if (!request["suspension"].is_string()) return Status::error(EINVAL, "'suspension' must be a text");
    if (Status status = suspension_->want(request["suspension"].get<std::string>()); !status.ok()) return status;
  }
  const auto idle = request.find("idle_suspend_s");
  if (idle != request.end()) {
    if (!idle->is_number_unsigned() || idle->get<uint64_t>() > kIdleSuspendMost) {
      return Status::error(EINVAL, "'idle_suspend_s' must be a number of seconds");
    }
    sleep_watch_->set_after(std::chrono::seconds(idle->get<uint64_t>()));
  }
  return request.contains("segments") ? segments_->set(request["segments"]) : Status();
}

Status Session::sleep(const nlohmann::json& request) {
  const auto bytes = bytes_in(request);
  if (!bytes.ok()) return bytes.status();
  if (!sleep_watch_->idle()) return Status::error(EBUSY, "it is not idle any more");
  const Status status = suspension_->sleep(bytes.value());
  if (!status.ok()) sleep_watch_->begin();
  return status;
}

// For what checkpoints of single processes bring into the host's memory.
Status Session::give_room(const nlohmann::json& request) {
  const auto bytes = bytes_in(request);
  if (bytes.ok()) process_checkpoints_->give_room(bytes.value());
  return bytes.status();
}

Status Session::expect_file(const nlohmann::json& request, Saver::What what) {
  const auto token = request.find("token");
  const auto uid = request.find("uid");
  if (token == request.end() || !token->is_string() || uid == request.end() || !uid->is_number_unsigned()) {
    return Status::error(EINVAL, "a file needs a 'token' and a 'uid'");
  }
  return saver_->expect(what, token->get<std::string>(), uid->get<uid_t>());
}

nlohmann::json Session::suspension_state() const {
  nlohmann::json state = suspension_->describe();
  state["saved"] = saver_->saved();
  return state;
}

// `bytes`: that lie in the host's memory while it sleeps, or would; `restored`: that a file brings there or has
// brought; `checkpointed`: of single processes, or that would.
nlohmann::json Session::health() const {
  const bool sleeps = suspension_->sleeps();
  return {{"ok", true},
          {"mps", faulted()},
          {"failing", pool_->failing()},
          {"sleeps", sleeps},
          {"asleep", suspension_->asleep()},
          {"sleep_error", suspension_->asleep() ? suspension_->error() : ""},
          {"saved", saver_->saved()},
          {"restored", saver_->restored_bytes()},
          {"checkpointed", process_checkpoints_->bytes()},
          {"wants_room", process_checkpoints_->wants_room()},
          {"would_sleep", !sleeps && sleep_watch_->would_sleep()},
          {"bytes", sleeps ? suspension_->sleep_bytes() : bytes_on_device()}};
}

Status Session::check_device(const SharingConfig& wanted) const {
  const std::string& has = sharing_config_.device;
  if (same_device(wanted, sharing_config_)) return {};
  if (is_cuda(wanted) != is_cuda(sharing_config_)) {
    return Status::error(EINVAL, "a session of '{}' cannot become one of '{}'", has, wanted.device);
  }
  const size_t programs = pool_->serving().size();
  if (programs != 0 && !suspension_->stands_still()) {
    return Status::error(EBUSY, "{} of its programs are on '{}'", programs, has);
  }
  if (programs != 0 && is_cuda(wanted) && !suspension_->contexts_off()) {
    return Status::error(EBUSY, "contexts of its programs are on '{}', and its driver does not take them off", has);
  }
  log::info("moves from '{}' to '{}', with {} programs", has, wanted.device, programs);
  return {};
}

// vgpud sees to the permissions of the sockets, which the session can no longer change.
Status Session::set_owners(const nlohmann::json& request) {
  Owner owner = owner_, vm_owner = vm_owner_;
  Status status = take_owner(request, "owner", &owner);
  if (status.ok()) status = take_owner(request, "vm_owner", &vm_owner);
  if (!status.ok()) return status;
  if (owner != owner_ || vm_owner != vm_owner_) {
    log::info("belongs to {}, its VM's socket to {}", to_text(owner), to_text(vm_owner));
  }
  owner_ = owner;
  vm_owner_ = vm_owner;
  return {};
}

Status Session::end_segment(const nlohmann::json& request) {
  uint64_t id = 0;
  const std::string text = request.contains("id") && request["id"].is_string() ? request["id"].get<std::string>() : "";
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), id);
  if (error != std::errc() || end != text.data() + text.size() || id >= segment::kFirstOwnId) {
    return Status::error(EINVAL, "segment_end needs an 'id'");
  }
  segment_host_->end(id);
  return {};
}

void Session::apply_sharing_config() {
  if (!sharing_config_.lost.empty()) pool_->end_clients(sharing_config_.lost);
  if (!sharing_config_.device_error.empty()) {
    pool_->end_all();
    segment_host_->device_lost();
  }
  pool_->set_launch_config(runner_launch_config(sharing_config_));
  choose_device_of_helpers();
}

void Session::stop_soon() {
  const timeval delay = to_timeval(kStopDelay);
  event_base_loopexit(base_.get(), &delay);
}

// The MPS daemon that a program of this virtual GPU has taken along, if one has; also one that still runs.
std::string Session::faulted() const {
  auto processes = vm_->processes().status();
  for (auto& process : direct_->processes()) processes.push_back(std::move(process));
  for (const auto& process : processes) {
    const auto mps = process.value("mps", std::string());
    if (mps.empty() || !process.contains("usage")) continue;
    if (is_shared_fault(process["usage"].value("sticky", 0u))) return mps;
  }
  return faulted_;
}

nlohmann::json Session::limits_state() const {
  auto state = nlohmann::json::object();
  auto held = usage_page_.held();
  if (code_store_) held[static_cast<size_t>(Limited::kDiskMib)] = (code_store_->held() + (1 << 20) - 1) >> 20;
  for (size_t i = 0; i < kLimitedCount; ++i) {
    state[kLimitedNames[i]] = {{"held", held[i]}, {"most", usage_page_.limits()[i]}};
  }
  return state;
}

// How its programs were held back because they stop others (stall_budget.h).
nlohmann::json Session::stalls_state() const {
  const UsagePageOwner::StallWaits waits = usage_page_.stall_waits();
  return {{"waits", waits.count}, {"wait_ns", waits.ns}};
}

// Of namespaces and the like, what this process and its runners have, and why not the rest.
nlohmann::json Session::sandbox_state() const {
  const Measures& runners = launcher_->measures();
  return {{"session", measures_.has},
          {"session_lacks", measures_.lacks},
          {"runners", runners.has},
          {"runners_lack", runners.lacks}};
}

nlohmann::json Session::status() const {
  const Usage total = usage_page_.total();
  auto processes = vm_->processes().status();
  for (auto& process : direct_->processes()) processes.push_back(std::move(process));
  for (auto& process : processes) {
    const std::string held = process_checkpoints_->state_of(process.value("runner", 0));
    if (!held.empty()) process["state"] = held;
  }
  const auto uptime = std::chrono::steady_clock::now() - started_;
  return {{"ok", true},
          {"name", config_.name},
          {"uuid", uuid_text(identity_)},
          {"pci_bus_id", pci_bus_text(identity_)},
          {"pid", ::getpid()},
          {"release", wire::kRelease},
          {"uptime_s", std::chrono::duration_cast<std::chrono::seconds>(uptime).count()},
          {"memory_share", usage_page_.memory_share()},
          {"memory_used", total.memory_bytes},
          {"memory_resident", usage_page_.resident()},
          {"memory_borrowed", std::max<int64_t>(usage_page_.order().beyond, 0)},
          {"memory_lent", std::max<int64_t>(-usage_page_.order().beyond, 0)},
          {"memory_swapped", suspension_->suspended() ? total.memory_bytes : total.swapped_bytes},
          {"suspension", suspension_state()},
          {"usage", to_json(total)},
          {"limits", limits_state()},
          {"stalls", stalls_state()},
          {"segments", segment_host_->state()},
          {"processes", std::move(processes)},
          {"sharing", to_text(sharing_config_.sharing)},
          {"planning", to_text(sharing_config_.mode)},
          {"runners",
           {{"warm", pool_->warm()},
            {"living", pool_->living()},
            {"started", pool_->started()},
            {"failed", pool_->failed()}}},
          {"vm",
           {{"connected", vm_->device().connected()},
            {"driver", vm_->device().driver_ready()},
            {"ram_bytes", vm_->processes().ram().total_bytes()}}},
          {"xen", xen_state()},
          {"direct", {{"connections", direct_->connections()}}}};
}

}  // namespace bandsaw
