// The SPANK plugin: the option --vgpu of srun, sbatch and salloc; on the nodes, prologs and epilogs that make and
// remove a job's virtual GPUs, and the environment by which its programs find them.
#include <unistd.h>

#include <cstdlib>
#include <exception>
#include <optional>
#include <string>
#include <vector>

extern "C" {
#include <slurm/spank.h>
}

#include <fmt/format.h>

#include "tools/fleet/slurm/job_record.h"
#include "tools/fleet/slurm/process.h"
#include "tools/fleet/slurm/request.h"
#include "tools/fleet/slurm/settings.h"

namespace {

using namespace bandsaw;

constexpr int kFailure = -1;
constexpr size_t kVariableMost = 16384;
constexpr const char *kBegin = "begin", *kEnd = "end";  // commands of bandsaw-slurm

// Slurm calls a plugin's functions one after another.
std::string wanted;  // --vgpu, as parse_request() has read it

template <typename Work>
int guarded(const Work& work) {  // Slurm is C: nothing may be thrown through it
  try {
    return work();
  } catch (const std::exception& error) {
    slurm_error("vgpu: %s", error.what());
    return kFailure;
  }
}

int fail(const std::string& text) {
  slurm_error("vgpu: %s", text.c_str());
  return kFailure;
}

// The same in srun and, from srun, on the nodes.
int take_option(int, const char* text, int remote) {
  return guarded([&] {
    const auto request = slurm::parse_request(text ? text : "", false);
    if (!request.ok()) return fail(fmt::format("--vgpu={}: {}", text ? text : "", request.status().message()));
    wanted = slurm::to_text(request.value());
    return 0;
  });
}

std::string job_variable(spank_t spank, const char* name) {
  std::vector<char> value(kVariableMost);
  return spank_getenv(spank, name, value.data(), static_cast<int>(value.size())) == ESPANK_SUCCESS ? value.data() : "";
}

std::string own_variable(const char* name) {
  const char* value = std::getenv(name);
  return value ? value : "";
}

Result<slurm::Settings> settings_for(const std::string& node, int count, char** words) {
  auto settings = slurm::parse_settings({words, words + count});
  if (settings.ok()) settings.value() = settings.value().of_node(node);
  return settings;
}

// What the program says on its standard error comes to the log.
int run(std::vector<std::string> command) {
  const auto ended = slurm::run_program(std::move(command), STDERR_FILENO);
  if (!ended.ok()) return fail(ended.status().message());
  if (!ended.value().output.empty()) slurm_error("%s", ended.value().output.c_str());
  return ended.value().status;
}

std::string asked() { return own_variable((std::string("SPANK_") + slurm::kVariable).c_str()); }

int run_node_program(spank_t spank, const std::string& action, int count, char** words) {
  const std::string node = own_variable("SLURMD_NODENAME");
  const auto settings = settings_for(node, count, words);
  if (!settings.ok()) return fail(settings.status().message());
  uint32_t job = 0;
  uid_t user = 0;
  if (spank_get_item(spank, S_JOB_ID, &job) != ESPANK_SUCCESS ||
      spank_get_item(spank, S_JOB_UID, &user) != ESPANK_SUCCESS) {
    return fail("Slurm does not say which job this is");
  }
  const slurm::Settings& at = settings.value();
  std::vector<std::string> command = {at.program,          action,   "--run", at.run, "--jobs", at.jobs, "--job",
                                      std::to_string(job), "--node", node};
  if (action == kBegin) command.insert(command.end(), {"--user", std::to_string(user), "--request", asked()});
  return run(std::move(command));
}

// A step may repeat what its job was given, and nothing else.
std::optional<std::string> wrong_step(const slurm::JobRecord& record) {
  if (wanted.empty()) return {};
  auto admitted = slurm::parse_request(record.request, true);
  if (!admitted.ok()) return admitted.status().message();
  admitted.value().count = 0;
  if (slurm::to_text(admitted.value()) == wanted) return {};
  return "--vgpu differs from the job's: a job's steps use the virtual GPUs of the job; give --vgpu to sbatch or "
         "salloc";
}

int give_environment(spank_t spank, const slurm::Settings& at, const slurm::JobRecord& record) {
  std::string names;
  for (const std::string& name : record.vgpus) names += (names.empty() ? "" : ",") + name;
  spank_setenv(spank, "BANDSAW_VGPU", names.c_str(), 1);
  spank_setenv(spank, "BANDSAW_RUN", at.run.c_str(), 1);
  if (!at.libraries.empty()) {
    const std::string list = slurm::with_folder_first(at.libraries, job_variable(spank, "LD_LIBRARY_PATH"));
    spank_setenv(spank, "LD_LIBRARY_PATH", list.c_str(), 1);
  }
  return 0;
}

// SLURMD_NODENAME is set later; the address in the topology, "switch.switch.node", ends with the same.
std::string node_of_task(spank_t spank) {
  const std::string address = job_variable(spank, "SLURM_TOPOLOGY_ADDR");
  return address.substr(address.rfind('.') + 1);
}

int begin_task(spank_t spank, int count, char** words) {
  const auto settings = settings_for(node_of_task(spank), count, words);
  if (!settings.ok()) return fail(settings.status().message());
  uint32_t job = 0;
  if (spank_get_item(spank, S_JOB_ID, &job) != ESPANK_SUCCESS) return fail("Slurm does not say which job this is");
  const auto record = slurm::read_record(settings.value().jobs, job);
  if (!record.ok() && record.status().code() == ENOENT) {
    return wanted.empty()
               ? 0
               : fail(
                     "the job has no virtual GPU on this node: its prolog did not run; slurm.conf "
                     "needs PrologFlags=Alloc and JobSubmitPlugins=bandsaw (where it has them, slurmctld was "
                     "killed and gave this number again: submit the job again)");
  }
  if (!record.ok()) return fail(record.status().message());
  if (!record.value().refusal.empty()) return fail(record.value().refusal);
  if (const auto wrong = wrong_step(record.value())) return fail(*wrong);
  return give_environment(spank, settings.value(), record.value());
}

}  // namespace

