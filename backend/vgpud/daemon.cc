#include "backend/vgpud/daemon.h"

#include <fcntl.h>
#include <signal.h>
#include <sys/socket.h>
#include <sys/stat.h>

#include <cerrno>
#include <cstring>
#include <ctime>
#include <filesystem>
#include <optional>

#include "backend/control/event_ptr.h"
#include "backend/control/paths.h"
#include "backend/vgpud/api/api.h"
#include "backend/vgpud/api/shares.h"
#include "backend/vgpud/arbiter/plan_options.h"
#include "backend/vgpud/control_listener.h"
#include "backend/vgpud/gpu.h"
#include "backend/vgpud/gpu_watch.h"
#include "backend/vgpud/history.h"
#include "backend/vgpud/lock.h"
#include "backend/vgpud/metrics/metrics.h"
#include "backend/vgpud/metrics/metrics_server.h"
#include "backend/vgpud/metrics/span_exporter.h"
#include "backend/vgpud/notify.h"
#include "backend/vgpud/owners.h"
#include "backend/vgpud/sessions/session_supervisor.h"
#include "memory/base/log.h"

namespace bandsaw {
namespace {

const char* whose_folders(int error) {
  const bool others = ::geteuid() != 0 && (error == EACCES || error == EPERM);
  return others ? "; become root, or name folders of yours by BANDSAW_RUN and BANDSAW_STATE" : "";
}

Status make_folders(const Config& config) {
  for (const std::string& folder : {config.run, config.state, config.state + "/vgpus"}) {
    std::error_code error;
    std::filesystem::create_directories(folder, error);
    if (error) {
      return Status::error(error.value(), "cannot make {}: {}{}", folder, error.message(),
                           whose_folders(error.value()));
    }
  }
  // Sessions reach their own folders there by another user.
  const std::string vgpus = config.state + "/vgpus";
  if (::chmod(vgpus.c_str(), 0755) < 0) {
    const int code = errno;
    return Status::error(code, "cannot set the permissions of {}: {}{}", vgpus, std::strerror(code),
                         whose_folders(code));
  }
  return {};
}

// The name goes last of all but the lock: whoever does not find it may start another vgpud.
struct SocketName {
  std::string path;
  ~SocketName() {
    if (!path.empty()) ::unlink(path.c_str());
  }
};

EventPtr on_signal(event_base* base, int number) {
  EventPtr result(event_new(
      base, number, EV_SIGNAL | EV_PERSIST,
      [](evutil_socket_t signal, short, void* loop) {
        log::info("signal {}: vgpud ends, its sessions go on", signal);
        event_base_loopbreak(static_cast<event_base*>(loop));
      },
      base));
  event_add(result.get(), nullptr);
  return result;
}

// Ends the loop for vgpud to begin anew, unless the configuration is wrong.
struct Reload {
  event_base* base;
  std::function<Status()> check_config;
  HttpServer* server = nullptr;
  bool wanted = false;

  void take() {
    if (Status status = check_config(); !status.ok()) {
      return log::error("SIGHUP: the configuration is wrong, and vgpud goes on with the one it has: {}",
                        status.message());
    }
    log::info("SIGHUP: vgpud begins anew with the configuration; its sessions go on");
    wanted = true;
    if (server) server->accept_no_more();
    constexpr timeval kSoon{0, 50000};  // answers leave first
    event_base_loopexit(base, &kSoon);
  }
};

EventPtr on_hangup(Reload* reload) {
  EventPtr result(event_new(
      reload->base, SIGHUP, EV_SIGNAL | EV_PERSIST,
      [](evutil_socket_t, short, void* self) { static_cast<Reload*>(self)->take(); }, reload));
  event_add(result.get(), nullptr);
  return result;
}

Result<Gpus> make_gpus(const Config& config, const Registry& registry) {
  std::vector<Gpu> gpus;
  for (const PhysicalDevice& device : config.devices) {
    ArbiterOptions options = own_options(effective_options(config.scheduler, registry.choice()), device);
    options.plan = plan_options(config, device);
    if (!options.scheduled) options.policy = "fifo";  // of those whose kernels are planned
    auto arbiter = Arbiter::start(options);
    if (!arbiter.ok()) return arbiter.status();
    gpus.push_back({device, std::move(arbiter.value())});
  }
  return Gpus(std::move(gpus));
}

PlanningMode planning_mode_of(const Config& config, const Registry& registry) {
  const PlanningMode mode = effective_planning_mode(config.planning_mode, registry.planning_mode());
  if (config.lab || !is_lab_mode(mode)) return mode;
  log::warn("the planning mode '{}', which was stored, is the lab's: '{}' is in force", to_text(mode),
            to_text(config.planning_mode));
  return config.planning_mode;
}

void start_all(const Config& config, const Registry& registry, const Gpus& gpus, SessionManager* session_manager) {
  for (const VgpuSpec& spec : registry.all()) {
    const Gpu* gpu = gpus.of(spec);
    if (!gpu) {
      log::warn("'{}' belongs to device '{}', and this vgpud has {}: it is not started", spec.name, spec.device,
                gpus.names());
      continue;
    }
    add_to_arbiter(*gpu, spec, registry.all());
    session_manager->add(spec, nullptr);
  }
  tell_memory(gpus, registry.all(), config.swap_memory, config.swap_lend.value_or(true));
}

// Null: the configuration wants none.
Result<std::unique_ptr<MetricsServer>> serve_metrics(event_base* base, const Config& config, Api* api) {
  if (config.metrics_address.empty()) return std::unique_ptr<MetricsServer>();
  auto listener = listen_tcp(config.metrics_address, config.metrics_port);
  if (!listener.ok()) return listener.status();
  log::info("metrics: http://{}:{}/metrics", config.metrics_address, config.metrics_port);
  return std::make_unique<MetricsServer>(
      base, std::move(listener.value()), [api](std::function<void(std::string)> done) {
        api->collect([done = std::move(done)](const nlohmann::json& status, const nlohmann::json& vgpus) {
          done(render_metrics(status, vgpus));
        });
      });
}

constexpr int kHistorySeconds = 30;     // between two looks
constexpr unsigned kHistoryTicks = 10;  // looks between two times of writing down

// Notes what every virtual GPU uses, and now and then writes it down.
class HistoryTimer {
 public:
  HistoryTimer(event_base* base, Api* api, History* history) : api_(api), history_(history) {
    timer_.reset(event_new(
        base, -1, EV_PERSIST, [](evutil_socket_t, short, void* self) { static_cast<HistoryTimer*>(self)->tick(); },
        this));
    const timeval every{kHistorySeconds, 0};
    event_add(timer_.get(), &every);
    tick();
  }
  ~HistoryTimer() { save(); }

