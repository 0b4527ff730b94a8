#include "tools/fleet/slurm/node.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <charconv>
#include <map>
#include <nlohmann/json.hpp>
#include <sstream>
#include <vector>

#include "tools/fleet/slurm/account.h"
#include "tools/fleet/slurm/daemon.h"
#include "tools/fleet/slurm/gres.h"
#include "tools/fleet/slurm/job_record.h"
#include "tools/fleet/slurm/process.h"
#include "tools/fleet/slurm/prolog.h"
#include "tools/fleet/slurm/request.h"

namespace bandsaw::slurm {
namespace {

using nlohmann::json;

constexpr std::string_view kPrefix = "slurm-";  // of the names of virtual GPUs of jobs
constexpr const char* kDrained = "bandsaw: vgpud does not answer";

std::vector<std::string> names_of(uint32_t job, uint32_t count) {
  if (count == 1) return {fmt::format("{}{}", kPrefix, job)};
  std::vector<std::string> names;
  for (uint32_t i = 0; i < count; ++i) names.push_back(fmt::format("{}{}-{}", kPrefix, job, i));
  return names;
}

// 0: none of a job's.
uint32_t job_of(std::string_view name) {
  uint32_t job = 0;
  if (!name.starts_with(kPrefix)) return 0;
  name.remove_prefix(kPrefix.size());
  const auto [end, code] = std::from_chars(name.data(), name.data() + name.size(), job);
  const bool whole = end == name.data() + name.size() || *end == '-';
  return code == std::errc() && whole ? job : 0;
}

Status remove_vgpu(const Node& node, const std::string& name) {
  const auto gone = ask(node.at.run, "DELETE", "/v1/vgpus/" + name + "?force=1", {});
  return gone.ok() || gone.status().code() == ENOENT ? Status() : gone.status();
}

Result<std::string> slurm_says(const std::vector<std::string>& command) {
  auto ended = run_program(command, STDOUT_FILENO);
  if (!ended.ok()) return ended.status();
  if (ended.value().status != 0) return Status::error(EIO, "{} ended with {}", command[0], ended.value().status);
  return std::move(ended.value().output);
}

// Jobs that Slurm has on this node, those that are about to end included. True: it is on this node alone, and Slurm
// waits for the end of its prolog.
Result<std::map<uint32_t, bool>> jobs_here(const Node& node) {
  const auto said = slurm_says({"squeue", "--noheader", "--all", "--nodelist=" + node.name, "--format=%A %D %r"});
  if (!said.ok()) return said.status();
  std::map<uint32_t, bool> jobs;
  std::istringstream lines(said.value());
  std::string nodes, reason;
  for (uint32_t job = 0; lines >> job >> nodes >> std::ws && std::getline(lines, reason);) {
    jobs.emplace(job, nodes == "1" && reason == "Prolog");
  }
  return jobs;
}

// slurmctld waits for ever for the word of a slurmd that was killed in a job's prolog, and the job keeps its virtual
// GPU. Where a job has other nodes, their prologs may be what is awaited: it is left alone.
void end_lost_job(const Node& node, uint32_t job) {
  const auto record = read_record(node.at.jobs, job);
  if (!record.ok() || slurmd_lives(record.value().slurmd)) return;
  fmt::print(stderr, "vgpu: job {} is cancelled: slurmd was killed in its prolog, which Slurm waits for\n", job);
  if (const auto ended = slurm_says({"scancel", std::to_string(job)}); !ended.ok()) {
    fmt::print(stderr, "vgpu: {}\n", ended.status().message());
  }
}

// Of jobs that are over, for example because the host was switched off under them. What vgpud has is asked for first: a
// job that begins after that is not in question.
Status remove_leftovers(const Node& node) {
  const auto vgpus = ask(node.at.run, "GET", "/v1/vgpus", {});
  if (!vgpus.ok()) return vgpus.status();
  const auto recorded = recorded_jobs(node.at.jobs);
  std::vector<std::string> names;
  for (const json& vgpu : vgpus.value()) {
    if (const std::string name = vgpu.value("name", ""); job_of(name) != 0) names.push_back(name);
  }
  if (names.empty() && recorded.empty()) return {};
  const auto living = jobs_here(node);
  if (!living.ok()) return living.status();
  for (const std::string& name : names) {
    if (living.value().contains(job_of(name))) continue;
    fmt::print(stderr, "vgpu: {} is removed: its job is over\n", name);
    if (Status status = remove_vgpu(node, name); !status.ok()) return status;
  }
  for (const uint32_t job : recorded) {
    const auto found = living.value().find(job);
    if (found == living.value().end()) {
      remove_record(node.at.jobs, job);
    } else if (found->second) {
      end_lost_job(node, job);
    }
  }
  return {};
}

json body_of(const Request& request, const std::string& name, uint32_t user) {
  const VgpuSpec& each = request.each;
  return {{"name", name},
          {"memory", each.memory},
          {"compute", each.compute},
          {"copy", each.copy},
          {"cap", each.cap},
          {"latency_us", each.latency_us},
          {"owner", fmt::format("{}", user)},
          {"sharing", to_text(each.sharing)},
          // One user's jobs trust each other, and nobody else's.
          {"group", each.sharing == Sharing::kMps ? fmt::format("user-{}", user) : ""}};
}

// A node that was switched off may still have what the same number, or a job that is over, had before.
Status make_vgpu(const Node& node, const json& body) {
  auto made = ask(node.at.run, "POST", "/v1/vgpus", body);
  if (made.ok() || made.status().code() != EEXIST) return made.status();
  if (Status status = remove_vgpu(node, body["name"]); !status.ok()) return status;
  if (Status status = remove_leftovers(node); !status.ok()) fmt::print(stderr, "vgpu: {}\n", status.message());
  return ask(node.at.run, "POST", "/v1/vgpus", body).status();
}

Status make_all(const Node& node, const Job& job, JobRecord* record) {
  const auto request = parse_request(job.request, true);
  if (!request.ok()) {
    record->refusal = fmt::format(
        "the job did not pass slurmctld's plugin ({}): slurm.conf needs "
        "JobSubmitPlugins=bandsaw",
        request.status().message());
    return {};
  }
  for (const std::string& name : names_of(job.id, request.value().count)) {
    const Status status = make_vgpu(node, body_of(request.value(), name, job.user));
    if (status.ok()) {
      record->vgpus.push_back(name);
      continue;
    }
    for (const std::string& made : record->vgpus) (void)remove_vgpu(node, made);
    record->vgpus.clear();
    if (status.code() == ECONNREFUSED) return status;
    record->refusal = fmt::format(
        "{} refused the job's virtual GPU: {}; Slurm's GRES of the node may promise more than "
        "vgpud has: compare `bandsaw-slurm gres` with gres.conf",
        node.name, status.message());
    break;
  }
  return {};
}

void drain(const Node& node) {
  const auto said =
      slurm_says({"scontrol", "update", "NodeName=" + node.name, "State=DRAIN", std::string("Reason=") + kDrained});
  if (!said.ok()) fmt::print(stderr, "vgpu: {} is not drained: {}\n", node.name, said.status().message());
}

void resume(const Node& node) {
  const auto said = slurm_says({"scontrol", "show", "node", "--oneliner", node.name});
  const auto says = [&said](const std::string& words) { return said.value().find(words) != std::string::npos; };
  if (!said.ok() || !says("+DRAIN") || !says(std::string("Reason=") + kDrained)) return;
  (void)slurm_says({"scontrol", "update", "NodeName=" + node.name, "State=RESUME"});
}

std::string used(const json& view) {
  static const json::json_pointer compute("/used/compute_ns"), copy("/used/copy_ns"), launches("/live/usage/launches");
  const auto number = [&view](const json::json_pointer& path) {
    return view.contains(path) && view[path].is_number() ? view[path].get<double>() : 0;
  };
  return fmt::format("compute_s={:.3f} copy_s={:.3f} launches={:.0f}", number(compute) * 1e-9, number(copy) * 1e-9,
                     number(launches));
}

}  // namespace

Status begin_job(const Node& node, const Job& job) {
  JobRecord record{{}, job.request, {}, slurmd_above()};
  if (Status status = make_all(node, job, &record); !status.ok()) {
    drain(node);  // or other jobs would fail here too
    record.refusal = fmt::format("{}: {}", node.name, status.message());
  }
  return write_record(node.at.jobs, job.id, record);
}

Status end_job(const Node& node, uint32_t job) {
  const auto record = read_record(node.at.jobs, job);
  if (!record.ok()) return record.status().code() == ENOENT ? Status() : record.status();
  std::vector<std::string> lines;
  for (const std::string& name : record.value().vgpus) {
    const auto view = ask(node.at.run, "GET", "/v1/vgpus/" + name, {});
    if (view.ok()) lines.push_back(fmt::format("vgpu={} node={} {}", name, node.name, used(view.value())));
    if (Status status = remove_vgpu(node, name); !status.ok()) return status;
  }
  remove_record(node.at.jobs, job);
  account_in_background({job, node.name, lines});
  return {};
}

Status tidy(const Node& node) {
  Status status = remove_leftovers(node);
  if (status.code() == ECONNREFUSED) drain(node);
  if (status.ok()) resume(node);
  return status;
}

Result<std::string> configuration(const Node& node) {
  const auto status = ask(node.at.run, "GET", "/v1/status", {});
  if (!status.ok()) return status.status();
  uint64_t memory = 0, devices = 0;
  for (const json& device : status.value().value("devices", json::array())) {
    if (!device.value("lost", "").empty()) continue;
    memory += device.value("memory", uint64_t{0});
    ++devices;
  }
  const uint64_t mib = memory >> 20, percent = 100 * devices, count = kCountMost * devices;
  return fmt::format(
      "# gres.conf\n"
      "NodeName={0} Name={1} Count={2} Flags=CountOnly\n"
      "NodeName={0} Name={3} Count={4}M Flags=CountOnly\n"
      "NodeName={0} Name={5} Count={6} Flags=CountOnly\n"
      "NodeName={0} Name={7} Count={6} Flags=CountOnly\n"
      "# slurm.conf\n"
      "GresTypes={1},{3},{5},{7}\n"
      "NodeName={0} ... Gres={1}:{2},{3}:{4}M,{5}:{6},{7}:{6}\n",
      node.name, kVgpus, count, kMemory, mib, kCompute, percent, kCopy);
}

}  // namespace bandsaw::slurm
