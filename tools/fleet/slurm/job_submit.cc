// job_submit/bandsaw: slurmctld's part. It makes memory and shares that a job asks for by --vgpu part of its generic
// resources, so that Slurm gives each node no more than it has, and writes down what prologs are to make.
#include <fmt/format.h>
#include <slurm/slurm.h>
#include <slurm/slurm_errno.h>

#include <cstring>
#include <exception>
#include <string>

#include "tools/fleet/slurm/gres.h"
#include "tools/fleet/slurm/request.h"

// slurmctld frees what plugins give it by its own allocator, which no header of libslurm-dev declares.
extern "C" char* slurm_xstrdup(const char* text);
extern "C" void slurm_xfree(void** pointer);

namespace {

using namespace bandsaw;

const std::string kEntry = std::string(slurm::kVariable) + "=";  // prologs get it as SPANK_...

void replace(char** text, const std::string& with) {
  slurm_xfree(reinterpret_cast<void**>(text));
  *text = slurm_xstrdup(with.c_str());
}

int refuse(char** message, const std::string& text) {
  *message = slurm_xstrdup(("vgpu: " + text).c_str());
  return ESLURM_INVALID_GRES;
}

// Where the job's environment for prologs has the request; null: nowhere.
char** find_entry(job_desc_msg_t* job) {
  for (uint32_t i = 0; i < job->spank_job_env_size; ++i) {
    if (job->spank_job_env[i] && std::strncmp(job->spank_job_env[i], kEntry.c_str(), kEntry.size()) == 0) {
      return &job->spank_job_env[i];
    }
  }
  return nullptr;
}

bool names_vgpus(const char* text) { return text && std::strstr(text, slurm::kVgpus); }

int admit(job_desc_msg_t* job, char** message) {
  for (const char* other : {job->tres_per_job, job->tres_per_socket, job->tres_per_task}) {
    if (names_vgpus(other)) return refuse(message, "virtual GPUs are for each node: write --gres=vgpu:N");
  }
  const auto count = slurm::count_vgpus(job->tres_per_node ? job->tres_per_node : "");
  if (!count.ok()) return refuse(message, count.status().message());
  char** entry = find_entry(job);
  if (count.value() == 0 && !entry) return SLURM_SUCCESS;
  if (count.value() == 0) return refuse(message, "--vgpu says how large, and nothing how many: add --gres=vgpu:1");
  if (!entry) {
    return refuse(message, fmt::format("--gres=vgpu says how many, and nothing how large: add --vgpu={}; where that "
                                       "option is not known, plugstack.conf lacks Bandsaw's plugin",
                                       slurm::kWords));
  }
  auto request = slurm::parse_request(*entry + kEntry.size(), false);
  if (!request.ok()) return refuse(message, "--vgpu: " + request.status().message());
  request.value().count = count.value();
  replace(&job->tres_per_node, slurm::with_consumables(job->tres_per_node, request.value()));
  replace(entry, kEntry + slurm::to_text(request.value()));
  return SLURM_SUCCESS;
}

// Prologs make what was asked for at first. scontrol understands no words of a plugin's here, only the error.
int admit_change(const job_desc_msg_t& change) {
  for (const char* text : {change.tres_per_node, change.tres_per_job, change.tres_per_socket, change.tres_per_task}) {
    if (names_vgpus(text)) return ESLURM_INVALID_GRES;
  }
  return SLURM_SUCCESS;
}

// slurmctld is C: nothing may be thrown through it.
template <typename Work>
int guarded(char** message, const Work& work) {
  try {
    return work();
  } catch (const std::exception& error) {
    return refuse(message, error.what());
  }
}

}  // namespace

extern "C" {
#define EXPORTED __attribute__((visibility("default")))
extern EXPORTED const char plugin_name[], plugin_type[];
extern EXPORTED const uint32_t plugin_version;
const char plugin_name[] = "Bandsaw's virtual GPUs";
const char plugin_type[] = "job_submit/bandsaw";
const uint32_t plugin_version = SLURM_VERSION_NUMBER;

EXPORTED int init() { return SLURM_SUCCESS; }
EXPORTED int fini() { return SLURM_SUCCESS; }

EXPORTED int job_submit(job_desc_msg_t* job, uint32_t, char** message) {
  return guarded(message, [&] { return admit(job, message); });
}

EXPORTED int job_modify(job_desc_msg_t* change, void*, uint32_t, char**) { return admit_change(*change); }
}
