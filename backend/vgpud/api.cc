#include "backend/vgpud/api.h"

#include <unistd.h>

#include <algorithm>

#include "backend/control/paths.h"
#ifdef BANDSAW_WITH_LIBVIRT
#include "hypervisor/libvirt/domain.h"
#endif
#include "memory/base/log.h"

namespace bandsaw {
namespace {

using nlohmann::json;

void send(const HttpServer::Answer& answer, int code, const json& body) {
  answer({.code = code, .body = body.dump(-1, ' ', false, json::error_handler_t::replace) + "\n"});
}

void refuse(const HttpServer::Answer& answer, int code, const std::string& error, const std::string& hint) {
  spdlog::info("refused: {}", error);
  send(answer, code, {{"error", error}, {"hint", hint}});
}

// What kept the registry from being written.
void refuse_storage(const HttpServer::Answer& answer, const Status& status) {
  const bool full = status.code() == ENOSPC || status.code() == EDQUOT || status.code() == EFBIG;
  spdlog::error("{}", status.message());
  send(answer, full ? 507 : 500,
       {{"error", "nothing was changed: " + status.message()},
        {"hint", full ? "make room on the disk that holds the registry, then try again"
                      : "make the registry's folder writable for vgpud, then try again"}});
}

void refuse_shares(const HttpServer::Answer& answer, const Status& status) {
  const bool full = status.code() == ENOSPC;
  refuse(answer, full ? 409 : 400, status.message(),
         full ? "ask for less, or lower the share of another virtual GPU (`vgpuctl list` shows them)"
              : "see `vgpuctl create --help`");
}

bool in_use(const json& view) {
  const json live = view.value("live", json());
  if (!live.is_object()) return false;  // no session runs
  return !live.value("processes", json::array()).empty() || live.value("/vm/connected"_json_pointer, false);
}

}  // namespace

Api::Api(const Config& config, Registry* registry, Supervisor* supervisor, std::function<void()> shut_down)
    : config_(config), registry_(registry), supervisor_(supervisor), shut_down_(std::move(shut_down)) {}

void Api::handle(const HttpRequest& request, Answer answer) {
  const auto& path = request.path;
  const std::string& method = request.method;
  if (path.size() < 2 || path[0] != "v1" || path.size() > 4) {
    return refuse(answer, 404, "no such resource", "resources begin with /v1/status and /v1/vgpus");
  }
  const bool collection = path.size() == 2;
  if (collection && path[1] == "status" && method == "GET") return status(answer);
  if (collection && path[1] == "shutdown" && method == "POST") return shut_down(answer);
  if (collection && path[1] == "vgpus" && method == "GET") return list(answer);
  if (collection && path[1] == "vgpus" && method == "POST") {
    return create(json::parse(request.body, nullptr, false), answer);
  }
  if (collection && (path[1] == "status" || path[1] == "vgpus" || path[1] == "shutdown")) {
    return refuse(answer, 405, method + " is not possible here", "see backend/vgpud/api.h");
  }
  if (collection || path[1] != "vgpus") return refuse(answer, 404, "no such resource", "try /v1/vgpus");
  const VgpuSpec* spec = registry_->find(path[2]);
  if (!spec) return not_found(path[2], answer);
  handle_vgpu(request, VgpuSpec(*spec), answer);
}

void Api::handle_vgpu(const HttpRequest& request, const VgpuSpec& spec, const Answer& answer) {
  const std::string action = request.path.size() == 4 ? request.path[3] : "";
  const std::string& method = request.method;
  if (action.empty() && method == "GET") return show(spec, 200, answer);
  if (action.empty() && method == "PATCH") return change(json::parse(request.body, nullptr, false), spec, answer);
  if (action.empty() && method == "DELETE") return destroy(spec, request.query == "force=1", answer);
  if (action == "attach" && method == "POST") return attach(json::parse(request.body, nullptr, false), spec, answer);
  if (action == "detach" && method == "POST") return detach(spec, answer);
  if (action == "xml" && method == "GET") return xml(spec, answer);
  if (action.empty() || action == "attach" || action == "detach" || action == "xml") {
    return refuse(answer, 405, method + " is not possible here", "see backend/vgpud/api.h");
  }
  refuse(answer, 404, "no such resource", "a virtual GPU has attach, detach and xml");
}

void Api::not_found(const std::string& name, const Answer& answer) const {
  const std::string nearest = nearest_name(name, registry_->names());
  refuse(answer, 404, fmt::format("no virtual GPU '{}'", name.substr(0, 80)),
         nearest.empty() ? "`vgpuctl list` shows all" : fmt::format("did you mean '{}'?", nearest));
}

void Api::status(const Answer& answer) const {
  uint64_t memory = 0;
  uint32_t compute = 0, copy = 0;
  for (const VgpuSpec& spec : registry_->all()) {
    memory += spec.memory;
    compute += spec.compute;
    copy += spec.copy;
  }
  send(answer, 200,
       {{"pid", ::getpid()},
        {"run", config_.run},
        {"state", config_.state},
        {"vgpus", registry_->all().size()},
        {"device",
         {{"id", config_.device.name},
          {"kind", config_.device.kind},
          {"index", config_.device.index},
          {"name", config_.device.model},
          {"uuid", config_.device.uuid},
          {"driver", config_.device.driver},
          {"memory", config_.device.memory},
          {"memory_given", memory},
          {"compute_given", compute},
          {"copy_given", copy}}}});
}

void Api::view(const VgpuSpec& spec, std::function<void(json)> then) {
  json object = to_json(spec);
  object["session"] = supervisor_->describe(spec.name);
  object["sockets"] = {{"vfio", vfio_socket(config_.run, spec.name)},
                       {"direct", direct_socket(config_.run, spec.name)}};
  supervisor_->request(spec.name, {{"op", "status"}},
                       [object = std::move(object), then = std::move(then)](const Result<json>& reply) mutable {
                         object["live"] = reply.ok() ? reply.value() : json();
                         then(std::move(object));
                       });
}

void Api::list(const Answer& answer) {
  const auto views = std::make_shared<json>(json::array());
  // Answers when the last view has come.
  const std::shared_ptr<void> latch(nullptr, [views, answer](void*) {
    std::sort(views->begin(), views->end(), [](const json& a, const json& b) { return a["name"] < b["name"]; });
    send(answer, 200, *views);
  });
  for (const VgpuSpec& spec : registry_->all()) {
    view(spec, [views, latch](json object) { views->push_back(std::move(object)); });
  }
}

void Api::show(const VgpuSpec& spec, int code, const Answer& answer) {
  view(spec, [code, answer](const json& object) { send(answer, code, object); });
}

void Api::create(const json& body, const Answer& answer) {
  if (!body.is_object() || !body.contains("name") || !body["name"].is_string()) {
    return refuse(answer, 400, "the request has no 'name'", "send a JSON object with name and memory");
  }
  VgpuSpec spec;
  json fields = body;
  spec.name = body["name"].get<std::string>();
  fields.erase("name");
  if (fields.contains("device") && fields["device"] != config_.device.name) {
    return refuse(answer, 400, "no device " + fields["device"].dump().substr(0, 80),
                  fmt::format("this host has '{}'", config_.device.name));
  }
  fields.erase("device");
  spec.device = config_.device.name;
  Status status = from_json(fields, false, &spec);
  if (!status.ok()) return refuse(answer, 400, status.message(), "see `vgpuctl create --help`");
  if (registry_->find(spec.name)) {
    return refuse(answer, 409, fmt::format("the name '{}' is taken", spec.name),
                  fmt::format("choose another, or `vgpuctl destroy {}` first", spec.name));
  }
  status = check_shares(spec, registry_->all(), config_.device);
  if (!status.ok()) return refuse_shares(answer, status);
  spec.index = registry_->free_index();
  status = registry_->put(spec);
  if (!status.ok()) return refuse_storage(answer, status);
  supervisor_->add(spec, [this, spec, answer](const Status& ready) {
    if (ready.ok()) return show(spec, 201, answer);
    if (Status undone = registry_->remove(spec.name); !undone.ok()) spdlog::error("{}", undone.message());
    supervisor_->remove(spec.name, [] {});
    refuse(answer, 500, ready.message(), "nothing was created; see the logs of vgpud and of the session");
  });
}

void Api::change(const json& body, const VgpuSpec& spec, const Answer& answer) {
  VgpuSpec changed = spec;
  Status status = from_json(body, false, &changed);
  if (!status.ok()) return refuse(answer, 400, status.message(), "see `vgpuctl set --help`");
  if (changed.direct_mode != spec.direct_mode || changed.direct_group != spec.direct_group) {
    return refuse(answer, 400, "the direct socket's permissions are fixed when it is made",
                  fmt::format("destroy and create '{}' anew", spec.name));
  }
  status = check_shares(changed, registry_->all(), config_.device);
  if (!status.ok()) return refuse_shares(answer, status);
  status = registry_->put(changed);
  if (!status.ok()) return refuse_storage(answer, status);
  supervisor_->update(changed);
  show(changed, 200, answer);
}

void Api::destroy(const VgpuSpec& spec, bool force, const Answer& answer) {
  view(spec, [this, spec, force, answer](const json& object) {
    if (!force && !spec.domain.empty()) {
      return refuse(answer, 409, fmt::format("'{}' is attached to domain '{}'", spec.name, spec.domain),
                    fmt::format("`vgpuctl detach {}` first", spec.name));
    }
    if (!force && in_use(object)) {
      return refuse(answer, 409, fmt::format("'{}' is in use", spec.name),
                    "end its programs or its VM first, or add --force to end them now");
    }
    Status status = registry_->remove(spec.name);
    if (!status.ok()) return refuse_storage(answer, status);
    supervisor_->remove(spec.name, [name = spec.name, answer] {
      send(answer, 200, {{"name", name}, {"destroyed", true}});
    });
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
  show(changed, 200, answer);
}

void Api::detach(const VgpuSpec& spec, const Answer& answer) {
  VgpuSpec changed = spec;
  changed.domain.clear();
  Status status = registry_->put(changed);
  if (!status.ok()) return refuse_storage(answer, status);
  show(changed, 200, answer);
}

void Api::xml(const VgpuSpec& spec, const Answer& answer) const {
#ifdef BANDSAW_WITH_LIBVIRT
  answer({.code = 200,
          .body = libvirt::domain_snippet({.vgpu = spec.name, .socket = vfio_socket(config_.run, spec.name)}),
          .type = "application/xml"});
#else
  refuse(answer, 501, "this vgpud was built without libvirt", "build with libvirt-dev and libxml2-dev installed");
#endif
}

void Api::shut_down(const Answer& answer) {
  spdlog::info("asked to end every session and vgpud");
  supervisor_->remove_all([this, answer] {
    send(answer, 200, {{"ended", true}});
    shut_down_();
  });
}

}  // namespace bandsaw
