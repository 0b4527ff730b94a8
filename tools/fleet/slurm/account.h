// What a job's virtual GPUs have used, for whoever reads `sacct --format=AdminComment`.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace bandsaw::slurm {

// `lines`: one for each virtual GPU of the job on this node.
struct Account {
  uint32_t job = 0;
  std::string node;
  std::vector<std::string> lines;
};

// A comment that has what another one has, and the lines of this node, once.
std::string merged(const std::string& comment, const Account& account);

// Adds the lines to the job's AdminComment in Slurm's database, in a process of its own: the database hears of a job
// after its end, and other nodes of the job write there too. What cannot be written is in the system's log.
void account_in_background(const Account& account);

}  // namespace bandsaw::slurm
