#include "tools/vgpuctl/host_checks.h"

#include <fmt/core.h>

#include <cstdlib>
#include <nlohmann/json.hpp>

#include "backend/control/paths.h"

namespace bandsaw::ctl {
namespace {

using nlohmann::json;

constexpr int kQemuMajor = 10, kQemuMinor = 1;  // has vfio-user-pci
constexpr int kDriverMajor = 580;
constexpr const char* kQemu = "qemu-system-x86_64";

// The first "MAJOR.MINOR" in a text.
struct Release {
  int major = 0, minor = 0;
};

std::optional<Release> first_release(const std::string& text) {
  for (size_t at = text.find_first_of("0123456789"); at != std::string::npos;
       at = text.find_first_of("0123456789", at + 1)) {
    char* end = nullptr;
    const long major = std::strtol(text.c_str() + at, &end, 10);
    if (*end == '.' && end[1] >= '0' && end[1] <= '9')
      return Release{static_cast<int>(major), static_cast<int>(std::strtol(end + 1, nullptr, 10))};
    at = static_cast<size_t>(end - text.c_str()) - 1;
  }
  return std::nullopt;
}

Finding daemon(const HostFacts& host, const std::optional<std::string>& status) {
  if (!status && !host.has_runner()) {
    return {Verdict::kBad, "vgpud", "nobody answers, and no runner is beside this vgpuctl",
            std::string("install one, and it starts: ") + kRunnerPackages};
  }
  if (!status) {
    return {Verdict::kBad, "vgpud", "nobody answers, or not to you",
            "`systemctl start vgpud`, and `journalctl -u vgpud` if it ends; you need the group bandsaw to look"};
  }
  return {Verdict::kGood, "vgpud", "runs", ""};
}

void devices(const std::optional<std::string>& status, std::vector<Finding>* findings) {
  const json content = json::parse(status.value_or("{}"), nullptr, false);
  if (!content.is_object() || !content.contains("devices")) return;
  for (const json& device : content["devices"]) {
    const std::string what = "device " + device.value("id", "");
    if (const std::string lost = device.value("lost", ""); !lost.empty()) {
      findings->push_back({Verdict::kBad, what, "lost: " + lost, "`dmesg | grep Xid`; then restart vgpud"});
      continue;
    }
    const json compute = device.value("compute", json::object());
    const bool soft = device.value("kind", "") == "soft";
    if (!soft && compute.is_object() && compute.value("by", "") == "gates") {
      findings->push_back({Verdict::kNote, what, "shares are held by gates: " + compute.value("why", ""),
                           "kernels that nothing can cut may hold the GPU for their whole length"});
    } else {
      const bool progress = compute.is_object() && compute.value("by", "") == "progress";
      findings->push_back({Verdict::kGood, what,
                           soft       ? "runs kernels on the CPU"
                           : progress ? "shares by progress (mps)"
                                      : "shares by its time slices",
                           ""});
    }
  }
}

Finding kvm(const HostFacts& host) {
  if (!host.exists("/dev/kvm")) {
    return {Verdict::kNote, "KVM", "no /dev/kvm",
            "switch virtualisation on in the firmware, `modprobe kvm_intel` or kvm_amd; without it VMs are emulated, "
            "and slow"};
  }
  if (!host.opens("/dev/kvm"))
    return {Verdict::kNote, "KVM", "/dev/kvm cannot be opened", "QEMU's user needs the group kvm; `dmesg | grep kvm`"};
  return {Verdict::kGood, "KVM", "/dev/kvm", ""};
}

Finding qemu(const HostFacts& host) {
  const auto said = host.run({kQemu, "--version"});
  const std::string install = "install QEMU 10.1 or newer (Debian 13: from backports); direct mode needs none";
  if (!said) return {Verdict::kNote, "QEMU", fmt::format("no {}", kQemu), install};
  const auto release = first_release(*said);
  if (!release) return {Verdict::kNote, "QEMU", "a version that cannot be read", install};
  const std::string found = fmt::format("{}.{}", release->major, release->minor);
  if (release->major < kQemuMajor || (release->major == kQemuMajor && release->minor < kQemuMinor))
    return {Verdict::kNote, "QEMU", found + ", which has no vfio-user-pci", install};
  const auto device = host.run({kQemu, "-device", "vfio-user-pci,help"});
  if (!device) return {Verdict::kNote, "QEMU", found + ", built without vfio-user-pci", install};
  return {Verdict::kGood, "QEMU", found + ", with vfio-user-pci", ""};
}

Finding libvirt(const HostFacts& host) {
  const auto problem = host.libvirt_problem();
  if (!problem) return {Verdict::kGood, "libvirt", "answers", ""};
  return {Verdict::kNote, "libvirt", *problem,
          "`systemctl start libvirtd` (or virtqemud); without it paste what `vgpuctl xml` prints"};
}

// Of QEMU: who opens vfio.sock.
Finding qemu_user(const HostFacts& host) {
  for (const char* user : {"libvirt-qemu", "qemu"}) {
    if (!host.has_user(user)) continue;
    if (host.is_member(user, "kvm")) return {Verdict::kGood, "QEMU's user", fmt::format("{} in kvm", user), ""};
    return {Verdict::kBad, "QEMU's user", fmt::format("{} is not in the group kvm", user),
            fmt::format("`adduser {} kvm`, or set [vm] group in vgpud.toml to a group of its own", user)};
  }
  return {Verdict::kNote, "QEMU's user", "neither libvirt-qemu nor qemu",
          "whoever starts QEMU needs the group of vfio.sock, [vm] in vgpud.toml"};
}

Finding groups(const HostFacts& host) {
  std::string missing;
  for (const char* group : {"bandsaw", "bandsaw-admin"}) {
    if (!host.has_group(group)) missing += (missing.empty() ? "" : ", ") + std::string(group);
  }
  if (missing.empty()) return {Verdict::kGood, "groups", "bandsaw (may look), bandsaw-admin (may change)", ""};
  return {Verdict::kNote, "groups", "missing: " + missing,
          "`addgroup --system NAME`, then restart vgpud; until then only root may use vgpuctl"};
}

Finding driver(const HostFacts& host) {
  const auto version = host.read("/proc/driver/nvidia/version");
  if (!version) {
    return {Verdict::kNote, "NVIDIA driver", "none is loaded",
            "install driver 580 or newer; without it there are software devices only"};
  }
  const size_t module = version->find("Module");
  const auto release = first_release(version->substr(module == std::string::npos ? 0 : module));
  const std::string found = release ? fmt::format("{}.{:02}", release->major, release->minor) : "unknown";
  if (release && release->major >= kDriverMajor) return {Verdict::kGood, "NVIDIA driver", found, ""};
  return {Verdict::kBad, "NVIDIA driver", found, "install driver 580 or newer (CUDA 13.0)"};
}

Finding mps(const HostFacts& host) {
  if (host.run({"sh", "-c", "command -v nvidia-cuda-mps-control"}))
    return {Verdict::kGood, "MPS", "nvidia-cuda-mps-control", ""};
  return {Verdict::kNote, "MPS", "no nvidia-cuda-mps-control in PATH",
          "install it with the driver (Debian: nvidia-cuda-mps), or name it in [mps] command; time-sliced virtual GPUs "
          "do not need it"};
}

Finding hmm(const HostFacts& host) {
  const auto off = host.read("/sys/module/nvidia_uvm/parameters/uvm_disable_hmm");
  if (!off) return {Verdict::kNote, "HMM", "nvidia_uvm is not loaded", "`modprobe nvidia-uvm uvm_disable_hmm=1`"};
  if (*off == "Y" || *off == "1") return {Verdict::kGood, "HMM", "off", ""};
  return {Verdict::kNote, "HMM", "on, where kernel and GPU have it: runners refuse such a GPU",
          "`options nvidia-uvm uvm_disable_hmm=1` in /etc/modprobe.d, and load the module anew"};
}

Finding cgroup(const HostFacts& host) {
  if (host.exists("/sys/fs/cgroup/cgroup.controllers")) return {Verdict::kGood, "cgroups", "version 2", ""};
  return {Verdict::kNote, "cgroups", "no version 2 at /sys/fs/cgroup",
          "boot with systemd.unified_cgroup_hierarchy=1; without it what a virtual GPU takes of the host is bounded by "
          "limits of each process only"};
}

constexpr const char* kSocketsLine = "/run/bandsaw/*/vfio*.sock rw,";

// Modules that forbid QEMU to open a socket below /run/bandsaw.
Finding confinement(const HostFacts& host) {
  if (const auto enforcing = host.read("/sys/fs/selinux/enforce"); enforcing && *enforcing == "1") {
    return {Verdict::kNote, "SELinux", "enforces",
            "QEMU (svirt_t) must be allowed to connect to RUN/*/vfio*.sock: `ausearch -m avc` names what is missing"};
  }
  const auto apparmor = host.read("/sys/module/apparmor/parameters/enabled");
  if (!apparmor || *apparmor != "Y") return {Verdict::kGood, "confinement", "neither AppArmor nor SELinux", ""};
  for (const char* file :
       {"/etc/apparmor.d/local/abstractions/libvirt-qemu", "/etc/apparmor.d/abstractions/libvirt-qemu"}) {
    const auto text = host.read(file);
    if (!text || text->find("/run/bandsaw/") == std::string::npos) continue;
    if (text->find("/vfio.sock") == std::string::npos || text->find("/vfio-live.sock") != std::string::npos)
      return {Verdict::kGood, "AppArmor", "lets QEMU use /run/bandsaw", ""};
    return {Verdict::kNote, "AppArmor", "lets QEMU use vfio.sock alone, not vfio-live.sock",
            fmt::format("`attach --live` needs the line `{}` in {}", kSocketsLine, file)};
  }
  return {Verdict::kNote, "AppArmor", "is on",
          fmt::format("libvirt's QEMU needs the line `{}` in /etc/apparmor.d/local/abstractions/libvirt-qemu",
                      kSocketsLine)};
}

Finding hook(const HostFacts& host) {
  for (const char* place : {"/etc/libvirt/hooks/qemu.d/bandsaw", "/etc/libvirt/hooks/qemu"}) {
    const auto text = host.read(place);
    if (text && text->find("vgpuctl") != std::string::npos) return {Verdict::kGood, "libvirt's hook", place, ""};
  }
  return {Verdict::kNote, "libvirt's hook", "is not installed",
          "`vgpuctl hook --install`, if shares in a domain's <metadata> are to be set at its start"};
}

}  // namespace

std::vector<Finding> check_host(const HostFacts& host) {
  const auto status = host.status_json();
  std::vector<Finding> findings = {daemon(host, status)};
  devices(status, &findings);
  for (const auto& check : {groups, cgroup, kvm, qemu, libvirt, qemu_user, confinement, hook, driver}) {
    findings.push_back(check(host));
  }
  if (findings.back().verdict == Verdict::kGood) {  // there is a GPU's driver
    findings.push_back(mps(host));
    findings.push_back(hmm(host));
  }
  return findings;
}

}  // namespace bandsaw::ctl
