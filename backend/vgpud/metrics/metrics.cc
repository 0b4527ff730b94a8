#include "backend/vgpud/metrics/metrics.h"

#include <array>
#include <initializer_list>
#include <nlohmann/json.hpp>
#include <optional>
#include <utility>

#include "backend/vgpud/api/shares.h"

namespace bandsaw {
namespace {

using nlohmann::json;
using Label = std::pair<const char*, std::string>;
using Labels = std::initializer_list<Label>;

std::string escaped(const std::string& text) {
  std::string result;
  for (const char c : text) {
    if (c == '\\' || c == '"') result += '\\';
    result += c == '\n' ? "\\n" : std::string(1, c);
  }
  return result;
}

std::optional<double> number(const json& object, const std::string& pointer) {
  const json::json_pointer path(pointer);
  if (!object.contains(path) || !object[path].is_number()) return std::nullopt;
  return object[path].get<double>();
}

std::string text(const json& object, const std::string& pointer) {
  const json::json_pointer path(pointer);
  return object.contains(path) && object[path].is_string() ? object[path].get<std::string>() : "";
}

class Page {
 public:
  // All samples of a metric stand together under its help and type.
  void metric(const char* name, const char* type, const char* help) {
    name_ = name;
    heading_ = fmt::format("# HELP {} {}\n# TYPE {} {}\n", name, help, name, type);
  }

  void sample(Labels labels, std::optional<double> value) {
    if (!value) return;
    text_ += std::exchange(heading_, "");
    text_ += name_;
    const char* separator = "{";
    for (const auto& [key, content] : labels) {
      text_ += fmt::format("{}{}=\"{}\"", separator, key, escaped(content));
      separator = ",";
    }
    if (labels.size() > 0) text_ += '}';
    text_ += fmt::format(" {}\n", *value);
  }

  std::string take() { return std::move(text_); }

