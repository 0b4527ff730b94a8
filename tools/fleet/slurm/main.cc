// bandsaw-slurm: what a node does for Slurm's jobs. The SPANK plugin runs it in prologs and epilogs, slurmd as its
// HealthCheckProgram, and an administrator to learn what belongs into gres.conf.
#include <fmt/format.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <array>
#include <cstdlib>
#include <exception>
#include <string>

#include "backend/control/paths.h"
#include "memory/base/version.h"
#include "tools/fleet/slurm/node.h"

namespace {

using namespace bandsaw;

std::string short_name_of_host() {
  std::array<char, 256> name{};
  if (::gethostname(name.data(), name.size() - 1) < 0) return "localhost";
  const std::string whole = name.data();
  return whole.substr(0, whole.find('.'));
}

int finish(const Status& status) {
  if (status.ok()) return 0;
  fmt::print(stderr, "vgpu: {}\n", status.message());
  return 1;
}

int run(int argc, char** argv) {
  CLI::App app("What a node does for Slurm's jobs. Without a command: tidy, as slurmd's HealthCheckProgram is started.",
               "bandsaw-slurm");
  app.set_version_flag("--version", std::string("bandsaw-slurm ") + kBandsawVersion);
  slurm::Node node;
  slurm::Job job;
  node.at.run = run_directory();
  const char* named = std::getenv("SLURMD_NODENAME");
  node.name = named ? named : short_name_of_host();
  app.add_option("--run", node.at.run, "folder of vgpud's sockets")->capture_default_str();
  app.add_option("--jobs", node.at.jobs, "folder of what is remembered of jobs")->capture_default_str();
  app.add_option("--node", node.name, "this node, as Slurm calls it")->capture_default_str();
  app.fallthrough();
  CLI::App* begin = app.add_subcommand("begin", "makes a job's virtual GPUs");
  begin->add_option("--job", job.id, "number of the job")->required();
  begin->add_option("--user", job.user, "number of its user")->required();
  begin->add_option("--request", job.request, "what slurmctld admitted")->required();
  CLI::App* end = app.add_subcommand("end", "accounts for them and removes them");
  end->add_option("--job", job.id, "number of the job")->required();
  app.add_subcommand("tidy", "removes virtual GPUs of jobs that are over; drains the node while vgpud does not answer");
  CLI::App* gres = app.add_subcommand("gres", "prints lines for gres.conf and slurm.conf");
  app.require_subcommand(0, 1);
  CLI11_PARSE(app, argc, argv);
  ::setenv("PATH", "/usr/sbin:/usr/bin:/sbin:/bin", 0);  // prologs may have none
  if (begin->parsed()) return finish(slurm::begin_job(node, job));
  if (end->parsed()) return finish(slurm::end_job(node, job.id));
  if (!gres->parsed()) return finish(slurm::tidy(node));
  const auto lines = slurm::configuration(node);
  if (!lines.ok()) return finish(lines.status());
  fmt::print("{}", lines.value());
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  try {
    return run(argc, argv);
  } catch (const std::exception& error) {
    fmt::print(stderr, "vgpu: {}\n", error.what());
    return 1;
  }
}
