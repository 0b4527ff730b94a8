// A root of its own for a process: an empty file system with a few of the host's files and folders in it.
#pragma once

#include <string>
#include <vector>

#include "memory/base/status.h"

namespace bandsaw {

// A file or folder of the host, seen at the same path (or at another).
struct RootEntry {
  enum class Access { kRead, kWrite, kDevice, kWhole };  // kWhole: as it is, for what is covered again later
  std::string path;
  Access access = Access::kRead;
  std::string at{};     // where in the root; empty: at its path
  bool needed = false;  // it is an error if it is not there
};

struct RootPlan {
  std::vector<RootEntry> entries{};
  std::vector<std::string> folders{};  // empty ones, to mount on
  std::vector<std::string> files{};    // the same
  std::vector<std::string> scratch{};  // file systems in memory, small, writable by all who see the root
  std::string staging{};               // a folder that is there: the root is made on it
};

// Makes the root in this process's mount namespace, which nobody else may have, and goes there; it and what it starts
// see nothing else from then on. Needs CAP_SYS_ADMIN over that namespace. On an error the process sees what it saw.
Status enter_root(const RootPlan& plan);

// What a program needs to start: the dynamic linker and shared libraries where `environment` (NAME=value) and the
// system look for them, and the program's own folder. `gpu`: where NVIDIA's driver library may lie, too.
std::vector<RootEntry> program_entries(const std::string& program, const std::vector<std::string>& environment,
                                       bool gpu);

// A few of the device files that every program may have.
std::vector<RootEntry> common_devices();

// Mounts the process numbers of this process's namespace on /proc; if that is forbidden, nothing: /proc is then empty.
// `all`: beside processes what the kernel says of the machine. `sees_others`: also processes that this one could not
// trace.
Status mount_proc(bool all, bool sees_others);
// `from` on `to`, both of which must be there.
Status bind(const std::string& from, const std::string& to);
// A small file system in memory. `bytes` is its bound.
Status mount_scratch(const std::string& on, unsigned long flags, size_t bytes, unsigned mode);

}  // namespace bandsaw
