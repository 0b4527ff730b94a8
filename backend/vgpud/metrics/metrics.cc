#include "backend/vgpud/metrics/metrics.h"

#include <fmt/format.h>
#include <prometheus/metric_family.h>
#include <prometheus/text_serializer.h>

#include <array>
#include <initializer_list>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "backend/vgpud/api/shares.h"
#include "memory/base/version.h"
#include "vgpu-sched/engine.h"

namespace bandsaw {
namespace {

using nlohmann::json;
using prometheus::MetricFamily;
using prometheus::MetricType;
using Label = std::pair<const char*, std::string>;
using Labels = std::initializer_list<Label>;

constexpr auto kGauge = MetricType::Gauge, kCounter = MetricType::Counter;

std::optional<double> number(const json& object, const std::string& pointer) {
  const json::json_pointer path(pointer);
  if (!object.contains(path)) return std::nullopt;
  if (object[path].is_boolean()) return object[path].get<bool>();
  if (!object[path].is_number()) return std::nullopt;
  return object[path].get<double>();
}

std::string text(const json& object, const std::string& pointer) {
  const json::json_pointer path(pointer);
  return object.contains(path) && object[path].is_string() ? object[path].get<std::string>() : "";
}

class Page {
 public:
  // What follows is a sample of this metric.
  void metric(const char* name, MetricType type, const char* help) {
    if (!families_.empty() && families_.back().metric.empty()) families_.pop_back();
    families_.push_back({name, help, type, {}});
  }

  void sample(Labels labels, std::optional<double> value) {
    if (!value) return;
    prometheus::ClientMetric sample{};
    for (const auto& [name, content] : labels) sample.label.push_back({name, content});
    MetricFamily& family = families_.back();
    (family.type == MetricType::Counter ? sample.counter.value : sample.gauge.value) = *value;
    family.metric.push_back(std::move(sample));
  }

  std::string text() {
    if (!families_.empty() && families_.back().metric.empty()) families_.pop_back();
    return prometheus::TextSerializer().Serialize(families_);
  }