extern "C" {
#define EXPORTED __attribute__((visibility("default")))
extern EXPORTED const char plugin_name[], plugin_type[];
extern EXPORTED const unsigned int plugin_version, spank_plugin_version;
SPANK_PLUGIN(bandsaw, 1)

EXPORTED int slurm_spank_init(spank_t spank, int count, char** words) {
  return guarded([&] {
    if (const auto settings = slurm::parse_settings({words, words + count}); !settings.ok()) {
      return fail(settings.status().message());
    }
    static std::string name = slurm::kOption, argument = "WORDS",
                       usage = fmt::format("size and shares of the job's virtual GPUs: {}", slurm::kWords);
    static spank_option option = {name.data(), argument.data(), usage.data(), 1, 0, take_option};
    const spank_context_t context = spank_context();
    if (context == S_CTX_SLURMD || context == S_CTX_JOB_SCRIPT) return 0;
    return spank_option_register(spank, &option) == ESPANK_SUCCESS ? 0 : kFailure;
  });
}

// What prologs and slurmctld's plugin read is part of the job from its submission on.
EXPORTED int slurm_spank_init_post_opt(spank_t spank, int, char**) {
  return guarded([&] {
    const spank_context_t context = spank_context();
    if (wanted.empty() || (context != S_CTX_LOCAL && context != S_CTX_ALLOCATOR)) return 0;
    const bool set = spank_job_control_setenv(spank, slurm::kVariable, wanted.c_str(), 1) == ESPANK_SUCCESS;
    return set ? 0 : fail("the request cannot be passed on");
  });
}

EXPORTED int slurm_spank_job_prolog(spank_t spank, int count, char** words) {
  return guarded([&] { return asked().empty() ? 0 : run_node_program(spank, kBegin, count, words); });
}

EXPORTED int slurm_spank_task_init_privileged(spank_t spank, int count, char** words) {
  return guarded([&] { return begin_task(spank, count, words); });
}

EXPORTED int slurm_spank_job_epilog(spank_t spank, int count, char** words) {
  return guarded([&] { return asked().empty() ? 0 : run_node_program(spank, kEnd, count, words); });
}
}
