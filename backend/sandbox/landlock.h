// Landlock: what of the file system a process may reach, held by the kernel whatever namespaces it has. Needs no
// privileges; kernels before 5.13, and those that were started without it, have none.
#pragma once

#include <string>
#include <vector>

#include "memory/base/status.h"

namespace bandsaw {

struct LandlockPaths {
  std::vector<std::string> read;   // and execute
  std::vector<std::string> write;  // read too; files are made and removed there
  std::vector<std::string> use;    // what is there is read and written, and nothing made: device files, /proc
  int write_in = -1;               // as `write`, an open folder
};

// From now on this process and what it starts reach these paths alone (those that are not there are left out), no TCP
// port, and neither signals nor abstract sockets of processes that are not below it, as far as the kernel knows these.
// Nothing is done, and false told, where the kernel has none of it. No new privileges are possible afterwards.
Result<bool> enter_landlock(const LandlockPaths& paths);

bool has_landlock();

}  // namespace bandsaw
