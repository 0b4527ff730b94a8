#include "backend/vgpud/mps/mps_process.h"

#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>

namespace bandsaw {
namespace {

// As of a process that ends while it is looked at.
TEST(MpsProcess, AFileThatCannotBeReadEndsNothing) {
  char folder[] = "/tmp/bandsaw-mps-XXXXXX";
  MpsProcess process;
  process.folder = mkdtemp(folder);
  for (const char* log : {"output.log", "control.log", "server.log"}) {
    std::filesystem::create_directories(process.folder + "/log/" + log);
  }
  EXPECT_NO_THROW(mps_log_tail(process));
  std::filesystem::remove_all(process.folder);
}

}  // namespace
}  // namespace bandsaw
