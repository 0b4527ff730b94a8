// vgpuctl doctor: what host_checks.h looks at, on this host.
#include <fcntl.h>
#include <fmt/core.h>
#include <grp.h>
#include <poll.h>
#include <pwd.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <fstream>
#include <sstream>

#include "backend/control/paths.h"
#include "memory/base/json.h"
#include "memory/base/unique_fd.h"
#include "tools/vgpuctl/daemon_call.h"
#include "tools/vgpuctl/host_checks.h"
#ifdef BANDSAW_WITH_LIBVIRT
#include "hypervisor/libvirt/domain.h"
#endif

namespace bandsaw::ctl {
namespace {

using nlohmann::json;

std::optional<std::string> read_text(const std::string& path) {
  std::ifstream file(path);
  if (!file) return std::nullopt;
  std::ostringstream text;
  text << file.rdbuf();
  std::string content = text.str();
  while (content.ends_with('\n')) content.pop_back();
  return content;
}

std::string read_all(int fd) {
  std::string text;
  char buffer[4096];
  for (ssize_t got; (got = ::read(fd, buffer, sizeof buffer)) > 0;) text.append(buffer, static_cast<size_t>(got));
  return text;
}

// What it prints to stderr is thrown away.
std::optional<std::string> run_command(const std::vector<std::string>& command) {
  int ends[2];
  if (::pipe2(ends, O_CLOEXEC) < 0) return std::nullopt;
  const UniqueFd from(ends[0]);
  UniqueFd to(ends[1]);
  posix_spawn_file_actions_t actions;
  posix_spawn_file_actions_init(&actions);
  posix_spawn_file_actions_addopen(&actions, STDIN_FILENO, "/dev/null", O_RDONLY, 0);
  posix_spawn_file_actions_adddup2(&actions, to.get(), STDOUT_FILENO);
  posix_spawn_file_actions_addopen(&actions, STDERR_FILENO, "/dev/null", O_WRONLY, 0);
  std::vector<char*> words;
  for (const std::string& word : command) words.push_back(const_cast<char*>(word.c_str()));
  words.push_back(nullptr);
  pid_t pid = 0;
  const int error = ::posix_spawnp(&pid, words[0], &actions, nullptr, words.data(), environ);
  posix_spawn_file_actions_destroy(&actions);
  if (error != 0) return std::nullopt;
  to.reset();
  const std::string text = read_all(from.get());
  int status = 0;
  ::waitpid(pid, &status, 0);
  return WIFEXITED(status) && WEXITSTATUS(status) == 0 ? std::optional(text) : std::nullopt;
}

bool is_member(const std::string& user, const std::string& group) {
  const passwd* const entry = ::getpwnam(user.c_str());
  if (!entry) return false;
  const gid_t primary = entry->pw_gid;
  const struct group* const members = ::getgrnam(group.c_str());
  if (!members) return false;
  if (members->gr_gid == primary) return true;
  for (char** member = members->gr_mem; *member; ++member) {
    if (user == *member) return true;
  }
  return false;
}

std::optional<std::string> libvirt_problem(const Options& options) {
#ifdef BANDSAW_WITH_LIBVIRT
  const auto names = libvirt::domain_names(options.uri);
  return names.ok() ? std::nullopt : std::optional(names.status().message());
#else
  return "this vgpuctl was built without libvirt";
#endif
}

HostFacts this_host(const Options& options) {
  return {
      .read = read_text,
      .exists = [](const std::string& path) { return ::access(path.c_str(), F_OK) == 0; },
      .opens = [](const std::string& path) { return UniqueFd(::open(path.c_str(), O_RDWR | O_CLOEXEC)).get() >= 0; },
      .run = run_command,
      .has_group = [](const std::string& name) { return ::getgrnam(name.c_str()) != nullptr; },
      .is_member = is_member,
      .has_user = [](const std::string& name) { return ::getpwnam(name.c_str()) != nullptr; },
      .has_runner = [] { return !find_runner().empty(); },
      .libvirt_problem = [&options] { return libvirt_problem(options); },
      .status_json = [&options]() -> std::optional<std::string> {
        const Reply reply = call(options, "GET", "/v1/status");
        const json* const content = std::get_if<json>(&reply);
        return content ? std::optional(json_text(*content)) : std::nullopt;
      }};
}

const char* to_text(Verdict verdict) {
  return verdict == Verdict::kGood ? "good" : verdict == Verdict::kNote ? "note" : "BAD";
}

void print_findings(const std::vector<Finding>& findings) {
  std::vector<std::vector<std::string>> rows = {{"", "WHAT", "FOUND"}};
  for (const Finding& finding : findings) rows.push_back({to_text(finding.verdict), finding.what, finding.found});
  const std::vector<std::string> lines = table_lines(rows);
  for (size_t i = 0; i < lines.size(); ++i) {
    fmt::print("{}\n", lines[i]);
    if (i > 0 && !findings[i - 1].to_do.empty()) fmt::print("      {}\n", findings[i - 1].to_do);
  }
}

}  // namespace

int doctor(const Options& options) {
  const std::vector<Finding> findings = check_host(this_host(options));
  if (options.json) {
    json all = json::array();
    for (const Finding& finding : findings) {
      all.push_back({{"verdict", finding.verdict == Verdict::kBad ? "bad" : to_text(finding.verdict)},
                     {"what", finding.what},
                     {"found", finding.found},
                     {"to_do", finding.to_do}});
    }
    fmt::print("{}\n", json_text(all, 2));
  } else {
    print_findings(findings);
  }
  const bool bad = std::any_of(findings.begin(), findings.end(),
                               [](const Finding& finding) { return finding.verdict == Verdict::kBad; });
  return bad ? kRefused : kOk;
}

}  // namespace bandsaw::ctl
