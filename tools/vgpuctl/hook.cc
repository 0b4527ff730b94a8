// hook: called by libvirt while a domain starts, through the script of hypervisor/libvirt/hook. It may not call
// libvirt.
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <sys/stat.h>

#include <chrono>
#include <filesystem>
#include <fstream>
#include <iostream>
#include <iterator>
#include <thread>

#include "backend/control/vgpu_spec.h"
#include "memory/base/json.h"
#include "memory/base/status.h"
#include "tools/vgpuctl/commands.h"
#include "tools/vgpuctl/daemon_call.h"
#ifdef BANDSAW_WITH_LIBVIRT
#include "hypervisor/libvirt/domain.h"
#include "hypervisor/libvirt/hook/script.h"
#endif

namespace bandsaw::ctl {

#ifdef BANDSAW_WITH_LIBVIRT

namespace {

using nlohmann::json;

constexpr size_t kXmlMax = 16u << 20;
constexpr std::chrono::milliseconds kLook{200};

std::string read_input() {
  std::string text;
  char buffer[65536];
  while (text.size() <= kXmlMax && std::cin.read(buffer, sizeof buffer).gcount() > 0) {
    text.append(buffer, static_cast<size_t>(std::cin.gcount()));
  }
  return text;
}

Refusal in_domain(const Options& options, const Status& status) {
  return {kRefused, fmt::format("domain '{}' does not start: {}", options.domain, status.message()),
          fmt::format("repair the <metadata> with `virsh edit {}`; `vgpuctl xml NAME` prints how it should be",
                      options.domain)};
}

// What vgpud says of it once its session runs. A domain that is started with the host may be earlier than vgpud and its
// sessions; whoever does not come in time is QEMU's to complain about.
Reply await_running(const Options& options) {
  for (const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(options.wait);;) {
    Reply reply = call(options, "GET", vgpu_target(options));
    const Refusal* refusal = std::get_if<Refusal>(&reply);
    const bool runs = !refusal && std::get<json>(reply).value("/live/pid"_json_pointer, 0) != 0;
    const bool final = runs || (refusal && refusal->exit != kNoDaemon);
    if (final || std::chrono::steady_clock::now() >= end) return reply;
    std::this_thread::sleep_for(kLook);
  }
}

// Sets the shares of one virtual GPU. The refusal, if there is one.
std::optional<Refusal> set_shares(Options options, const libvirt::DomainVgpu& vgpu) {
  options.name = vgpu.vgpu;
  const auto shares = read_share_texts(vgpu.shares);
  if (!shares.ok()) {
    return in_domain(options, Status::error(EINVAL, "the metadata of '{}': {}", vgpu.vgpu, shares.status().message()));
  }
  Reply reply = await_running(options);
  if (const json* view = std::get_if<json>(&reply)) {
    const auto attached = view->value("domain", "");
    if (!attached.empty() && attached != options.domain) {
      return Refusal{
          kRefused,
          fmt::format("domain '{}' does not start: '{}' is attached to domain '{}'", options.domain, vgpu.vgpu,
                      attached),
          fmt::format("`vgpuctl detach {0}` first; if it is '{1}' with a new name, then `vgpuctl attach {0} {2}`",
                      vgpu.vgpu, attached, options.domain)};
    }
    if (!shares.value().empty()) reply = call(options, "PATCH", vgpu_target(options), shares.value());
    // QEMU's domain has the device in its definition; a domain on Xen gets it from the session that expects it.
    const bool attach = options.hypervisor == "xen" && attached.empty() && std::holds_alternative<json>(reply);
    if (attach) reply = call(options, "POST", vgpu_target(options, "attach"), {{"domain", options.domain}});
  }
  const Refusal* refusal = std::get_if<Refusal>(&reply);
  if (!refusal) return std::nullopt;
  return Refusal{
      refusal->exit, fmt::format("domain '{}' does not start: {}", options.domain, refusal->error),
      refusal->exit == kNotFound
          ? fmt::format("`vgpuctl create {} --memory SIZE`, or take it out of the domain's <metadata>", vgpu.vgpu)
          : refusal->hint};
}

Status write_script(const std::string& folder, const std::string& path, const std::string& text) {
  std::error_code error;
  std::filesystem::create_directories(folder, error);
  if (error) return Status::error(error.value(), "cannot make {}: {}", folder, error.message());
  const std::string temporary = path + ".new";
  std::ofstream file(temporary);
  file << text;
  file.close();
  if (!file || ::chmod(temporary.c_str(), 0755) < 0 || ::rename(temporary.c_str(), path.c_str()) < 0) {
    Status status = Status::system("cannot write {}", path);
    std::filesystem::remove(temporary, error);
    return status;
  }
  return {};
}

int install_hook(const Options& options) {
  std::error_code error;
  const std::string self = std::filesystem::read_symlink("/proc/self/exe", error);
  if (error) {
    return print_refusal({kRefused, "cannot tell where vgpuctl lies: " + error.message(), "it needs /proc"},
                         options.json);
  }
  std::vector<std::string> paths;
  for (const libvirt::HookDriver& driver : libvirt::kHookDrivers) {
    const std::string folder = fmt::format("{}/{}.d", options.hooks, driver.driver);
    paths.push_back(folder + "/bandsaw");
    const Status status =
        write_script(folder, paths.back(), libvirt::hook_script(driver, self, std::filesystem::absolute(options.run)));
    if (!status.ok()) {
      return print_refusal({kRefused, status.message(), "become root, or name libvirt's folder with --hooks"},
                           options.json);
    }
  }
  if (options.json) {
    fmt::print("{}\n", json_text(json{{"installed", paths}}));
  } else {
    fmt::print(
        "installed {}\nlibvirt looks for hooks when it starts: `systemctl restart libvirtd` (or virtqemud, virtxend)\n",
        fmt::join(paths, " and "));
  }
  return kOk;
}

}  // namespace

int hook(const Options& options) {
  if (options.install) return install_hook(options);
  if (options.domain.empty()) {
    return print_refusal({kUsage, "no domain is named", "libvirt calls this; --install puts it there"}, options.json);
  }
  const std::string xml = read_input();
  if (xml.find(libvirt::kMetadataNamespace) == std::string::npos) return kOk;  // nothing of ours, whatever it is
  const auto vgpus = libvirt::read_metadata(xml);
  if (!vgpus.ok()) return print_refusal(in_domain(options, vgpus.status()), options.json);
  for (const libvirt::DomainVgpu& vgpu : vgpus.value()) {
    if (const auto refusal = set_shares(options, vgpu)) return print_refusal(*refusal, options.json);
  }
  return kOk;
}

#else

int hook(const Options& options) { return refuse_without_libvirt(options.json); }

#endif

}  // namespace bandsaw::ctl