 private:
  std::vector<MetricFamily> families_;  // only the last may be without samples
};

// A metric of every virtual GPU, from one number of its view.
struct VgpuMetric {
  const char* name;
  MetricType type;
  const char *help, *pointer;
  double divisor = 1;  // from the view's unit to the metric's
};

constexpr VgpuMetric kVgpuMetrics[] = {
    {"bandsaw_vgpu_memory_bytes", kGauge, "Device memory in use.", "/live/memory_used"},
    {"bandsaw_vgpu_memory_limit_bytes", kGauge, "Share of the device's memory.", "/memory"},
    {"bandsaw_vgpu_memory_swapped_bytes", kGauge, "Of the memory in use, what lies in the host's memory.",
     "/live/memory_swapped"},
    {"bandsaw_vgpu_memory_borrowed_bytes", kGauge, "Device memory beyond its own that others lend it now.",
     "/live/memory_borrowed"},
    {"bandsaw_vgpu_memory_lent_bytes", kGauge, "Of its device memory, what it lends to others now.",
     "/live/memory_lent"},
    {"bandsaw_vgpu_swapped_in_bytes_total", kCounter, "Moved from the host's memory to the device.",
     "/live/usage/swapped_in"},
    {"bandsaw_vgpu_swapped_out_bytes_total", kCounter, "Moved from the device to the host's memory.",
     "/live/usage/swapped_out"},
    {"bandsaw_vgpu_priority", kGauge, "Priority; higher goes first among those that are owed time.", "/priority"},
    {"bandsaw_vgpu_latency_bound_seconds", kGauge, "The most that short work of it is to wait for others; 0: no bound.",
     "/latency_us", 1e6},
    {"bandsaw_vgpu_latency_cost_seconds_total", kCounter,
     "GPU time that its latency bound has cost the others by more switches, estimated.", "/latency/cost_us", 1e6},
    {"bandsaw_vgpu_stall_wait_seconds_total", kCounter,
     "Time that its programs were held back because their beginnings, contexts and faults stop others.",
     "/live/stalls/wait_ns", 1e9},
    {"bandsaw_vgpu_keeps_engine", kGauge,
     "1: it keeps the compute engine in short pauses of its program, because it would lose its share by them.",
     "/keeps_engine"},
    {"bandsaw_vgpu_calls_total", kCounter, "Driver calls executed.", "/live/usage/calls"},
    {"bandsaw_vgpu_launches_total", kCounter, "Kernels launched.", "/live/usage/launches"},
    {"bandsaw_vgpu_errors_total", kCounter, "Driver calls that ended in an error.", "/live/usage/errors"},
    {"bandsaw_vgpu_session_restarts_total", kCounter, "Sessions that ended and were started anew.",
     "/session/restarts"},
};

// Of every virtual GPU and engine, from one number of its engine's sums.
constexpr VgpuMetric kEngineMetrics[] = {
    {"bandsaw_vgpu_engine_busy_seconds_total", kCounter, "Engine time charged.", "busy_ns", 1e9},
    {"bandsaw_vgpu_engine_wait_seconds_total", kCounter, "Time between asking for the engine and being granted it.",
     "wait_ns", 1e9},
    {"bandsaw_vgpu_engine_grants_total", kCounter, "Time slices granted.", "grants"},
    {"bandsaw_vgpu_engine_overruns_total", kCounter,
     "Time slices that held the engine for longer than the slice timeout.", "overruns"},
    {"bandsaw_vgpu_engine_waiting", kGauge, "Time slices that wait to be granted.", "waiting"},
    {"bandsaw_vgpu_engine_in_flight", kGauge, "Time slices granted and not ended.", "in_flight"},
};

struct EnginePercent {
  const char *name, *help;
  std::array<const char*, kEngines> pointers;
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

void render_build(Page* page) {
  page->metric("bandsaw_build_info", kGauge, "What vgpud was built from; always 1.");
  page->sample({{"version", kBandsawVersion}}, 1);
}

const json& devices_of(const json& status) {
  static const json none = json::array();
  return status.contains("devices") ? status["devices"] : none;
}

// One sample for each device, from one number of what the status says of it.
void render_of_devices(const json& status, const char* pointer, Page* page) {
  for (const json& device : devices_of(status)) page->sample({{"gpu", text(device, "/id")}}, number(device, pointer));
}

void render_gpus(const json& status, Page* page) {
  page->metric("bandsaw_gpu_info", kGauge, "The physical GPU and how it is scheduled; always 1.");
  const auto policy = text(status, "/scheduler/policy");
  for (const json& device : devices_of(status)) {
    page->sample({{"gpu", text(device, "/id")},
                  {"model", text(device, "/name")},
                  {"uuid", text(device, "/uuid")},
                  {"driver", text(device, "/driver")},
                  {"policy", policy.empty() ? "none" : policy},
                  {"queues", text(status, "/scheduler/queues")}},
                 1);
  }
  page->metric("bandsaw_gpu_up", kGauge, "1 if it can be used, 0 if it is lost.");
  for (const json& device : devices_of(status)) {
    page->sample({{"gpu", text(device, "/id")}}, text(device, "/lost").empty());
  }
  page->metric("bandsaw_gpu_memory_bytes", kGauge, "Device memory that may be given to virtual GPUs.");
  render_of_devices(status, "/memory", page);
  page->metric("bandsaw_gpu_memory_given_bytes", kGauge, "Device memory given to virtual GPUs.");
  render_of_devices(status, "/memory_given", page);
  page->metric("bandsaw_gpu_share_given_ratio", kGauge, "Sum of the shares of an engine, 0 to 1.");
  static constexpr std::array<const char*, kEngines> kGiven = {"/compute_given", "/copy_given", "/copy_given"};
  for (const json& device : devices_of(status)) {
    for (size_t i = 0; i < kEngineNames.size(); ++i) {
      page->sample({{"gpu", text(device, "/id")}, {"engine", std::string(kEngineNames[i])}},
                   divided(number(device, kGiven[i]), 100));
    }
  }
}

// Only where the device has contexts that MPS could join.
void render_mps(const json& status, Page* page) {
  page->metric("bandsaw_gpu_mps_up", kGauge, "1 if the MPS daemon runs.");
  for (const json& device : devices_of(status)) {
    const std::string state = text(device, "/mps/daemon/state");
    if (!state.empty()) page->sample({{"gpu", text(device, "/id")}}, state == "running");
  }
  page->metric("bandsaw_gpu_mps_restarts_total", kCounter, "MPS daemons that ended and were started anew.");
  render_of_devices(status, "/mps/daemon/restarts", page);
}

void render_vgpus(const json& vgpus, Page* page) {
  page->metric("bandsaw_vgpu_info", kGauge, "The virtual GPU, its GPU and its libvirt domain; always 1.");
  for (const json& view : vgpus) {
    page->sample({{"vgpu", text(view, "/name")}, {"gpu", text(view, "/device")}, {"domain", text(view, "/domain")}}, 1);
  }
  page->metric("bandsaw_vgpu_up", kGauge, "1 if its session runs and answers.");
  for (const json& view : vgpus)
    page->sample({{"vgpu", text(view, "/name")}, {"gpu", text(view, "/device")}},
                 view.value("live", json()).is_object());
  page->metric("bandsaw_vgpu_suspended", kGauge,
               "1 if it is suspended: its programs wait, and its device is free of it.");
  for (const json& view : vgpus)
    page->sample({{"vgpu", text(view, "/name")}, {"gpu", text(view, "/device")}}, view.value("suspended", false));
  page->metric("bandsaw_vgpu_asleep", kGauge,
               "1 if it is idle and has left its device, until the next call of a program.");
  for (const json& view : vgpus)
    page->sample({{"vgpu", text(view, "/name")}, {"gpu", text(view, "/device")}},
                 view.value("/live/suspension/asleep"_json_pointer, false));
  page->metric("bandsaw_vgpu_processes", kGauge, "Guest processes that use it.");
  for (const json& view : vgpus) {
    const json live = view.value("live", json());
    if (live.is_object())
      page->sample({{"vgpu", text(view, "/name")}, {"gpu", text(view, "/device")}},
                   live.value("processes", json::array()).size());
  }
  for (const VgpuMetric& metric : kVgpuMetrics) {
    page->metric(metric.name, metric.type, metric.help);
    for (const json& view : vgpus) {
      page->sample({{"vgpu", text(view, "/name")}, {"gpu", text(view, "/device")}},
                   divided(number(view, metric.pointer), metric.divisor));
    }
  }
  page->metric("bandsaw_vgpu_copied_bytes_total", kCounter, "Bytes copied, by direction.");
  for (const json& view : vgpus) {
    for (const char* direction : {"in", "out", "device"}) {
      page->sample({{"vgpu", text(view, "/name")}, {"gpu", text(view, "/device")}, {"direction", direction}},
                   number(view, fmt::format("/live/usage/bytes_{}", direction)));
    }
  }
}

void render_engines(const json& vgpus, Page* page) {
  for (const VgpuMetric& metric : kEngineMetrics) {
    page->metric(metric.name, metric.type, metric.help);
    for (const json& view : vgpus) {
      for (const std::string_view engine : kEngineNames) {
        page->sample({{"vgpu", text(view, "/name")}, {"gpu", text(view, "/device")}, {"engine", std::string(engine)}},
                     divided(number(view, fmt::format("/engines/{}/{}", engine, metric.pointer)), metric.divisor));
      }
    }
  }
  for (const EnginePercent& percent : kEnginePercents) {
    page->metric(percent.name, kGauge, percent.help);
    for (const json& view : vgpus) {
      for (size_t i = 0; i < kEngineNames.size(); ++i) {
        page->sample(
            {{"vgpu", text(view, "/name")}, {"gpu", text(view, "/device")}, {"engine", std::string(kEngineNames[i])}},
            divided(number(view, percent.pointers[i]), 100));
      }
    }
  }
}

}  // namespace

std::string render_metrics(const json& status, const json& vgpus) {
  Page page;
  render_build(&page);
  render_gpus(status, &page);
  render_mps(status, &page);
  render_vgpus(vgpus, &page);
  render_engines(vgpus, &page);
  return page.text();
}

}  // namespace bandsaw
