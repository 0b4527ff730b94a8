// A cgroup (version 2) for each virtual GPU: what its session and all its runners take of the host together.
//
// Under systemd they lie in the unit's own part of the tree, which it delegates (Delegate=yes); elsewhere root makes
// them in a folder of its own beneath the root of the tree. Whoever makes cgroups stands in a leaf ("daemon"), because
// a cgroup whose children have controllers may hold no processes.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "memory/base/status.h"
#include "memory/base/unique_fd.h"

namespace bandsaw {

struct CgroupBounds {
  uint64_t memory = 0;        // bytes of host memory; 0: no bound
  uint32_t pids = 0;          // processes and threads; 0: no bound
  uint32_t cpu_weight = 100;  // against others, 1 to 10000
};

struct CgroupUse {
  uint64_t memory = 0;  // bytes
  uint64_t pids = 0;
  uint64_t cpu_us = 0;     // since it was made
  uint64_t oom_kills = 0;  // processes that were ended because the memory was full
};

// Where a process reads about itself; tests have files of their own.
struct CgroupFiles {
  std::string mounts = "/proc/self/mountinfo", self = "/proc/self/cgroup";
};

// Not thread-safe. Needs no thread; cgroups stay when it goes.
class CgroupTree {
 public:
  // Moves this process, and what else stands in a unit's delegated cgroup, into the leaf. `name`: of the folder, where
  // it is not a unit's. Error: why no cgroups can be made here, in words for an administrator.
  static Result<CgroupTree> open(const std::string& name, const CgroupFiles& files = {});

  const std::string& path() const { return base_; }
  // Of those that are set: "memory pids cpu".
  const std::string& controllers() const { return controllers_; }

  // Makes the cgroup of a virtual GPU if it is not there, and sets its bounds.
  Status set(const std::string& vgpu, const CgroupBounds& bounds) const;
  // To enter it, a process writes "0" there.
  Result<UniqueFd> entrance(const std::string& vgpu) const;
  // Nothing: there is no such cgroup.
  std::optional<CgroupUse> use(const std::string& vgpu) const;
  // Ends all that still stands in it.
  void remove(const std::string& vgpu) const;

 private:
  CgroupTree(std::string base, std::string controllers)
      : base_(std::move(base)), controllers_(std::move(controllers)) {}
  std::string folder(const std::string& vgpu) const { return base_ + "/vgpu-" + vgpu; }
  bool has(const char* controller) const { return controllers_.find(controller) != std::string::npos; }

  std::string base_, controllers_;
};

// Before systemd starts a unit again whose sessions live on: takes the controllers from their cgroups, so that the
// unit's may hold a process. Whoever is started then gives them back.
void release_controllers(const CgroupFiles& files = {});

}  // namespace bandsaw