 private:
  void tick() {
    api_->note_all();
    if (++ticks_ % kHistoryTicks == 0) save();
  }
  void save() {
    if (Status status = history_->save(::time(nullptr)); !status.ok()) log::warn("{}", status.message());
  }

  Api* api_;
  History* history_;
  EventPtr timer_;
  unsigned ticks_ = 0;
};

}  // namespace

Result<DaemonEnd> run_daemon(const Config& config, std::function<Status()> check_config) {
  ::signal(SIGPIPE, SIG_IGN);
  if (Status status = make_folders(config); !status.ok()) return status;
  auto lock = take_lock(config.run + "/vgpud.pid");
  if (!lock.ok()) return lock.status();
  auto registry = Registry::open(config.state);
  if (!registry.ok()) return registry.status();
  registry.value().settle(config.devices);
  auto listener = listen_control(config);
  if (!listener.ok()) return listener.status();
  UniqueFd kept(::fcntl(listener.value().get(), F_DUPFD_CLOEXEC, STDERR_FILENO + 1));
  SocketName socket_name{control_socket(config.run)};
  if (::geteuid() == 0) warn_of_missing(config);

  const BasePtr base(event_base_new());
  if (!base) return Status::error(ENOMEM, "cannot make an event loop");
  const EventPtr terminate = on_signal(base.get(), SIGTERM), interrupt = on_signal(base.get(), SIGINT);
  Reload reload{base.get(), std::move(check_config)};
  const EventPtr hangup = on_hangup(&reload);
  auto gpus = make_gpus(config, registry.value());
  if (!gpus.ok()) return gpus.status();
  SessionManager session_manager(base.get(), config, gpus.value());
  session_manager.set_segments_of([&registry](const VgpuSpec& spec) {
    return segments_for(spec, registry.value().segments(), registry.value().all());
  });
  History history = History::open(config.state);
  Api api(config, &registry.value(), &session_manager, &gpus.value(), [&base] {
    const timeval soon{0, 50000};  // the answer leaves first
    event_base_loopexit(base.get(), &soon);
  });
  start_all(config, registry.value(), gpus.value(), &session_manager);
  const PlanningMode mode = planning_mode_of(config, registry.value());
  session_manager.set_planning_mode(mode);
  set_planning_mode(gpus.value(), mode);
  session_manager.review();
  GpuWatch watch(base.get(), config.runner_program, &gpus.value(),
                 [&session_manager, &gpus, &config](const std::string& device) {
                   const Gpu& gpu = *gpus.value().find(device);
                   gpu.arbiter->set_plan_sms(plan_options(config, gpu.device).gpu.sms);  // what it says once it is back
                   session_manager.device_changed(device);
                 });
  session_manager.watch_runners([&watch](const std::string& device, const std::string& vgpu, const std::string& why) {
    watch.suspect(device, fmt::format("runners of '{}' fail: {}", vgpu, why));
  });
  const auto metrics = serve_metrics(base.get(), config, &api);
  if (!metrics.ok()) return metrics.status();
  api.set_history(&history);
  const HistoryTimer history_timer(base.get(), &api, &history);
  HttpServer::Handler handler = [&api](const HttpRequest& request, HttpServer::Answer answer) {
    api.handle(request, std::move(answer));
  };
  std::optional<SpanExporter> spans;
  if (!config.traces_address.empty()) {
    spans.emplace(base.get(), config.traces_address, config.traces_port);
    handler = spans->traced(std::move(handler));
  }
  HttpServer server(base.get(), std::move(listener.value()), std::move(handler));
  reload.server = &server;
  log::info("vgpud is ready: {}, {} virtual GPUs", control_socket(config.run), registry.value().all().size());
  for (const Gpu& gpu : gpus.value().all()) {
    log::info("device '{}' ({}) with {}", gpu.device.name, gpu.device.model, format_size(gpu.device.memory));
  }
  notify_supervisor("READY=1");
  event_base_dispatch(base.get());
  if (!reload.wanted) return DaemonEnd::kStopped;
  socket_name.path.clear();  // who asks meanwhile waits
  hand_over(std::move(kept));
  return DaemonEnd::kReload;
}

}  // namespace bandsaw
