#include "backend/session/processes.h"

#include <algorithm>
#include <nlohmann/json.hpp>

#include "backend/session/process.h"
#include "guest-driver/uapi/wire.h"
#include "memory/base/log.h"

namespace bandsaw {

vgpu_ctl_reply make_reply(int status, const std::string& message, uint64_t value) {
  vgpu_ctl_reply reply{};
  reply.status = static_cast<uint32_t>(status);
  reply.value = value;
  message.copy(reply.message, sizeof reply.message - 1);
  return reply;
}

Processes::Processes(event_base* base, ProcessesConfig config, RunnerSource* source, UsagePageOwner* usage_page,
                     ProcessWatcher* watcher)
    : base_(base), config_(std::move(config)), source_(source), usage_page_(usage_page), watcher_(watcher) {}

Processes::~Processes() = default;

void Processes::request(std::span<const std::byte> bytes, const Answer& answer, UniqueFd file) {
  auto parsed = parse_request(bytes);
  if (!parsed.ok()) {
    if (config_.log->allow()) log::warn("bad control request: {}", parsed.status().message());
    return answer(make_reply(EINVAL, parsed.status().message()), {});
  }
  const Request& request = parsed.value();
  if (request.type == VGPU_CTL_CREATE_PROCESS || request.type == VGPU_CTL_RETURN_PROCESS)
    return create(request, std::move(file), answer);
  if (request.type == VGPU_CTL_PING && request.process == 0) return answer(make_reply(0, ""), {});
  if (request.type == VGPU_CTL_QUERY && request.process == 0 && config_.query) {
    return answer(config_.query(request.query), {});
  }
  const ProcessRef process = find(request.process);
  if (!process) return answer(make_reply(ENOENT, fmt::format("no process {}", request.process)), {});
  switch (request.type) {
    case VGPU_CTL_DESTROY_PROCESS:
      return destroy(request, answer);
    case VGPU_CTL_ADD_RING:
    case VGPU_CTL_ADD_REGION:
      return process->add_mapping(request, std::move(file), answer);
    case VGPU_CTL_DROP_RING:
    case VGPU_CTL_DROP_REGION:
      return process->drop_mapping(request, answer);
    case VGPU_CTL_KICK:
      return process->kick(answer);
    case VGPU_CTL_PING:
      return process->ping(answer);
    case VGPU_CTL_ALL_ANNOUNCED:
      return process->all_announced(answer);
    case VGPU_CTL_LEAVE_PROCESS:
      return process->leave(answer);
    case VGPU_CTL_PRIORITY:
      process->set_nice(request.nice);
      return answer(make_reply(0, ""), {});
    default:
      return answer(make_reply(EINVAL, "this is asked of the session itself: process 0"), {});
  }
}

Processes::ProcessRef Processes::find(uint32_t id) const {
  const auto found = processes_.find(id);
  return found == processes_.end() ? nullptr : found->second;
}

Status Processes::check_return(const Request& request) const {
  if (!config_.replaceable) {
    return Status::error(ENOTSUP, "what programs have on a GPU, or of a Xen domain, cannot come back");
  }
  if (config_.has && config_.has(request.key)) return Status::error(EEXIST, "this program is here already");
  return {};
}

Status Processes::check_new(const Request& request, const UniqueFd& arena) const {
  if (request.process == 0) return Status::error(EINVAL, "process 0 is the session itself");
  if (find(request.process)) return Status::error(EEXIST, "process {} exists already", request.process);
  if (request.type == VGPU_CTL_RETURN_PROCESS) {
    if (Status status = check_return(request); !status.ok()) return status;
  }
  if (config_.runners_max && usage_page_->taken() >= config_.runners_max()) {
    return Status::error(EAGAIN,
                         "this virtual GPU's memory share is good for {} processes at once: each has a context on the "
                         "GPU",
                         config_.runners_max());
  }
  if (config_.limit && usage_page_->taken() >= config_.limit()) {
    return Status::error(EAGAIN,
                         "this virtual GPU's programs may have {} processes at once; `vgpuctl set` has the limit",
                         config_.limit());
  }
  if (processes_.size() >= config_.processes_max) {
    return Status::error(EAGAIN, "this virtual GPU serves {} processes at most", config_.processes_max);
  }
  if (!arena) return {};
  return config_.direct ? check_arena(arena.get(), config_.arena_bytes)
                        : Status::error(EINVAL, "only direct mode has arenas");
}

void Processes::create(const Request& request, UniqueFd arena, const Answer& answer) {
  Status status;
  if (!wire::work_together(config_.schema, request.create.schema)) {
    status = Status::error(EPROTO, "libcuda.so.1 is of release {}, the host of {}: install the host's guest package",
                           wire::release_of(request.create.schema), wire::release_of(config_.schema));
  } else {
    status = check_new(request, arena);
  }
  if (!status.ok()) {
    if (config_.log->allow()) {
      log::warn("process {} of {} refused: {}", request.process, config_.vgpu, status.message());
    }
    vgpu_ctl_reply reply = make_reply(status.code(), status.message());
    reply.schema = config_.schema;
    return answer(reply, {});
  }
  const auto process = std::make_shared<Process>(this, request, std::move(arena));
  processes_.emplace(request.process, process);
  if (request.type == VGPU_CTL_RETURN_PROCESS) return process->come_back(request, answer);
  process->start(answer);
}

bool Processes::has(const ReturnKey& key) const {
  return std::any_of(processes_.begin(), processes_.end(), [&](const auto& one) { return one.second->key() == key; });
}

void Processes::destroy(const Request& request, const Answer& answer) {
  find(request.process)->end(Runner::Stop::kAsk, [answer] { answer(make_reply(0, ""), {}); });
}

Status Processes::add_ram(Ram ram) {
  const uint32_t id = ram.id;
  if (Status status = ram_.add(std::move(ram)); !status.ok()) return status;
  for (const auto& [number, process] : processes_) process->add_ram(*ram_.find(id));
  return {};
}

void Processes::remove_ram(uint32_t id, std::function<void()> done) {
  ram_.remove(id);
  // Called when the last of the callbacks below is gone, whether it was called or dropped.
  const std::shared_ptr<void> latch(nullptr, [done = std::move(done)](void*) { done(); });
  const auto all = processes_;  // ending one changes the map
  for (const auto& [number, process] : all) process->remove_ram(id, [latch] {});
}

void Processes::end_all(bool forget_ram, std::function<void()> done) {
  if (forget_ram) ram_.clear();
  const std::shared_ptr<void> latch(nullptr, [done = std::move(done)](void*) {
    if (done) done();
  });
  const auto all = processes_;
  for (const auto& [number, process] : all) process->end(Runner::Stop::kKill, [latch] {});
}

std::string Processes::lacks() const {
  for (const auto& [number, process] : processes_) {
    if (std::string words = process->lacks(); !words.empty()) return words;
  }
  return {};
}

std::vector<std::shared_ptr<Process>> Processes::away() const {
  std::vector<std::shared_ptr<Process>> all;
  for (const auto& [number, process] : processes_) {
    if (process->away()) all.push_back(process);
  }
  return all;
}

std::vector<ProcessSlot> Processes::slots() const {
  std::vector<ProcessSlot> all;
  for (const auto& [number, process] : processes_) {
    if (const auto slot = process->slot()) all.push_back(*slot);
  }
  return all;
}

nlohmann::json Processes::status() const {
  auto list = nlohmann::json::array();
  for (const auto& [number, process] : processes_) list.push_back(process->status());
  return list;
}

}  // namespace bandsaw
