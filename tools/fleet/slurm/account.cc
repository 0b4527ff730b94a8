#include "tools/fleet/slurm/account.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <syslog.h>
#include <unistd.h>

#include <chrono>
#include <exception>
#include <random>
#include <thread>

#include "tools/fleet/slurm/process.h"

namespace bandsaw::slurm {
namespace {

constexpr int kTries = 12;
constexpr std::chrono::milliseconds kFirstPause{50}, kLongestPause{8000};

std::string joined(const Account& account) { return fmt::format("{}", fmt::join(account.lines, "; ")); }

// Empty: the database does not know the job yet, or has no comment of it.
Result<std::string> read_comment(uint32_t job) {
  auto ended = run_program({"sacct", "--noheader", "--parsable2", "--allocations", "--allusers",
                            "--format=AdminComment", fmt::format("--jobs={}", job)},
                           STDOUT_FILENO);
  if (!ended.ok()) return ended.status();
  if (ended.value().status != 0) return Status::error(ENOTSUP, "there is no database");
  std::string& text = ended.value().output;
  while (text.ends_with('\n')) text.pop_back();
  return std::move(text);
}

void write_comment(uint32_t job, const std::string& comment) {
  (void)run_program({"sacctmgr", "--immediate", "--quiet", "modify", "job", "where", fmt::format("jobid={}", job),
                     "set", "admincomment=" + comment},
                    STDOUT_FILENO);
}

// Nobody can append there: it is read again after a while, whose length other nodes do not share, and written again if
// somebody else has written in between.
void write_down(const Account& account) {
  std::minstd_rand random(std::random_device{}());
  auto pause = kFirstPause;
  for (int i = 0; i < kTries; ++i) {
    const auto comment = read_comment(account.job);
    if (!comment.ok()) break;
    const std::string wanted = merged(comment.value(), account);
    if (comment.value() == wanted) return;
    write_comment(account.job, wanted);
    std::this_thread::sleep_for(pause / 2 + pause * (random() % 1000) / 1000);
    pause = std::min(pause * 2, kLongestPause);
  }
  ::syslog(LOG_NOTICE, "vgpu: job %u has used %s; sacct does not say so", account.job, joined(account).c_str());
}

}  // namespace

std::string merged(const std::string& comment, const Account& account) {
  const std::string lines = joined(account);
  if (comment.find(lines) != std::string::npos) return comment;
  return comment.empty() ? lines : comment + "; " + lines;
}

void account_in_background(const Account& account) {
  if (account.lines.empty() || ::fork() != 0) return;
  ::setsid();  // slurmd ends what is left of an epilog's processes
  const int nowhere = ::open("/dev/null", O_RDWR | O_CLOEXEC);
  for (const int stream : {STDIN_FILENO, STDOUT_FILENO, STDERR_FILENO}) ::dup2(nowhere, stream);
  ::openlog("bandsaw-slurm", LOG_PID, LOG_DAEMON);
  try {
    write_down(account);
  } catch (const std::exception& error) {
    ::syslog(LOG_ERR, "vgpu: job %u: %s", account.job, error.what());
  }
  ::_exit(0);
}

}  // namespace bandsaw::slurm
