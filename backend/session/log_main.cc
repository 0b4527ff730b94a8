// bandsaw-log: puts what a session and its runners write into the session's log, within bounds. It outlives vgpud, as
// sessions do, and ends when the last of them has. There is one for each session, so it links nothing but the C
// library.
#include <errno.h>
#include <grp.h>
#include <signal.h>
#include <sys/prctl.h>
#include <time.h>
#include <unistd.h>

#include <cstring>

#include "backend/control/log_writer_link.h"
#include "backend/session/bounded_log.h"

namespace {

constexpr uid_t kNobody = 65534;
constexpr timespec kPause{0, 2'000'000};  // where much is left out, so that leaving it out is cheap

bool become_nobody() {
  if (::geteuid() != 0) return true;
  return ::setgroups(0, nullptr) == 0 && ::setresgid(kNobody, kNobody, kNobody) == 0 &&
         ::setresuid(kNobody, kNobody, kNobody) == 0;
}

}  // namespace

int main(int argc, char** argv) {
  if (argc == 2 && std::strcmp(argv[1], bandsaw::kLogWriterDetach) == 0) {
    const pid_t child = ::fork();
    if (child != 0) return child < 0;
    ::setsid();
  }
  ::signal(SIGPIPE, SIG_IGN);
  if (!become_nobody()) return 1;
  ::prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0);
  bandsaw::BoundedLog log(bandsaw::kLogWriterLog, bandsaw::kLogWriterOldLog);
  static char buffer[64 << 10];
  while (true) {
    const ssize_t length = ::read(bandsaw::kLogWriterPipe, buffer, sizeof buffer);
    if (length < 0 && errno == EINTR) continue;
    if (length <= 0) return 0;
    if (!log.take({buffer, static_cast<size_t>(length)})) ::nanosleep(&kPause, nullptr);
  }
}
