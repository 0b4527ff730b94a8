// Which slurmd runs a job's prolog. slurmctld waits for that slurmd's word that the prolog has ended; one that is
// killed meanwhile never says it, and neither does the next.
#pragma once

#include <string>

namespace bandsaw::slurm {

// Of the slurmd among this process's parents: its process and when that began. Empty: there is none.
std::string slurmd_above();
// Whether that one runs still; empty counts as one that does.
bool slurmd_lives(const std::string& slurmd);

}  // namespace bandsaw::slurm
