// What stands behind the plugin's name in plugstack.conf: where things are on the nodes.
#pragma once

#include <string>
#include <vector>

#include "memory/base/status.h"

namespace bandsaw::slurm {

struct Settings {
  std::string run = "/run/bandsaw";         // vgpud's folder of sockets
  std::string jobs = "/run/bandsaw-slurm";  // what nodes remember of jobs
  std::string program = "/usr/libexec/bandsaw/bandsaw-slurm";
  std::string libraries;  // folder of libcuda.so.1 for jobs; empty: the linker finds it

  // As they are on one node: %n is its name.
  Settings of_node(const std::string& node) const;
};

// Words KEY=VALUE with the names above. EINVAL: another word.
Result<Settings> parse_settings(const std::vector<std::string>& words);

// `folder` before the others of a list with colons, once.
std::string with_folder_first(const std::string& folder, const std::string& list);

}  // namespace bandsaw::slurm
