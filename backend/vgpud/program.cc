#include "backend/vgpud/program.h"

#include <fmt/ranges.h>
#include <signal.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "backend/control/http_client.h"
#include "backend/control/manual.h"
#include "backend/control/paths.h"
#include "backend/sandbox/cgroup.h"
#include "backend/vgpud/api/api.h"
#include "backend/vgpud/control_listener.h"
#include "backend/vgpud/daemon.h"
#include "backend/vgpud/metrics/metrics_server.h"
#include "backend/vgpud/probe.h"
#include "memory/base/log.h"
#include "memory/base/version.h"

namespace {

// The daemon that runs ends its sessions and itself.
int stop_sessions(const bandsaw::Config& config) {
  const auto reply = bandsaw::http_request(bandsaw::control_socket(config.run), "POST", "/v1/shutdown", "{}",
                                           std::chrono::seconds(30));
  if (reply.ok() && reply.value().code == 200) return 0;
  bandsaw::log::error("no vgpud ended its sessions: {}", reply.ok() ? reply.value().body : reply.status().message());
  return 1;
}

// In a container not every number is a user.
bool is_user(uint32_t uid) {
  std::ifstream map("/proc/self/uid_map");
  for (uint64_t first, outside, count; map >> first >> outside >> count;) {
    if (uid >= first && uid - first < count) return true;
  }
  return false;
}

void forget_unmapped_users(bandsaw::Config* config) {
  if (::geteuid() != 0 || config->first_uid == 0 || config->first_runner_uid == 0) return;
  if (is_user(config->first_runner_uid)) return;
  bandsaw::log::warn("there is no user {} here: runners run as their session ('session.first_runner_uid')",
                     config->first_runner_uid);
  config->first_runner_uid = 0;
}

// Sessions and runners inherit the library path that is left here.
bandsaw::Status prepare_devices(bandsaw::Config* config) {
  if (const char* path = std::getenv("LD_LIBRARY_PATH")) {
    ::setenv("LD_LIBRARY_PATH", bandsaw::without_own_driver(path).c_str(), 1);
  }
  // The probe, and runners, are no clients of an MPS daemon that the host may have for all.
  ::setenv("CUDA_MPS_PIPE_DIRECTORY", bandsaw::kNoMpsDirectory, 1);
  if (config->all_gpus) {
    auto gpus = bandsaw::list_gpus(config->runner_program, bandsaw::kProbeTimeout);
    if (!gpus.ok()) return gpus.status();
    config->devices = std::move(gpus.value());
  }
  forget_unmapped_users(config);
  const uint32_t first =
      config->first_uid != 0 && config->first_runner_uid != 0 ? config->first_runner_uid : config->first_uid;
  const uid_t uid = ::geteuid() == 0 ? first : 0;
  return bandsaw::find_devices(config->runner_program, uid, bandsaw::kProbeTimeout, &config->devices);
}

// Empty: there is none. Where the configuration names a session's program, that of its log lies beside it.
std::string find_log_program(const std::string& session_program) {
  if (std::string found = bandsaw::find_program("bandsaw-log", "session"); !found.empty()) return found;
  const std::string beside = std::filesystem::path(session_program).replace_filename("bandsaw-log").string();
  return ::access(beside.c_str(), X_OK) == 0 ? beside : std::string();
}

// The configuration, if what it needs is there too.
bandsaw::Result<bandsaw::Config> read_config(const std::string& path, const bandsaw::ReadLab& read_lab) {
  auto config = bandsaw::load_config(path, read_lab);
  if (!config.ok()) return config;
  bandsaw::Status status = bandsaw::check_network(config.value().metrics_address, config.value().metrics_port);
  if (status.ok()) status = bandsaw::check_network(config.value().traces_address, config.value().traces_port);
  if (!status.ok()) return status;
  return config;
}

// The same process, as it was started. It finds its sessions as one that was started anew does.
int begin_anew(char** argv) {
  bandsaw::close_the_rest();
  ::execv("/proc/self/exe", argv);
  bandsaw::log::error("vgpud cannot begin anew: {}", std::strerror(errno));
  return 1;
}

// vgpud(8) and vgpud.toml(5).
int write_manuals(const CLI::App& app, const std::string& folder) {
  std::vector<std::pair<std::string, std::string>> keys;
  for (const bandsaw::ConfigKey& key : bandsaw::config_keys()) {
    if (!key.about.empty()) keys.emplace_back(fmt::format("{} = {}", key.key, key.value), key.about);
  }
  const bandsaw::ManualPage daemon = {
      "vgpud", 8, "keeps this host's virtual GPUs",
      bandsaw::manual_of(app, "vgpud") +
          bandsaw::manual_list("files", {{bandsaw::kConfigFile, "the configuration, see vgpud.toml(5)"},
                                         {"/run/bandsaw", "sockets, and one folder for each virtual GPU"},
                                         {"/var/lib/bandsaw", "the list of virtual GPUs, and their caches"}}) +
          bandsaw::manual_section(
              "exit status", "0: ended. 1: it could not begin. 2: the command line or the configuration is wrong.") +
          bandsaw::manual_section("see also", "vgpuctl(1), vgpud.toml(5)")};
  const bandsaw::ManualPage file = {
      "vgpud.toml", 5, "configuration of vgpud",
      bandsaw::manual_section(
          "description",
          "Written as TOML has it. Each key is optional; an unknown one is an error, and vgpud says "
          "in which line. The built-in value is shown with each. `vgpud --print-config` prints a "
          "sample. BANDSAW_RUN and BANDSAW_STATE in the environment win over run and state.") +
          bandsaw::manual_list("keys", keys) + bandsaw::manual_section("see also", "vgpud(8), vgpuctl(1)")};
  for (const bandsaw::ManualPage& page : {daemon, file}) {
    if (bandsaw::write_manual(folder, page)) continue;
    fmt::print(stderr, "vgpud: cannot write {}({}) to {}: {}\n", page.name, page.section, folder, std::strerror(errno));
    return 1;
  }
  return 0;
}

}  // namespace