 private:
  std::string name_, heading_, text_;
};

// A metric of every virtual GPU, from one number of its view.
struct VgpuMetric {
  const char *name, *type, *help, *pointer;
  double divisor = 1;  // from the view's unit to the metric's
};

constexpr VgpuMetric kVgpuMetrics[] = {
    {"bandsaw_vgpu_memory_bytes", "gauge", "Device memory in use.", "/live/memory_used"},
    {"bandsaw_vgpu_memory_limit_bytes", "gauge", "Share of the device's memory.", "/memory"},
    {"bandsaw_vgpu_priority", "gauge", "Priority; higher goes first among those that are owed time.", "/priority"},
    {"bandsaw_vgpu_calls_total", "counter", "Driver calls executed.", "/live/usage/calls"},
    {"bandsaw_vgpu_launches_total", "counter", "Kernels launched.", "/live/usage/launches"},
    {"bandsaw_vgpu_errors_total", "counter", "Driver calls that ended in an error.", "/live/usage/errors"},
    {"bandsaw_vgpu_session_restarts_total", "counter", "Sessions that ended and were started anew.",
     "/session/restarts"},
};

// Of every virtual GPU and engine, from one number of its engine's sums.
constexpr VgpuMetric kEngineMetrics[] = {
    {"bandsaw_vgpu_engine_busy_seconds_total", "counter", "Engine time charged.", "busy_ns", 1e9},
    {"bandsaw_vgpu_engine_wait_seconds_total", "counter", "Time between asking for the engine and being granted it.",
     "wait_ns", 1e9},
    {"bandsaw_vgpu_engine_grants_total", "counter", "Time slices granted.", "grants"},
    {"bandsaw_vgpu_engine_overruns_total", "counter",
     "Time slices that held the engine for longer than the slice timeout.", "overruns"},
    {"bandsaw_vgpu_engine_waiting", "gauge", "Time slices that wait to be granted.", "waiting"},
    {"bandsaw_vgpu_engine_in_flight", "gauge", "Time slices granted and not ended.", "in_flight"},
};

struct EnginePercent {
  const char *name, *help;
  std::array<const char*, sched::kEngines> pointers;
};

constexpr EnginePercent kEnginePercents[] = {
    {"bandsaw_vgpu_engine_share_ratio",
     "Share of the engine when everybody wants it, 0 to 1.",
     {"/compute", "/copy", "/copy"}},
    {"bandsaw_vgpu_engine_cap_ratio", "The most it gets of the engine, 0 to 1.", {"/cap", "/cap", "/cap"}},
    {"bandsaw_vgpu_engine_reserve_ratio",
     "The least it gets of the engine while it has work, 0 to 1.",
     {"/reserve", "/reserve", "/reserve"}},
};

// By division, because 2.5 s are 2.5e9 ns but 1e-9 is no number of a computer's.
std::optional<double> divided(std::optional<double> value, double divisor) {
  if (value) *value /= divisor;
  return value;
}

void render_gpu(const json& status, Page* page) {
  const std::string gpu = text(status, "/device/id");
  page->metric("bandsaw_gpu_info", "gauge", "The physical GPU and how it is scheduled; always 1.");
  const auto policy = text(status, "/scheduler/policy");
  page->sample({{"gpu", gpu},
                {"model", text(status, "/device/name")},
                {"uuid", text(status, "/device/uuid")},
                {"driver", text(status, "/device/driver")},
                {"policy", policy.empty() ? "none" : policy},
                {"queues", text(status, "/scheduler/queues")}},
               1);
  page->metric("bandsaw_gpu_memory_bytes", "gauge", "Device memory that may be given to virtual GPUs.");
  page->sample({{"gpu", gpu}}, number(status, "/device/memory"));
  page->metric("bandsaw_gpu_memory_given_bytes", "gauge", "Device memory given to virtual GPUs.");
  page->sample({{"gpu", gpu}}, number(status, "/device/memory_given"));
  page->metric("bandsaw_gpu_share_given_ratio", "gauge", "Sum of the shares of an engine, 0 to 1.");
  page->sample({{"gpu", gpu}, {"engine", "compute"}}, divided(number(status, "/device/compute_given"), 100));
  page->sample({{"gpu", gpu}, {"engine", "copy_in"}}, divided(number(status, "/device/copy_given"), 100));
  page->sample({{"gpu", gpu}, {"engine", "copy_out"}}, divided(number(status, "/device/copy_given"), 100));
}

// Only where the device has contexts that MPS could join.
void render_mps(const json& status, Page* page) {
  const std::string gpu = text(status, "/device/id");
  page->metric("bandsaw_gpu_mps_up", "gauge", "1 if the MPS daemon runs.");
  if (!text(status, "/mps/daemon/state").empty()) {
    page->sample({{"gpu", gpu}}, text(status, "/mps/daemon/state") == "running");
  }
  page->metric("bandsaw_gpu_mps_restarts_total", "counter", "MPS daemons that ended and were started anew.");
  page->sample({{"gpu", gpu}}, number(status, "/mps/daemon/restarts"));
}

void render_vgpus(const json& vgpus, Page* page) {
  page->metric("bandsaw_vgpu_info", "gauge", "The virtual GPU, its GPU and its libvirt domain; always 1.");
  for (const json& view : vgpus) {
    page->sample({{"vgpu", text(view, "/name")}, {"gpu", text(view, "/device")}, {"domain", text(view, "/domain")}}, 1);
  }
  page->metric("bandsaw_vgpu_up", "gauge", "1 if its session runs and answers.");
  for (const json& view : vgpus) page->sample({{"vgpu", text(view, "/name")}}, view.value("live", json()).is_object());
  page->metric("bandsaw_vgpu_processes", "gauge", "Guest processes that use it.");
  for (const json& view : vgpus) {
    const json live = view.value("live", json());
    if (live.is_object()) page->sample({{"vgpu", text(view, "/name")}}, live.value("processes", json::array()).size());
  }
  for (const VgpuMetric& metric : kVgpuMetrics) {
    page->metric(metric.name, metric.type, metric.help);
    for (const json& view : vgpus) page->sample({{"vgpu", text(view, "/name")}}, number(view, metric.pointer));
  }
  page->metric("bandsaw_vgpu_copied_bytes_total", "counter", "Bytes copied, by direction.");
  for (const json& view : vgpus) {
    for (const char* direction : {"in", "out", "device"}) {
      page->sample({{"vgpu", text(view, "/name")}, {"direction", direction}},
                   number(view, fmt::format("/live/usage/bytes_{}", direction)));
    }
  }
}

void render_engines(const json& vgpus, Page* page) {
  for (const VgpuMetric& metric : kEngineMetrics) {
    page->metric(metric.name, metric.type, metric.help);
    for (const json& view : vgpus) {
      for (const char* engine : kEngineNames) {
        page->sample({{"vgpu", text(view, "/name")}, {"engine", engine}},
                     divided(number(view, fmt::format("/engines/{}/{}", engine, metric.pointer)), metric.divisor));
      }
    }
  }
  for (const EnginePercent& percent : kEnginePercents) {
    page->metric(percent.name, "gauge", percent.help);
    for (const json& view : vgpus) {
      for (size_t i = 0; i < kEngineNames.size(); ++i) {
        page->sample({{"vgpu", text(view, "/name")}, {"engine", kEngineNames[i]}},
                     divided(number(view, percent.pointers[i]), 100));
      }
    }
  }
}

}  // namespace

std::string render_metrics(const json& status, const json& vgpus) {
  Page page;
  render_gpu(status, &page);
  render_mps(status, &page);
  render_vgpus(vgpus, &page);
  render_engines(vgpus, &page);
  return page.take();
}

}  // namespace bandsaw
