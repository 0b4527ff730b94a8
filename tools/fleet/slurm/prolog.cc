#include "tools/fleet/slurm/prolog.h"

#include <fmt/format.h>
#include <unistd.h>

#include <fstream>
#include <iterator>
#include <sstream>
#include <vector>

namespace bandsaw::slurm {
namespace {

constexpr const char* kSlurmd = "slurmd";
constexpr size_t kState = 0, kParent = 1, kBegan = 19;  // fields of /proc/PID/stat behind the name

struct Process {
  std::string name, state, parent, began;
};

// Without a name: there is no such process.
Process read_process(const std::string& pid) {
  std::ifstream file("/proc/" + pid + "/stat");
  const std::string text{std::istreambuf_iterator<char>(file), {}};
  const size_t open = text.find('('), close = text.rfind(')');
  if (open == text.npos || close == text.npos) return {};
  std::istringstream rest(text.substr(close + 1));
  const std::vector<std::string> fields{std::istream_iterator<std::string>(rest), {}};
  if (fields.size() <= kBegan) return {};
  return {text.substr(open + 1, close - open - 1), fields[kState], fields[kParent], fields[kBegan]};
}

}  // namespace

std::string slurmd_above() {
  std::string pid = std::to_string(::getppid());
  while (pid != "0") {
    const Process process = read_process(pid);
    if (process.name == kSlurmd) return fmt::format("{} {}", pid, process.began);
    if (process.name.empty()) return "";
    pid = process.parent;
  }
  return "";
}

bool slurmd_lives(const std::string& slurmd) {
  const size_t blank = slurmd.find(' ');
  if (blank == slurmd.npos) return true;
  const Process process = read_process(slurmd.substr(0, blank));
  return process.name == kSlurmd && process.state != "Z" && process.began == slurmd.substr(blank + 1);
}

}  // namespace bandsaw::slurm
