// The resources of vgpud's control API:
//
//   GET    /v1/status                     the daemon, the device, what is given out
//   POST   /v1/shutdown                   ends every session, then vgpud
//   GET    /v1/vgpus                      all virtual GPUs
//   POST   /v1/vgpus                      {name, memory, [compute, copy, device, direct_mode, direct_group]} -> 201
//   GET    /v1/vgpus/NAME                 one, with what its session reports
//   PATCH  /v1/vgpus/NAME                 {memory | compute | copy}
//   DELETE /v1/vgpus/NAME[?force=1]
//   POST   /v1/vgpus/NAME/attach          {domain}: records it
//   POST   /v1/vgpus/NAME/detach          forgets it
//   GET    /v1/vgpus/NAME/xml             the snippet for a libvirt domain
//
// A refusal is {"error": what was wrong, "hint": what to do} with 400 (bad request), 404 (no such), 409 (name taken, in
// use, shares do not fit), 507 (disk full) or 500.
#pragma once

#include <functional>
#include <nlohmann/json.hpp>

#include "backend/vgpud/config.h"
#include "backend/vgpud/http_server.h"
#include "backend/vgpud/registry.h"
#include "backend/vgpud/supervisor.h"

namespace bandsaw {

class Api {
 public:
  // All outlive it. `shut_down` is called after the answer to a shutdown was sent.
  Api(const Config& config, Registry* registry, Supervisor* supervisor, std::function<void()> shut_down);
  void handle(const HttpRequest& request, HttpServer::Answer answer);

 private:
  using Answer = HttpServer::Answer;
  void handle_vgpu(const HttpRequest& request, const VgpuSpec& spec, const Answer& answer);
  void status(const Answer& answer) const;
  void list(const Answer& answer);
  void show(const VgpuSpec& spec, int code, const Answer& answer);
  void create(const nlohmann::json& body, const Answer& answer);
  void change(const nlohmann::json& body, const VgpuSpec& spec, const Answer& answer);
  void destroy(const VgpuSpec& spec, bool force, const Answer& answer);
  void attach(const nlohmann::json& body, const VgpuSpec& spec, const Answer& answer);
  void detach(const VgpuSpec& spec, const Answer& answer);
  void xml(const VgpuSpec& spec, const Answer& answer) const;
  void shut_down(const Answer& answer);
  // Calls `then` with the view of a virtual GPU: its spec and what its session says now.
  void view(const VgpuSpec& spec, std::function<void(nlohmann::json)> then);
  void not_found(const std::string& name, const Answer& answer) const;

  const Config& config_;
  Registry* registry_;
  Supervisor* supervisor_;
  std::function<void()> shut_down_;
};

}  // namespace bandsaw
