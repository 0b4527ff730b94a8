#include "backend/control/paths.h"

#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <vector>

namespace bandsaw {
namespace {

std::string from_environment(const char* variable, const char* fallback) {
  const char* value = std::getenv(variable);
  return value && *value ? value : fallback;
}

}  // namespace

std::string run_directory() { return from_environment("BANDSAW_RUN", "/run/bandsaw"); }
std::string state_directory() { return from_environment("BANDSAW_STATE", "/var/lib/bandsaw"); }

Status make_folder(const std::string& path, unsigned mode) {
  if (::mkdir(path.c_str(), mode) < 0) return errno == EEXIST ? Status() : Status::system("cannot make {}", path);
  return ::chmod(path.c_str(), mode) < 0 ? Status::system("cannot set the permissions of {}", path) : Status();
}

bool valid_name(std::string_view name) {
  if (name.empty() || name.size() > 63 || name.front() == '-') return false;
  return std::all_of(name.begin(), name.end(),
                     [](char c) { return (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9') || c == '-'; });
}

std::string find_program(const std::string& name, const std::string& room) {
  std::error_code ignored;
  const std::filesystem::path self = std::filesystem::read_symlink("/proc/self/exe", ignored).parent_path();
  std::vector<std::filesystem::path> places;
  if (const std::string libexec = from_environment("BANDSAW_LIBEXEC", ""); !libexec.empty()) places = {libexec};
  places.insert(places.end(), {self, self / ".." / room, self / ".." / "libexec" / "bandsaw"});
  for (const auto& place : places) {
    const std::string path = (place / name).lexically_normal().string();
    if (::access(path.c_str(), X_OK) == 0) return path;
  }
  return {};
}

std::string runner_of(const std::string& runner, const std::string& kind) {
  const std::string own = runner + "-" + kind;
  return ::access(own.c_str(), X_OK) == 0 ? own : runner;
}

std::string find_runner() {
  if (std::string one = find_program("bandsaw-runner", "runner"); !one.empty()) return one;
  for (const std::string_view end : {"-cuda", "-soft"}) {
    std::string each = find_program("bandsaw-runner" + std::string(end), "runner");
    if (!each.empty()) return each.substr(0, each.size() - end.size());
  }
  return {};
}

}  // namespace bandsaw
