#include "backend/vgpud/config.h"

#include <fmt/ranges.h>
#include <unistd.h>

#include <toml++/toml.h>
#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <sstream>

#include "backend/control/gate_link.h"
#include "backend/control/paths.h"
#include "backend/vgpud/api/shares.h"
#include "backend/vgpud/config_devices.h"
#include "backend/vgpud/config_reader.h"
#include "backend/vgpud/metrics/metrics_server.h"

namespace bandsaw {
namespace {

std::string about_limit(size_t limit) {
  constexpr const char* kOwn = "if it has no limit of its own";
  switch (static_cast<Limited>(limit)) {
    case Limited::kDiskMib:
      return fmt::format("MiB of compiled code that a virtual GPU of a software device keeps on disk, {}", kOwn);
    case Limited::kStallMs:
      return fmt::format(
          "of each second, ms in which a virtual GPU's beginning programs, contexts and faults stop "
          "others on a GPU, {}; 1000: no bound",
          kOwn);
    default:
      return fmt::format("{} that a virtual GPU's programs hold together, {}", kLimitedNames[limit], kOwn);
  }
}

constexpr const char* kEarlier = "";  // what is said of a key of earlier versions

Config defaults() {
  Config config;
  config.run = "/run/bandsaw";
  config.state = "/var/lib/bandsaw";
  return config;
}

void read_scheduler(ConfigReader* reader, Config* config) {
  ArbiterOptions& options = config->scheduler;
  PolicyChoice choice = choice_of(options);
  reader->text("scheduler.policy", &choice.policy,
               "band+, band, credit or fifo; none: compute and copy are not enforced");
  reader->text("scheduler.queues", &choice.queues, "mrq: a queue for each engine; sdq: one for all");
  options.scheduled = choice.policy != "none";
  if (options.scheduled) {
    reader->check("scheduler.policy", check_policy(choice.policy));
    options.policy = choice.policy;
  }
  reader->check("scheduler.queues", check_queues(choice.queues));
  options.model = queue_model(choice);
  reader->time("scheduler.period_ms", 1'000'000, 1, 10'000, &options.period_ns, "over which policies keep the shares");
  reader->time("scheduler.wait_us", 1000, 0, 1'000'000, &options.wait_ns,
               "how long band and band+ keep the engine for a neighbour, at most");
  reader->time("scheduler.quantum_us", 1000, 10, 1'000'000, &options.quantum_ns,
               "short kernels are gathered to time slices of this length");
  reader->time("scheduler.patience_ms", 1'000'000, 1, 600'000, &options.slice_timeout_ns, kEarlier);
  reader->time("scheduler.slice_timeout_ms", 1'000'000, 1, 600'000, &options.slice_timeout_ns,
               "a time slice that holds an engine for longer lets others on");
  int64_t depth = options.depth;
  reader->whole("scheduler.depth", 1, kGateDepthMax, &depth, "time slices in flight on an engine, 1 to 8");
  options.depth = static_cast<int>(depth);
}

void read_planning(ConfigReader* reader, Config* config) {
  std::string mode = to_text(config->planning_mode);
  reader->text("scheduler.corun_mode", &mode, kEarlier);
  reader->text("scheduler.planning", &mode,
               fmt::format("how kernels of MPS virtual GPUs are planned: {}", fmt::join(planning_mode_names(), ", ")));
  const auto parsed = parse_planning_mode(mode);
  reader->check("scheduler.planning", parsed.status());
  if (parsed.ok()) config->planning_mode = parsed.value();
  std::string charge = "heads";
  reader->text(
      "scheduler.charge", &charge,
      "of a moment in which kernels of several MPS virtual GPUs are planned beside each other each is charged; "
      "heads: the same part; blocks: its part of the blocks on the SMs, as its runners say how large they are");
  if (charge != "heads" && charge != "blocks") {
    reader->check("scheduler.charge", Status::error(EINVAL, "'{}'; there are \"heads\" and \"blocks\"", charge));
  }
  config->scheduler.charge_by_blocks = charge == "blocks";
  std::optional<bool> priorities;
  reader->flag("scheduler.process_priorities", &priorities, false,
               "of the programs of one virtual GPU those with the lower nice value go first, wherever programs ask for "
               "time slices; where the GPU's own hold the shares, the others' become short");
  config->scheduler.process_priorities = priorities.value_or(false);
  reader->text("mps.command", &config->mps_command, "a name, looked for in PATH and beside nvidia-smi, or a path");
}

void read_slicing(ConfigReader* reader, Config* config) {
  int64_t threshold_us = 4000, in_flight = 3, timeout_ms = 0, drop_us = -1, take_us = -1;
  std::string variant = "auto";
  std::optional<bool> drop_strict, resize, await_copies, three_states;
  reader->flag("slices.enabled", &config->slices.enabled, true,
               "kernels that take long are launched in grid slices; built in: on GPUs, not on software devices");
  reader->whole("slices.threshold_us", 0, 1'000'000'000, &threshold_us, "of one launch; shorter ones run whole");
  reader->whole("slices.in_flight", 1, kGateDepthMax, &in_flight,
                "grid slices of a launch on the device at a time, 1 to 8: of more, each is smaller");
  reader->whole("slices.timeout_ms", 0, 1'000'000, &timeout_ms,
                "if no grid slice ends for so long, all that is left is launched at once; 0: 20 times what the kernel "
                "takes, at least 1 s");
  reader->whole(
      "slices.drop_us", -1, 1'000'000'000, &drop_us,
      "persistent blocks that are to stop drop a block that takes longer, if it may be run again; -1: they end it");
  reader->flag("slices.drop_strict", &drop_strict, false,
               "blocks are dropped of kernels only that may be run again as a whole; else of others too, until a block "
               "first does what cannot be done again");
  reader->whole("slices.take_us", -1, 1'000'000'000, &take_us,
                "where short work finds no room, persistent blocks leave as many SMs as it needs, chosen by what each "
                "costs, within so long if that can be; -1: they have fewer blocks on each SM");
  config->slices.take_sms = take_us >= 0;
  reader->flag("slices.resize", &resize, false,
               "where a planning mode changes the number of persistent blocks, some leave or more are launched beside "
               "them; else all stop, and are launched again");
  reader->flag("slices.await_copies", &await_copies, false,
               "where a planning mode plans, a kernel behind copies on its stream takes part once they have ended");
  reader->flag("slices.three_states", &three_states, false,
               "where a planning mode forecasts pairs, warps that wait for scattered accesses are told from those that "
               "wait for coalesced ones");
  config->slices.three_states = three_states.value_or(false);
  reader->text("slices.form", &variant, kEarlier);
  reader->text("slices.variant", &variant,
               "sliced: grid slices; persistent: persistent blocks; auto: persistent blocks where a planning mode says "
               "how many lie on an SM, else grid slices");
  if (variant == "slice") variant = "sliced";  // the word of earlier versions
  if (variant != "auto" && variant != "sliced" && variant != "persistent") {
    reader->check("slices.variant",
                  Status::error(EINVAL, "'{}'; there are \"auto\", \"sliced\" and \"persistent\"", variant));
  }
  config->slices.rest = fmt::format("threshold_us={} in_flight={} timeout_ms={} variant={}", threshold_us, in_flight,
                                    timeout_ms, variant);
  if (resize.value_or(false)) config->slices.rest += " resize=1";
  if (await_copies.value_or(false)) config->slices.rest += " await_copies=1";
  if (take_us >= 0) config->slices.rest += fmt::format(" take_us={}", take_us);
  if (drop_us >= 0) config->slices.rest += fmt::format(" drop_us={}", drop_us);
  if (drop_strict.value_or(false)) config->slices.rest += " drop_strict=1";
}

void read_placement(ConfigReader* reader, Config* config) {
  std::string policy = "spread";
  reader->text(
      "placement.policy", &policy,
      "spread: a virtual GPU that names no device goes where most compute share is left; pack: where least is, so "
      "that large ones find room later");
  const auto parsed = parse_placement(policy);
  reader->check("placement.policy", parsed.status());
  if (parsed.ok()) config->placement = parsed.value();
}

void read_cgroup(ConfigReader* reader, Config* config) {
  CgroupConfig& cgroup = config->cgroup;
  reader->text("cgroup.mode", &cgroup.mode, "auto: where cgroup v2 can be used; required: no session without it; off");
  if (cgroup.mode != "auto" && cgroup.mode != "required" && cgroup.mode != "off") {
    reader->check("cgroup.mode",
                  Status::error(EINVAL, "'{}'; there are \"auto\", \"required\" and \"off\"", cgroup.mode));
  }
  reader->size("cgroup.memory", &cgroup.memory,
               "of the host, for each virtual GPU; auto: 16 GiB, and its share on the software device");
  int64_t pids = cgroup.pids, weight = cgroup.cpu_weight;
  reader->whole("cgroup.pids", 64, 1 << 22, &pids, "processes and threads, for each virtual GPU");
  reader->whole("cgroup.cpu_weight", 1, 10000, &weight, "against everything else of the host, 1 to 10000");
  cgroup.pids = static_cast<uint32_t>(pids);
  cgroup.cpu_weight = static_cast<uint32_t>(weight);
}

void read_sandbox(ConfigReader* reader, Config* config) {
  reader->number("session.first_uid", 1 << 30, &config->first_uid,
                 "a virtual GPU's session runs as user first_uid + its index; 0: as vgpud, and its runners too");
  reader->number("session.first_runner_uid", 1 << 30, &config->first_runner_uid,
                 "its runners run as first_runner_uid + its index; 0: as the session");
  reader->text(
      "sandbox.mode", &config->sandbox_mode,
      "auto: sessions and runners have roots, namespaces and users of their own as far as this host allows; required: "
      "no session without; off: users alone");
  std::optional<bool> peers;
  reader->flag(
      "sandbox.peers", &peers, true,
      "on hosts with several GPUs runners may open the device files of all, as programs need that have virtual "
      "GPUs on several; false: of their own GPU alone, and these reach no memory of each other's");
  config->sandbox_peers = peers.value_or(true);
  const std::string& mode = config->sandbox_mode;
  if (mode != "auto" && mode != "required" && mode != "off") {
    reader->check("sandbox.mode", Status::error(EINVAL, "'{}'; there are \"auto\", \"required\" and \"off\"", mode));
  }
}

void read_metrics(ConfigReader* reader, Config* config) {
  std::string listen;
  reader->text("metrics.listen", &listen,
               "127.0.0.1:9495, say: GET /metrics there; systemd's unit needs the drop-in network.conf for it "
               "(/usr/share/bandsaw/systemd); whoever reaches the address may read the names and the "
               "figures; empty: nobody listens");
  if (!listen.empty())
    reader->check("metrics.listen", parse_listen(listen, &config->metrics_address, &config->metrics_port));
  std::string traces;
  reader->text(
      "metrics.traces", &traces,
      "127.0.0.1:4318, say: of an OpenTelemetry collector (OTLP over HTTP), which gets a span for each change; "
      "empty: none");
  if (!traces.empty())
    reader->check("metrics.traces", parse_listen(traces, &config->traces_address, &config->traces_port));
}

// What benches set and nobody else: the lab's vgpud reads it, production's has no use for it.
Status read_lab_table(const toml::table& table, const std::string& path, const ReadLab& read_lab, Config* config) {
  config->lab = read_lab != nullptr;
  const toml::node* lab = table.get("lab");
  if (!lab) return read_lab ? read_lab("{}", config) : Status();
  if (!read_lab) return Status::error(EINVAL, "{}: [lab] is for vgpud-lab, which tools/bench starts", path);
  if (!lab->is_table()) return Status::error(EINVAL, "{}: 'lab' must be a table", path);
  std::ostringstream text;
  text << toml::json_formatter(*lab->as_table());
  const Status status = read_lab(text.str(), config);
  return status.ok() ? status : Status::error(EINVAL, "{}: [lab]: {}", path, status.message());
}

// The table [device]: the one device of earlier versions' configurations, and of hosts that have one.
void read_one_device(ConfigReader* reader, Config* config) {
  PhysicalDevice& device = config->devices.front();
  reader->text("device.name", &device.kind, "soft, or cuda: an NVIDIA GPU through its own driver");
  reader->number("device.index", 1023, &device.index, "which GPU");
  reader->size("device.memory", &device.memory,
               "what is given out; auto: all of a GPU's, half of the machine's for soft");
}

Status check_one_device(const std::string& path, const Config& config) {
  const PhysicalDevice& device = config.devices.front();
  if (device.kind != "soft" && device.kind != "cuda") {
    return Status::error(EINVAL, "{}: 'device.name' is '{}'; there are \"soft\" and \"cuda\"", path, device.kind);
  }
  if (device.kind == "soft" && device.index != 0) {
    return Status::error(EINVAL,
                         "{}: 'device.index' chooses one of several GPUs; for several software devices write devices = "
                         "[\"soft:0\", \"soft:1\"]",
                         path);
  }
  return {};
}

// Of the file's keys, all but [lab]. `keys`: what there are; null: nobody asks.
Status read_table(const toml::table& table, const std::string& path, Config* config,
                  std::vector<ConfigKey>* keys = nullptr) {
  ConfigReader reader(table, path);
  reader.text("run", &config->run, "sockets");
  reader.text("state", &config->state, "registry.json, vgpus/NAME/cache");
  reader.elsewhere("devices", R"(["cuda:0", "cuda:1"])",
                   "all: every GPU that NVML shows, and the MIG instances of those that are cut; or names; or tables, "
                   "for what is to be otherwise than the device is: {name = \"soft:1\", memory = \"16G\", sms = 32}, "
                   "with memory (what is given out; auto: all of a GPU's, and half of the machine's for all software "
                   "devices together, in equal parts), sms (those of a software device, 1 to 132; four keep one core "
                   "busy; without it four for each core), and this device's own policy, queues and planning; built "
                   "in: the one in [device]");
  read_one_device(&reader, config);
  reader.text("session.program", &config->session_program, "bandsaw-session; empty: beside vgpud");
  reader.text("session.runner", &config->runner_program, "bandsaw-runner; empty: beside vgpud");
  reader.number("session.warm_runners", 64, &config->warm_runners, "kept ready ahead for each virtual GPU");
  read_sandbox(&reader, config);
  reader.mode("direct.mode", &config->direct_mode,
              "of direct.sock: who may run programs without a VM; vgpuctl create --direct-mode too");
  reader.text("direct.group", &config->direct_group, "if the host has it");
  reader.mode("vm.mode", &config->vm_mode, "of vfio.sock: must admit the user that QEMU runs as");
  reader.text("vm.group", &config->vm_group, "if the host has it");
  reader.text("vm.user", &config->vm_user,
              "of libvirt's QEMU, for those that have an owner; empty: libvirt-qemu or qemu");
  reader.mode("control.mode", &config->control_mode, "of control.sock: who may look");
  reader.text("control.group", &config->control_group, "if the host has it");
  reader.text("control.admin_group", &config->admin_group,
              "who may change, beside root and vgpud's own user; the log has a line for each change");
  for (size_t i = 0; i < kLimitedCount; ++i) {
    reader.number(fmt::format("limits.{}", kLimitedNames[i]), kLimitMax, &config->limits[i], about_limit(i));
  }
  read_scheduler(&reader, config);
  read_planning(&reader, config);
  read_slicing(&reader, config);
  read_placement(&reader, config);
  read_cgroup(&reader, config);
  reader.size(
      "swap.memory", &config->swap_memory,
      "of the host, for what programs of all virtual GPUs may allocate beyond what is resident on a device; auto: "
      "none");
  reader.flag("swap.lend", &config->swap_lend, true,
              "what is resident of programs that swap and have no work is lent to others that swap and have some");
  std::optional<bool> save_on_gpus;
  reader.flag(
      "save.on_gpus", &save_on_gpus, false,
      "`vgpuctl save` of virtual GPUs on GPUs; runners of sessions that start from then on have their memory at the "
      "same addresses each time");
  config->save_on_gpus = save_on_gpus.value_or(false);
  reader.number("idle.suspend_s", kIdleSuspendMost, &config->idle_suspend_s,
                "seconds without work after which a virtual GPU leaves its device until the next call, if it has no "
                "time of its own; 0: never");
  read_metrics(&reader, config);
  if (keys) *keys = reader.keys();
  if (Status status = reader.finish(); !status.ok()) return status;
  if (!table.contains("devices")) return check_one_device(path, *config);
  if (Status status = read_devices(table, path, &config->devices, &config->all_gpus); !status.ok()) return status;
  for (const PhysicalDevice& device : config->devices) {
    if (config->scheduler.scheduled || (device.policy.empty() && device.queues.empty())) continue;
    return Status::error(EINVAL, "{}: 'devices': '{}' has a policy or queues, but 'scheduler.policy' is \"none\"", path,
                         device.name);
  }
  return {};
}

bool has_lab_mode(const Config& config) {
  return is_lab_mode(config.planning_mode) ||
         std::any_of(config.devices.begin(), config.devices.end(),
                     [](const PhysicalDevice& device) { return device.planning && is_lab_mode(*device.planning); });
}

}  // namespace

Result<VgpuUsers> users_of(const Config& config, uint32_t index) {
  if (config.first_uid == 0 || ::geteuid() != 0) return VgpuUsers{};
  const VgpuUsers users{config.first_uid + index, config.first_runner_uid + index};
  if (config.first_runner_uid == 0) return VgpuUsers{users.session, users.session};
  const uint32_t apart = std::max(users.session, users.runners) - std::min(users.session, users.runners);
  if (index < apart) return users;
  return Status::error(EINVAL,
                       "user {} would be a session's and another's runners' too: set session.first_uid and "
                       "session.first_runner_uid further apart",
                       users.session);
}

uint64_t host_memory_of(const VgpuSpec& spec, const PhysicalDevice& device, const CgroupConfig& cgroup) {
  constexpr uint64_t kAutomatic = uint64_t{16} << 30;
  // On a software device it lay in the host's memory before.
  const uint64_t suspended = device.kind == "soft" ? 0 : spec.suspended_bytes;
  if (spec.host_memory != 0) return spec.host_memory + suspended;
  if (cgroup.memory != 0) return cgroup.memory + suspended;
  return kAutomatic + suspended + (device.kind == "soft" ? spec.memory : most_host_memory(spec));
}

std::string slices_text(const SlicesConfig& slices, const PhysicalDevice& device) {
  return fmt::format("enabled={} {}", slices.enabled.value_or(device.kind != "soft") ? 1 : 0, slices.rest);
}

Result<Config> parse_config(const std::string& text, const std::string& path, const ReadLab& read_lab) {
  Config config = defaults();
  try {
    const toml::table table = toml::parse(text, path);
    if (Status status = read_table(table, path, &config); !status.ok()) return status;
    if (Status status = read_lab_table(table, path, read_lab, &config); !status.ok()) return status;
    if (has_lab_mode(config) && !config.lab) {
      return Status::error(EINVAL, "{}: a planning mode is the lab's; there are {}", path,
                           fmt::join(planning_mode_names(), ", "));
    }
  } catch (const toml::parse_error& error) {
    return Status::error(EINVAL, "{}: {}", place(path, error.source()), error.description());
  }
  if (std::getenv("BANDSAW_RUN")) config.run = run_directory();
  if (std::getenv("BANDSAW_STATE")) config.state = state_directory();
  return config;
}

std::vector<ConfigKey> config_keys() {
  std::vector<ConfigKey> keys;
  Config config = defaults();
  (void)read_table({}, "", &config, &keys);  // all is built in
  return keys;
}

Result<Config> load_config(const std::string& path, const ReadLab& read_lab) {
  const std::string name = path.empty() ? kConfigFile : path;
  if (path.empty() && ::access(name.c_str(), F_OK) != 0) return parse_config("", name, read_lab);
  std::error_code error;
  if (std::filesystem::is_directory(name, error)) return Status::error(EISDIR, "{} is a folder", name);
  std::ifstream file(name);
  std::ostringstream text;
  text << file.rdbuf();
  if (!file) return Status::error(ENOENT, "cannot read the configuration {}", name);
  return parse_config(text.str(), name, read_lab);
}

}  // namespace bandsaw
