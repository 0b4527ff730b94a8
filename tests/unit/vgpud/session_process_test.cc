// How a session is started.
#include "backend/vgpud/sessions/session_process.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

namespace bandsaw {
namespace {

int told = -1;

// As libevent does it.
void tell(int number) {
  const char byte = static_cast<char>(number);
  EXPECT_EQ(::write(told, &byte, 1), 1);
}

// It may not have begun its program when it is ended.
TEST(SessionProcess, ASignalForASessionIsNotTakenForItsParents) {
  int ends[2];
  ASSERT_EQ(::pipe2(ends, O_CLOEXEC | O_NONBLOCK), 0);
  const UniqueFd reads(ends[0]), writes(ends[1]), null(::open("/dev/null", O_RDWR | O_CLOEXEC));
  told = writes.get();
  const auto before = ::signal(SIGTERM, tell);
  for (int i = 0; i < 50; ++i) {
    const auto started = start_session({"/bin/sh", "-c", "exec sleep 60"}, null, null, UniqueFd());
    ASSERT_TRUE(started.ok());
    ::kill(started.value(), SIGTERM);
    int status = 0;
    ASSERT_EQ(::waitpid(started.value(), &status, 0), started.value());
    EXPECT_TRUE(WIFSIGNALED(status) && WTERMSIG(status) == SIGTERM) << status;
  }
  ::signal(SIGTERM, before);
  char byte = 0;
  EXPECT_EQ(::read(reads.get(), &byte, 1), -1) << "the parent was told";
}

}  // namespace
}  // namespace bandsaw
