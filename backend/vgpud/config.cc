#include "backend/vgpud/config.h"

#include <fmt/ranges.h>
#include <unistd.h>

#include <toml++/toml.h>
#include <algorithm>
#include <cstdlib>
#include <fstream>
#include <iterator>
#include <set>
#include <sstream>

#include "backend/control/gate_link.h"
#include "backend/control/paths.h"
#include "backend/vgpud/api/shares.h"
#include "backend/vgpud/config_devices.h"
#include "backend/vgpud/metrics/metrics_server.h"

namespace bandsaw {
namespace {

class Reader {
 public:
  Reader(const toml::table& root, std::string path) : root_(root), path_(std::move(path)) {}

  void text(const char* key, std::string* out) {
    known_.insert(key);
    const auto node = root_.at_path(key);
    if (!node) return;
    if (auto value = node.value<std::string>()) {
      *out = *value;
    } else {
      complain(key, "must be a text");
    }
  }

  void size(const char* key, uint64_t* out) {
    std::string value;
    const auto node = root_.at_path(key);
    if (node && node.is_integer()) {
      known_.insert(key);
      *out = static_cast<uint64_t>(std::max<int64_t>(0, node.value_or<int64_t>(0)));
      return;
    }
    text(key, &value);
    if (value.empty() || value == "auto") return;
    auto parsed = parse_size(value);
    if (!parsed.ok()) return complain(key, parsed.status().message());
    *out = parsed.value();
  }

  void number(const char* key, int64_t limit, uint32_t* out) {
    known_.insert(key);
    const auto node = root_.at_path(key);
    if (!node) return;
    const auto value = node.value<int64_t>();
    if (!value || *value < 0 || *value > limit) return complain(key, fmt::format("must be 0 to {}", limit));
    *out = static_cast<uint32_t>(*value);
  }

  void flag(const char* key, std::optional<bool>* out) {
    known_.insert(key);
    const auto node = root_.at_path(key);
    if (!node) return;
    if (!node.is_boolean()) return complain(key, "must be true or false");
    *out = *node.value<bool>();
  }

  // A time in a whole number of units of `unit_ns`.
  void time(const char* key, int64_t unit_ns, int64_t least, int64_t limit, int64_t* out) {
    int64_t value = *out / unit_ns;
    whole(key, least, limit, &value);
    *out = value * unit_ns;
  }

  void whole(const char* key, int64_t least, int64_t limit, int64_t* out) {
    known_.insert(key);
    const auto node = root_.at_path(key);
    if (!node) return;
    const auto value = node.is_integer() ? node.value<int64_t>() : std::nullopt;
    if (!value || *value < least || *value > limit) return complain(key, fmt::format("must be {} to {}", least, limit));
    *out = *value;
  }

  void check(const char* key, const Status& status) {
    if (!status.ok()) complain(key, "is wrong: " + status.message());
  }

  void mode(const char* key, std::string* out) {
    text(key, out);
    const bool octal = !out->empty() && out->size() <= 4 &&
                       std::all_of(out->begin(), out->end(), [](char c) { return c >= '0' && c <= '7'; });
    if (!octal) complain(key, "must be an octal mode like \"0660\"");
  }

  // A misspelt key would otherwise be a silent default.
  Status finish() {
    for (const auto& [key, value] : root_) {
      if (key.str() != "lab" && key.str() != "devices") check_known(std::string(key.str()), value);
    }
    return status_;
  }

 private:
  void check_known(const std::string& key, const toml::node& value) {
    if (const toml::table* table = value.as_table()) {
      for (const auto& [inner, node] : *table) check_known(key + "." + std::string(inner.str()), node);
    } else if (!known_.contains(key)) {
      complain(key.c_str(), fmt::format("is not known (line {})", value.source().begin.line));
    }
  }

  void complain(const char* key, const std::string& why) {
    if (status_.ok()) status_ = Status::error(EINVAL, "{}: '{}' {}", path_, key, why);
  }

