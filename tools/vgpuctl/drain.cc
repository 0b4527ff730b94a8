// drain and undrain: a device that takes no new virtual GPUs, for maintenance, and perhaps gives away those that it
// has.
#include <fmt/core.h>

#include "backend/control/http_client.h"
#include "tools/vgpuctl/commands.h"
#include "tools/vgpuctl/daemon_call.h"

namespace bandsaw::ctl {
namespace {

using nlohmann::json;

Reply set_drained(const Options& options, bool drained) {
  return call(options, "PATCH", "/v1/devices/" + url_escaped(options.device), {{"drained", drained}});
}

void print_drained(const json& device) {
  const auto name = device.value("id", "");
  const auto count = device.value("vgpus", 0u);
  if (count == 0) {
    fmt::print("{} takes no new virtual GPUs, and has none\n", name);
  } else {
    fmt::print("{} takes no new virtual GPUs; {} on it go{} on: `vgpuctl list` names {}\n", name, count,
               count == 1 ? "es" : "", count == 1 ? "it" : "them");
  }
}

// Made by the DRA driver of Kubernetes, which has promised this device and counts with it.
bool is_of_kubernetes(const std::string& name) { return name.starts_with("dra-"); }

// Each to any other device with room. {"moved": [{"name", "device"}], "stay": [{"name", "error", "hint"}]}
json move_all(Options options, const json& vgpus, const std::string& device) {
  json done = {{"moved", json::array()}, {"stay", json::array()}};
  for (const json& vgpu : vgpus) {
    if (vgpu.value("device", "") != device) continue;
    options.name = vgpu.value("name", "");
    if (is_of_kubernetes(options.name)) {
      done["stay"].push_back({{"name", options.name},
                              {"error", "Kubernetes has chosen its device"},
                              {"hint", "`kubectl drain` the node, and it ends with its pod"}});
      continue;
    }
    const Reply reply = call(options, "POST", vgpu_target(options) + "/move");
    if (const Refusal* refusal = std::get_if<Refusal>(&reply)) {
      done["stay"].push_back({{"name", options.name}, {"error", refusal->error}, {"hint", refusal->hint}});
    } else {
      done["moved"].push_back({{"name", options.name}, {"device", std::get<json>(reply).value("device", "")}});
    }
  }
  return done;
}

void print_moves(const std::string& device, const json& done) {
  for (const json& one : done["moved"]) fmt::print("{} is on {}\n", one.value("name", ""), one.value("device", ""));
  for (const json& one : done["stay"]) {
    fmt::print("{} stays: {} ({})\n", one.value("name", ""), one.value("error", ""), one.value("hint", ""));
  }
  const size_t stay = done["stay"].size();
  fmt::print("{} takes no new virtual GPUs, and has {}\n", device, stay == 0 ? "none" : fmt::format("{} yet", stay));
}

}  // namespace

int drain(const Options& options) {
  const Reply drained = set_drained(options, true);
  if (!options.move || std::holds_alternative<Refusal>(drained)) return finish(options, drained, print_drained);
  const Reply vgpus = call(options, "GET", "/v1/vgpus");
  if (const Refusal* refusal = std::get_if<Refusal>(&vgpus)) return print_refusal(*refusal, options.json);
  const std::string device = std::get<json>(drained).value("id", "");
  const json done = move_all(options, std::get<json>(vgpus), device);
  finish(options, done, [&device](const json& moves) { print_moves(device, moves); });
  return done["stay"].empty() ? kOk : kRefused;
}

int undrain(const Options& options) {
  return finish(options, set_drained(options, false),
                [](const json& device) { fmt::print("{} takes new virtual GPUs again\n", device.value("id", "")); });
}

}  // namespace bandsaw::ctl
