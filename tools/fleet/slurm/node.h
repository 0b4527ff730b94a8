// What is done on a node, as root: a job's virtual GPUs come and go.
#pragma once

#include <cstdint>
#include <string>

#include "memory/base/status.h"
#include "tools/fleet/slurm/settings.h"

namespace bandsaw::slurm {

struct Node {
  std::string name;  // as Slurm calls it
  Settings at;
};

struct Job {
  uint32_t id = 0;
  uint32_t user = 0;    // the only one, beside root, who may use its virtual GPUs
  std::string request;  // as slurmctld admitted it
};

// Makes the job's virtual GPUs. Where vgpud refuses, or does not answer within 10 s, that is remembered as the job's
// refusal, and is no error; in the second case the node is drained. An error: nothing can be remembered here.
Status begin_job(const Node& node, const Job& job);
// Writes what its virtual GPUs have used into the job's AdminComment, and removes them. An error: vgpud does not
// answer.
Status end_job(const Node& node, uint32_t job);
// Removes virtual GPUs of jobs that Slurm no longer has on this node. The node is drained while vgpud does not answer,
// and resumed afterwards.
Status tidy(const Node& node);
// Lines for gres.conf and slurm.conf, from what vgpud's devices have.
Result<std::string> configuration(const Node& node);

}  // namespace bandsaw::slurm
