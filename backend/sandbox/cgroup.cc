#include "backend/sandbox/cgroup.h"

#include <fcntl.h>
#include <fmt/ranges.h>
#include <sys/stat.h>
#include <sys/xattr.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <fstream>
#include <sstream>
#include <string_view>
#include <thread>
#include <vector>

#include "memory/base/log.h"

namespace bandsaw {
namespace {

constexpr const char *kLeaf = "/daemon", *kControlLeaf = "/.control";  // the second is systemd's, for ExecStartPre
constexpr const char* kNeeded[] = {"memory", "pids"};
constexpr const char* kWanted[] = {"cpu", "io"};
constexpr int kRemoveTries = 100;
constexpr std::chrono::milliseconds kRemovePause{10};

std::string read_text(const std::string& path) {
  std::ifstream file(path);
  std::ostringstream text;
  text << file.rdbuf();
  return text.str();
}

Status write_text(const std::string& path, const std::string& text) {
  const UniqueFd file(::open(path.c_str(), O_WRONLY | O_TRUNC | O_CLOEXEC));
  if (!file || ::write(file.get(), text.data(), text.size()) < 0) {
    return Status::system("cannot write '{}' to {}", text, path);
  }
  return {};
}

bool has_word(const std::string& text, const std::string& wanted) {
  std::istringstream words(text);
  for (std::string word; words >> word;) {
    if (word == wanted) return true;
  }
  return false;
}

// Where the tree of version 2 is mounted; empty: nowhere.
std::string mount_point(const std::string& mountinfo) {
  std::istringstream lines(read_text(mountinfo));
  for (std::string line; std::getline(lines, line);) {
    const size_t rest = line.find(" - ");
    if (rest == line.npos || !line.substr(rest + 3).starts_with("cgroup2 ")) continue;
    std::istringstream words(line);
    std::string number, parent, device, root, point;
    words >> number >> parent >> device >> root >> point;
    return point;
  }
  return {};
}

// Of this process in that tree: "/system.slice/bandsaw.service". Empty: it has none.
std::string own_cgroup(const std::string& self) {
  std::istringstream lines(read_text(self));
  for (std::string line; std::getline(lines, line);) {
    if (line.starts_with("0::/")) return line.substr(3);
  }
  return {};
}

std::string without_ending(std::string path, std::string_view ending) {
  if (path.ends_with(ending)) path.resize(path.size() - ending.size());
  return path;
}

bool is_delegated(const std::string& folder) {
  char value[8];
  for (const char* name : {"trusted.delegate", "user.delegate"}) {
    if (::getxattr(folder.c_str(), name, value, sizeof value) == 1 && value[0] == '1') return true;
  }
  return false;
}

Status make_folder(const std::string& path) {
  if (::mkdir(path.c_str(), 0755) < 0 && errno != EEXIST) return Status::system("cannot make {}", path);
  return {};
}

// All processes of a cgroup go into its leaf; one that ends meanwhile is none any more.
Status move_to_leaf(const std::string& folder) {
  if (Status status = make_folder(folder + kLeaf); !status.ok()) return status;
  std::istringstream processes(read_text(folder + "/cgroup.procs"));
  for (std::string process; processes >> process;) {
    Status status = write_text(folder + kLeaf + "/cgroup.procs", process);
    if (!status.ok() && status.code() != ESRCH) return status;
  }
  return {};
}

Status enable(const std::string& folder, std::string* enabled) {
  const std::string there = read_text(folder + "/cgroup.controllers");
  for (const char* name : kNeeded) {
    if (!has_word(there, name)) {
      return Status::error(ENOTSUP, "cgroup v2 has no '{}' controller in {}: cgroup v1 has it, or it is not delegated",
                           name, folder);
    }
    if (Status status = write_text(folder + "/cgroup.subtree_control", std::string("+") + name); !status.ok()) {
      return status;
    }
    *enabled += (enabled->empty() ? "" : " ") + std::string(name);
  }
  for (const char* name : kWanted) {
    if (!has_word(there, name)) continue;
    if (write_text(folder + "/cgroup.subtree_control", std::string("+") + name).ok())
      *enabled += " " + std::string(name);
  }
  return {};
}

uint64_t number_in(const std::string& text, std::string_view key = {}) {
  std::istringstream words(text);
  std::string name;
  uint64_t number = 0;
  if (key.empty()) return words >> number ? number : 0;
  while (words >> name >> number) {
    if (name == key) return number;
  }
  return 0;
}

}  // namespace

Result<CgroupTree> CgroupTree::open(const std::string& name, const CgroupFiles& files) {
  const std::string root = mount_point(files.mounts), own = own_cgroup(files.self);
  if (root.empty() || own.empty()) return Status::error(ENOTSUP, "cgroup v2 is not mounted here");
  const std::string unit = root + without_ending(own == "/" ? "" : own, kLeaf);
  std::string base, controllers;
  if (is_delegated(unit)) {
    base = unit;
    if (Status status = move_to_leaf(base); !status.ok()) return status;
  } else {
    std::string of_root;
    if (Status status = enable(root, &of_root); !status.ok()) return status;
    base = root + "/" + name;
    if (Status status = make_folder(base); !status.ok()) return status;
  }
  if (Status status = enable(base, &controllers); !status.ok()) return status;
  return CgroupTree(base, controllers);
}

Status CgroupTree::set(const std::string& vgpu, const CgroupBounds& bounds) const {
  const std::string path = folder(vgpu);
  Status status = make_folder(path);
  const auto bound = [](uint64_t value) { return value == 0 ? std::string("max") : std::to_string(value); };
  if (status.ok()) status = write_text(path + "/memory.max", bound(bounds.memory));
  if (status.ok()) status = write_text(path + "/pids.max", bound(bounds.pids));
  if (status.ok() && has("cpu")) status = write_text(path + "/cpu.weight", std::to_string(bounds.cpu_weight));
  if (!status.ok()) return status;
  // What swaps is memory that the bound does not see. A host without swap has no such file.
  if (bounds.memory != 0 && ::access((path + "/memory.swap.max").c_str(), F_OK) == 0) {
    return write_text(path + "/memory.swap.max", "0");
  }
  return {};
}

Result<UniqueFd> CgroupTree::entrance(const std::string& vgpu) const {
  const std::string path = folder(vgpu) + "/cgroup.procs";
  UniqueFd file(::open(path.c_str(), O_WRONLY | O_CLOEXEC));
  if (!file) return Status::system("cannot open {}", path);
  return file;
}

std::optional<CgroupUse> CgroupTree::use(const std::string& vgpu) const {
  const std::string path = folder(vgpu);
  if (::access(path.c_str(), F_OK) != 0) return std::nullopt;
  return CgroupUse{.memory = number_in(read_text(path + "/memory.current")),
                   .pids = number_in(read_text(path + "/pids.current")),
                   .cpu_us = number_in(read_text(path + "/cpu.stat"), "usage_usec"),
                   .oom_kills = number_in(read_text(path + "/memory.events"), "oom_kill")};
}

void CgroupTree::remove(const std::string& vgpu) const {
  const std::string path = folder(vgpu);
  if (::access(path.c_str(), F_OK) != 0) return;
  (void)write_text(path + "/cgroup.kill", "1");
  for (int i = 0; i < kRemoveTries; ++i) {  // what was killed is there until it has been taken down
    if (::rmdir(path.c_str()) == 0 || errno != EBUSY) return;
    std::this_thread::sleep_for(kRemovePause);
  }
  log::warn("{} stays: processes in it do not end", path);
}

void release_controllers(const CgroupFiles& files) {
  const std::string root = mount_point(files.mounts), own = own_cgroup(files.self);
  if (root.empty() || own.empty() || own == "/") return;
  const std::string unit = root + without_ending(without_ending(own, kControlLeaf), kLeaf);
  if (!is_delegated(unit)) return;
  std::istringstream enabled(read_text(unit + "/cgroup.subtree_control"));
  for (std::string name; enabled >> name;) (void)write_text(unit + "/cgroup.subtree_control", "-" + name);
}

}  // namespace bandsaw
