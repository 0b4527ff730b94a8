// Which virtual GPUs a process may use, and where their sessions are reached: direct mode's sockets, or the kernel
// module's device files.
#pragma once

#include <dirent.h>
#include <unistd.h>

#include <algorithm>
#include <charconv>
#include <cstdlib>
#include <string>
#include <string_view>
#include <system_error>
#include <utility>
#include <vector>

namespace bandsaw {

struct VirtualGpuPath {
  std::string path;
  bool direct = false;  // a session's socket; else a device file
};

namespace detail {

// All whose socket is in the folder, by name: a container has only its own there. None: a path that says where they
// were looked for.
inline std::vector<VirtualGpuPath> all_virtual_gpus(const std::string& folder) {
  std::vector<VirtualGpuPath> found;
  if (DIR* const entries = opendir(folder.c_str())) {
    while (const dirent* entry = readdir(entries)) {
      const std::string path = folder + "/" + entry->d_name + "/direct.sock";
      if (access(path.c_str(), F_OK) == 0) found.push_back({path, true});
    }
    closedir(entries);
  }
  std::sort(found.begin(), found.end(), [](const auto& a, const auto& b) { return a.path < b.path; });
  if (found.empty()) found.push_back({folder + "/*/direct.sock", true});
  return found;
}

inline std::vector<VirtualGpuPath> named_virtual_gpus(std::string_view names) {
  const char* const run = std::getenv("BANDSAW_RUN");
  const std::string folder = run && *run ? run : "/run/bandsaw";
  if (names == "*") return all_virtual_gpus(folder);
  std::vector<VirtualGpuPath> found;
  while (!names.empty()) {
    const size_t end = std::min(names.find(','), names.size());
    std::string_view name = names.substr(0, end);
    names.remove_prefix(std::min(end + 1, names.size()));
    while (!name.empty() && name.front() == ' ') name.remove_prefix(1);
    while (!name.empty() && name.back() == ' ') name.remove_suffix(1);
    if (!name.empty()) found.push_back({folder + "/" + std::string(name) + "/direct.sock", true});
  }
  return found;
}

// /dev/vgpu0, /dev/vgpu1, ... in the order of their numbers, which need not follow each other.
inline std::vector<VirtualGpuPath> virtual_gpu_files() {
  constexpr std::string_view kPrefix = "vgpu";
  std::vector<unsigned> numbers;
  DIR* const folder = opendir("/dev");
  if (!folder) return {};
  while (const dirent* entry = readdir(folder)) {
    const std::string_view name = entry->d_name;
    if (!name.starts_with(kPrefix)) continue;
    unsigned number = 0;
    const auto [end, error] = std::from_chars(name.data() + kPrefix.size(), name.data() + name.size(), number);
    if (error == std::errc() && end == name.data() + name.size()) numbers.push_back(number);
  }
  closedir(folder);
  std::sort(numbers.begin(), numbers.end());
  std::vector<VirtualGpuPath> found;
  for (const unsigned number : numbers) found.push_back({"/dev/vgpu" + std::to_string(number), false});
  return found;
}

}  // namespace detail

// In the order in which programs number them: as BANDSAW_VGPU lists them (direct mode; *: all), else as the device
// files are numbered. Empty: there is none.
inline std::vector<VirtualGpuPath> find_virtual_gpus() {
  const char* const names = std::getenv("BANDSAW_VGPU");
  return names && *names ? detail::named_virtual_gpus(names) : detail::virtual_gpu_files();
}

}  // namespace bandsaw
