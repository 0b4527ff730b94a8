// vgpud's configuration: built-in values, then /etc/bandsaw/vgpud.toml, then BANDSAW_RUN and BANDSAW_STATE.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "backend/control/object_limits.h"
#include "backend/control/sharing.h"
#include "backend/control/vgpu_spec.h"
#include "backend/vgpud/arbiter/arbiter.h"
#include "backend/vgpud/config_reader.h"
#include "backend/vgpud/device.h"
#include "backend/vgpud/placement.h"
#include "memory/base/status.h"

namespace bandsaw {

inline constexpr const char* kConfigFile = "/etc/bandsaw/vgpud.toml";

// How runners cut kernels.
struct SlicesConfig {
  std::optional<bool> enabled;  // not said: on GPUs
  std::string rest;             // as runners read it, but for `enabled`
  bool three_states = false;    // of forecasts: slice::ModelOptions
  bool take_sms = false;        // short work has single SMs made free; else fewer persistent blocks on each
};

// Bounds on what a virtual GPU takes of the host (backend/sandbox/cgroup.h).
struct CgroupConfig {
  std::string mode = "auto";  // "auto": where cgroup v2 can be used; "required": no session without it; "off"
  uint64_t memory = 0;        // bytes for each virtual GPU that has no bound of its own; 0: see host_memory_of()
  uint32_t pids = 16384, cpu_weight = 100;
};

struct Config {
  std::string run, state;  // folders
  // As configured, in this order, one at least; find_devices completes them.
  std::vector<PhysicalDevice> devices = std::vector<PhysicalDevice>(1);
  bool all_gpus = false;  // devices = "all": those that are found when vgpud starts, instead of `devices`
  std::string session_program, runner_program;  // empty: beside vgpud
  std::string log_program;  // beside the session's; it writes their logs. Empty: they have the file, without bounds
  unsigned warm_runners = 1;
  // A virtual GPU's session runs as user and group first_uid + its index (0: as vgpud itself), its runners as
  // first_runner_uid + its index (0: as the session). Neither distributions nor systemd give the defaults' ranges out.
  uint32_t first_uid = 60600, first_runner_uid = 80000;
  std::string sandbox_mode = "auto";  // "auto", "required", "off": of namespaces and roots (backend/sandbox/launcher.h)
  bool sandbox_peers = true;          // runners may open the device files of all GPUs
  std::string direct_mode = "0660", direct_group = "bandsaw";
  std::string vm_mode = "0660", vm_group = "kvm";
  // That libvirt's QEMU runs as: vfio.sock of one that has an owner and is attached to a domain is this user's. Empty:
  // libvirt-qemu or qemu, whichever the host has.
  std::string vm_user;
  std::string control_mode = "0660", control_group = "bandsaw";  // who may look
  std::string admin_group = "bandsaw-admin";                     // who may change, beside root and vgpud's own user
  ArbiterOptions scheduler;
  Placement placement = Placement::kSpread;             // of a virtual GPU that names no device
  PlanningMode planning_mode = PlanningMode::kMps;      // of all devices, until an administrator chooses another
  std::string mps_command = "nvidia-cuda-mps-control";  // a name or a path
  SlicesConfig slices;
  std::string metrics_address;  // of the HTTP server for metrics; empty: there is none
  uint16_t metrics_port = 0;
  std::string traces_address;  // of the OpenTelemetry collector that spans go to; empty: there is none
  uint16_t traces_port = 0;
  CgroupConfig cgroup;
  uint64_t swap_memory = 0;  // bytes of the host's for what virtual GPUs have beyond what is resident, all together
  std::optional<bool> swap_lend;   // those that have no work lend of their reservations to those that swap; none: yes
  bool save_on_gpus = false;       // also what programs have on GPUs; their runners may be followed by others
  uint32_t idle_suspend_s = 0;     // of each virtual GPU that has no time of its own; 0: none leaves its device
  Limits limits = kDefaultLimits;  // of each virtual GPU that has none of its own
  bool lab = false;                // the lab's vgpud: it has the lab's planning modes, and reads [lab]
  MakePlannerSource planners;      // null: production's
};

// Users of a virtual GPU's session and of its runners; 0: vgpud's own. EINVAL: another virtual GPU's session might have
// that of the runners.
struct VgpuUsers {
  uint32_t session = 0, runners = 0;
};
Result<VgpuUsers> users_of(const Config& config, uint32_t index);

// What a virtual GPU may have of the host's memory: its own bound, else the configured one, else 16 GiB beside the
// memory that a software device keeps there, or that does not lie on a GPU.
uint64_t host_memory_of(const VgpuSpec& spec, const PhysicalDevice& device, const CgroupConfig& cgroup);

// How runners of `device` cut kernels, as they read it (backend/runner/slicing/slicing_settings.h).
std::string slices_text(const SlicesConfig& slices, const PhysicalDevice& device);

// Reads the table [lab], given as JSON, into the configuration. EINVAL names the key.
using ReadLab = std::function<Status(const std::string& json, Config* config)>;

// `path` empty: kConfigFile if it is there. EINVAL names file, line and key.
// `read_lab` null: this is production's vgpud, which refuses [lab].
Result<Config> load_config(const std::string& path, const ReadLab& read_lab = nullptr);
Result<Config> parse_config(const std::string& text, const std::string& path, const ReadLab& read_lab = nullptr);

// All keys that there are, in the order of the sample.
std::vector<ConfigKey> config_keys();

}  // namespace bandsaw