int bandsaw::run_vgpud(int argc, char** argv, const ReadLab& read_lab) {
  std::string path;
  std::string manual;
  bool stop = false, print_routes = false, release_cgroups = false, print_config = false, check_config = false;
  CLI::App app(
      "Keeps this host's virtual GPUs. SIGTERM ends it alone: sessions, and what runs on them, go on. SIGHUP makes it "
      "read "
      "its configuration; one that is wrong changes nothing.",
      "vgpud");
  app.add_option("--config", path, std::string("configuration file (default ") + bandsaw::kConfigFile + " if there)");
  app.add_flag("--check-config", check_config,
               "say what is wrong in the configuration, and where, and do nothing else");
  app.add_flag("--stop-sessions", stop, "tell the vgpud that runs to end every session and itself");
  app.add_flag("--print-routes", print_routes, "print the methods and paths of the control API");
  app.add_flag("--print-config", print_config, "print a sample of the configuration: all keys as they are built in");
  app.add_option("--write-manual", manual, "write the manual pages of vgpud to this folder")->group("");
  app.add_flag("--release-cgroups", release_cgroups,
               "for the unit's ExecStartPre: make room for vgpud in a cgroup whose sessions have lived on");
  app.set_version_flag("--version", std::string("vgpud ") + bandsaw::kBandsawVersion);
  try {
    app.parse(argc, argv);
  } catch (const CLI::Success& help) {
    return app.exit(help);
  } catch (const CLI::ParseError& error) {
    fmt::print(stderr, "vgpud: {}\n  see `vgpud --help`\n", error.what());
    return 2;
  }
  if (print_routes) {
    fmt::print("{}\n", fmt::join(bandsaw::Api::routes(), "\n"));
    return 0;
  }

  if (print_config) {
    fmt::print("{}", bandsaw::sample_config(bandsaw::config_keys()));
    return 0;
  }
  if (!manual.empty()) return write_manuals(app, manual);

  ::signal(SIGHUP, SIG_IGN);  // until the daemon's loop takes it
  bandsaw::hide_handed_over();
  bandsaw::start_log("vgpud");
  if (release_cgroups) {
    bandsaw::release_controllers();
    return 0;
  }
  auto config = read_config(path, read_lab);
  if (!config.ok()) {
    bandsaw::log::error("{}", config.status().message());
    return 2;
  }
  if (check_config) return 0;
  if (stop) return stop_sessions(config.value());
  if (config.value().session_program.empty()) {
    config.value().session_program = bandsaw::find_program("bandsaw-session", "session");
  }
  if (config.value().runner_program.empty()) {
    config.value().runner_program = bandsaw::find_runner();
  }
  config.value().log_program = find_log_program(config.value().session_program);
  if (config.value().session_program.empty()) {
    bandsaw::log::error(
        "bandsaw-session is not beside vgpud; set BANDSAW_LIBEXEC or session.program in the configuration");
    return 1;
  }
  if (config.value().log_program.empty()) {
    bandsaw::log::error(
        "bandsaw-log, which writes the logs of sessions, is neither beside vgpud nor beside bandsaw-session; set "
        "BANDSAW_LIBEXEC");
    return 1;
  }
  if (config.value().runner_program.empty()) {
    bandsaw::log::error("there is no runner: {}; or set BANDSAW_LIBEXEC or session.runner in the configuration",
                        bandsaw::kRunnerPackages);
    return 1;
  }
  if (bandsaw::Status status = prepare_devices(&config.value()); !status.ok()) {
    bandsaw::log::error("{}", status.message());
    return 1;
  }
  const auto end =
      bandsaw::run_daemon(config.value(), [&path, &read_lab] { return read_config(path, read_lab).status(); });
  if (!end.ok()) {
    bandsaw::log::error("{}", end.status().message());
    return 1;
  }
  return end.value() == bandsaw::DaemonEnd::kReload ? begin_anew(argv) : 0;
}
