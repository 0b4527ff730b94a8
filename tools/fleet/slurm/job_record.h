// What a node remembers of a job between its prolog and its epilog: a file of root's that all may read.
#pragma once

#include <string>
#include <vector>

#include "memory/base/status.h"

namespace bandsaw::slurm {

inline constexpr const char* kJobsFolder = "/run/bandsaw-slurm";

struct JobRecord {
  std::vector<std::string> vgpus;  // names of its virtual GPUs on this node
  std::string request;             // as slurmctld admitted it
  std::string refusal;             // why it has none, and what to do; empty: it has them
  std::string slurmd;              // that ran the prolog (prolog.h)
};

std::string record_path(const std::string& folder, uint32_t job);
// Makes the folder if it is not there; replaces the file atomically.
Status write_record(const std::string& folder, uint32_t job, const JobRecord& record);
// ENOENT: the job has none here.
Result<JobRecord> read_record(const std::string& folder, uint32_t job);
void remove_record(const std::string& folder, uint32_t job);
// Numbers of all jobs that have one.
std::vector<uint32_t> recorded_jobs(const std::string& folder);

}  // namespace bandsaw::slurm