  const toml::table& root_;
  const std::string path_;
  std::set<std::string> known_;
  Status status_;
};

Config defaults() {
  Config config;
  config.run = "/run/bandsaw";
  config.state = "/var/lib/bandsaw";
  return config;
}

void read_scheduler(Reader* reader, Config* config) {
  ArbiterOptions& options = config->scheduler;
  PolicyChoice choice = choice_of(options);
  reader->text("scheduler.policy", &choice.policy);
  reader->text("scheduler.queues", &choice.queues);
  options.scheduled = choice.policy != "none";
  if (options.scheduled) {
    reader->check("scheduler.policy", check_policy(choice.policy));
    options.policy = choice.policy;
  }
  reader->check("scheduler.queues", check_queues(choice.queues));
  options.model = queue_model(choice);
  reader->time("scheduler.period_ms", 1'000'000, 1, 10'000, &options.period_ns);
  reader->time("scheduler.wait_us", 1000, 0, 1'000'000, &options.wait_ns);
  reader->time("scheduler.quantum_us", 1000, 10, 1'000'000, &options.quantum_ns);
  reader->time("scheduler.patience_ms", 1'000'000, 1, 600'000,
               &options.slice_timeout_ns);  // the key of earlier versions
  reader->time("scheduler.slice_timeout_ms", 1'000'000, 1, 600'000, &options.slice_timeout_ns);
  int64_t depth = options.depth;
  reader->whole("scheduler.depth", 1, kGateDepthMax, &depth);
  options.depth = static_cast<int>(depth);
}

void read_planning(Reader* reader, Config* config) {
  std::string mode = to_text(config->planning_mode);
  reader->text("scheduler.corun_mode", &mode);  // the key of earlier versions
  reader->text("scheduler.planning", &mode);
  const auto parsed = parse_planning_mode(mode);
  reader->check("scheduler.planning", parsed.status());
  if (parsed.ok()) config->planning_mode = parsed.value();
  reader->text("mps.command", &config->mps_command);
}

void read_slicing(Reader* reader, Config* config) {
  int64_t threshold_us = 4000, in_flight = 3, timeout_ms = 0;
  std::string variant = "auto";
  reader->flag("slices.enabled", &config->slices.enabled);
  reader->whole("slices.threshold_us", 0, 1'000'000'000, &threshold_us);
  reader->whole("slices.in_flight", 1, kGateDepthMax, &in_flight);
  reader->whole("slices.timeout_ms", 0, 1'000'000, &timeout_ms);
  reader->text("slices.form", &variant);  // the key of earlier versions, and their value
  reader->text("slices.variant", &variant);
  if (variant == "slice") variant = "sliced";
  if (variant != "auto" && variant != "sliced" && variant != "persistent") {
    reader->check("slices.variant",
                  Status::error(EINVAL, "'{}'; there are \"auto\", \"sliced\" and \"persistent\"", variant));
  }
  config->slices.rest = fmt::format("threshold_us={} in_flight={} timeout_ms={} variant={}", threshold_us, in_flight,
                                    timeout_ms, variant);
}

void read_cgroup(Reader* reader, Config* config) {
  CgroupConfig& cgroup = config->cgroup;
  reader->text("cgroup.mode", &cgroup.mode);
  if (cgroup.mode != "auto" && cgroup.mode != "required" && cgroup.mode != "off") {
    reader->check("cgroup.mode",
                  Status::error(EINVAL, "'{}'; there are \"auto\", \"required\" and \"off\"", cgroup.mode));
  }
  reader->size("cgroup.memory", &cgroup.memory);
  int64_t pids = cgroup.pids, weight = cgroup.cpu_weight;
  reader->whole("cgroup.pids", 64, 1 << 22, &pids);
  reader->whole("cgroup.cpu_weight", 1, 10000, &weight);
  cgroup.pids = static_cast<uint32_t>(pids);
  cgroup.cpu_weight = static_cast<uint32_t>(weight);
}

void read_metrics(Reader* reader, Config* config) {
  std::string listen;
  reader->text("metrics.listen", &listen);
  if (!listen.empty())
    reader->check("metrics.listen", parse_listen(listen, &config->metrics_address, &config->metrics_port));
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
void read_one_device(Reader* reader, Config* config) {
  PhysicalDevice& device = config->devices.front();
  reader->text("device.name", &device.kind);
  reader->number("device.index", 1023, &device.index);
  reader->size("device.memory", &device.memory);
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

Status read_table(const toml::table& table, const std::string& path, Config* config) {
  Reader reader(table, path);
  reader.text("run", &config->run);
  reader.text("state", &config->state);
  read_one_device(&reader, config);
  reader.text("session.program", &config->session_program);
  reader.text("session.runner", &config->runner_program);
  reader.number("session.warm_runners", 64, &config->warm_runners);
  reader.number("session.first_uid", 1 << 30, &config->first_uid);
  reader.mode("direct.mode", &config->direct_mode);
  reader.text("direct.group", &config->direct_group);
  reader.mode("vm.mode", &config->vm_mode);
  reader.text("vm.group", &config->vm_group);
  reader.text("vm.user", &config->vm_user);
  reader.mode("control.mode", &config->control_mode);
  reader.text("control.group", &config->control_group);
  reader.text("control.admin_group", &config->admin_group);
  for (size_t i = 0; i < kLimitedCount; ++i) {
    reader.number(fmt::format("limits.{}", kLimitedNames[i]).c_str(), kLimitMax, &config->limits[i]);
  }
  read_scheduler(&reader, config);
  read_planning(&reader, config);
  read_slicing(&reader, config);
  read_cgroup(&reader, config);
  read_metrics(&reader, config);
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

uint64_t host_memory_of(const VgpuSpec& spec, const PhysicalDevice& device, const CgroupConfig& cgroup) {
  constexpr uint64_t kAutomatic = uint64_t{16} << 30;
  if (spec.host_memory != 0) return spec.host_memory;
  if (cgroup.memory != 0) return cgroup.memory;
  return kAutomatic + (device.kind == "soft" ? spec.memory : 0);
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
    return Status::error(EINVAL, "{}:{}: {}", path, error.source().begin.line, error.description());
  }
  if (std::getenv("BANDSAW_RUN")) config.run = run_directory();
  if (std::getenv("BANDSAW_STATE")) config.state = state_directory();
  return config;
}

Result<Config> load_config(const std::string& path, const ReadLab& read_lab) {
  const std::string name = path.empty() ? kConfigFile : path;
  if (path.empty() && ::access(name.c_str(), F_OK) != 0) return parse_config("", name, read_lab);
  std::ifstream file(name);
  std::ostringstream text;
  text << file.rdbuf();
  if (!file) return Status::error(ENOENT, "cannot read the configuration {}", name);
  return parse_config(text.str(), name, read_lab);
}

}  // namespace bandsaw
