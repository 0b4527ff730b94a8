#include "tools/vgpuctl/other_host.h"

#include <fcntl.h>
#include <poll.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstring>
#include <utility>

#include "memory/base/unique_fd.h"

extern "C" char** environ;

namespace bandsaw::ctl {
namespace {

struct Pipe {
  UniqueFd reads, writes;
};

Result<Pipe> make_pipe() {
  int ends[2];
  if (::pipe2(ends, O_CLOEXEC) < 0) return Status::system("cannot make a pipe");
  return Pipe{UniqueFd(ends[0]), UniqueFd(ends[1])};
}

// Until both have ended.
void read_all(const UniqueFd& out, const UniqueFd& error, Said* said) {
  std::array<pollfd, 2> ends{{{out.get(), POLLIN, 0}, {error.get(), POLLIN, 0}}};
  std::array<char, 4096> buffer;
  while (ends[0].fd >= 0 || ends[1].fd >= 0) {
    if (::poll(ends.data(), ends.size(), -1) < 0 && errno != EINTR) return;
    for (pollfd& end : ends) {
      if (end.fd < 0 || end.revents == 0) continue;
      const ssize_t got = ::read(end.fd, buffer.data(), buffer.size());
      if (got < 0 && errno == EINTR) continue;
      if (got <= 0) {
        end.fd = -1;
      } else {
        (end.fd == out.get() ? said->out : said->error).append(buffer.data(), static_cast<size_t>(got));
      }
      end.revents = 0;
    }
  }
}

int wait_for(pid_t child) {
  int status = 0;
  while (::waitpid(child, &status, 0) < 0) {
    if (errno != EINTR) return 127;
  }
  return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

// What a person is told: without our own name, and in one line.
std::string words_of(const Said& said) {
  std::string text = said.error.empty() ? said.out : said.error;
  while (!text.empty() && text.back() == '\n') text.pop_back();
  if (text.starts_with("vgpuctl: ")) text.erase(0, std::strlen("vgpuctl: "));
  for (size_t at; (at = text.find('\n')) != std::string::npos;) text.replace(at, 1, ";");
  return text.empty() ? fmt::format("exit status {}", said.exit) : text;
}

}  // namespace

Result<Said> run(const std::vector<std::string>& words, const std::string& input, const std::string& output) {
  const UniqueFd from(::open(input.empty() ? "/dev/null" : input.c_str(), O_RDONLY | O_CLOEXEC));
  if (!from) return Status::system("{}", input);
  auto out = make_pipe(), error = make_pipe();
  if (!out.ok() || !error.ok()) return out.ok() ? error.status() : out.status();
  UniqueFd file;
  if (!output.empty()) {
    file.reset(::open(output.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600));
    if (!file) return Status::system("{}", output);
  }
  posix_spawn_file_actions_t actions;
  posix_spawn_file_actions_init(&actions);
  posix_spawn_file_actions_adddup2(&actions, from.get(), STDIN_FILENO);
  posix_spawn_file_actions_adddup2(&actions, file ? file.get() : out.value().writes.get(), STDOUT_FILENO);
  posix_spawn_file_actions_adddup2(&actions, error.value().writes.get(), STDERR_FILENO);
  std::vector<char*> arguments;
  for (const std::string& word : words) arguments.push_back(const_cast<char*>(word.c_str()));
  arguments.push_back(nullptr);
  pid_t child = 0;
  const int failed = ::posix_spawnp(&child, arguments[0], &actions, nullptr, arguments.data(), environ);
  posix_spawn_file_actions_destroy(&actions);
  if (failed) return Status::error(failed, "cannot run {}: {}", words[0], std::strerror(failed));
  out.value().writes.reset();
  error.value().writes.reset();
  Said said;
  read_all(out.value().reads, error.value().reads, &said);
  said.exit = wait_for(child);
  return said;
}

Status run_here(const std::string& run_folder, const std::vector<std::string>& words) {
  std::vector<std::string> all{"/proc/self/exe", "--run", run_folder};
  all.insert(all.end(), words.begin(), words.end());
  const auto said = run(all);
  if (!said.ok()) return said.status();
  return said.value().ok() ? Status() : Status::error(EIO, "{}", words_of(said.value()));
}

std::string shell_word(const std::string& word) {
  std::string text = "'";
  for (const char one : word) text += one == '\'' ? std::string("'\\''") : std::string(1, one);
  return text + "'";
}

Result<std::string> OtherHost::command_of(const std::string& uri) {
  const size_t scheme = uri.find("+ssh://");
  const size_t begin = scheme == std::string::npos ? scheme : scheme + std::strlen("+ssh://");
  std::string place = begin == std::string::npos ? "" : uri.substr(begin, uri.find('/', begin) - begin);
  if (place.empty() || place.starts_with('-')) {
    return Status::error(
        EINVAL, "'{}' does not say how to run a command there, as qemu+ssh://HOST/system does: give --remote", uri);
  }
  std::string port;
  const size_t colon = place.rfind(':');
  if (colon != std::string::npos && place.find(']', colon) == std::string::npos) {
    port = "-p " + shell_word(place.substr(colon + 1)) + " ";
    place.erase(colon);
  }
  return "ssh -o BatchMode=yes " + port + shell_word(place);
}

Result<Said> OtherHost::try_run(const std::string& line, const std::string& input, const std::string& output) const {
  return ctl::run({"/bin/sh", "-c", command_ + " \"$1\"", "sh", line}, input, output);
}

Result<std::string> OtherHost::run(const std::string& line, const std::string& input, const std::string& output) const {
  auto said = try_run(line, input, output);
  if (!said.ok()) return said.status();
  if (!said.value().ok()) return Status::error(EIO, "on the other host: {}", words_of(said.value()));
  std::string text = std::move(said.value().out);
  while (!text.empty() && text.back() == '\n') text.pop_back();
  return text;
}

}  // namespace bandsaw::ctl
