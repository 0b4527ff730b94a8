// What the printer writes is what ptxas reads: it must make the same machine code as from the original. Runs only
// where the CUDA Toolkit is installed.
#include <sys/wait.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>

#include "support.h"
#include "vgpu-sched/ptx/printer.h"

namespace bandsaw::ptx {
namespace {

int assemble(const std::string& target, const std::filesystem::path& input, const std::filesystem::path& output) {
  std::string architecture = "-arch=" + target;
  pid_t child = fork();
  if (child == 0) {
    execl(PTXAS, "ptxas", "-c", architecture.c_str(), input.c_str(), "-o", output.c_str(), nullptr);
    _exit(127);
  }
  int status = 0;
  waitpid(child, &status, 0);
  return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

class Ptxas : public testing::TestWithParam<const char*> {};

TEST_P(Ptxas, AcceptsWhatThePrinterWrites) {
  if (access(PTXAS, X_OK) != 0) GTEST_SKIP() << "no ptxas at " << PTXAS;
  std::string folder = (std::filesystem::temp_directory_path() / "bandsaw-ptxas-XXXXXX").string();
  ASSERT_TRUE(mkdtemp(folder.data()));
  std::filesystem::path here(folder);
  Module module = parse(sample(GetParam()));
  std::ofstream(here / "before.ptx") << sample(GetParam());
  std::ofstream(here / "after.ptx") << print(module);
  EXPECT_EQ(assemble(module.targets[0], here / "before.ptx", here / "before.cubin"), 0);
  EXPECT_EQ(assemble(module.targets[0], here / "after.ptx", here / "after.cubin"), 0);
  std::string name = GetParam();
  if (name != "debug" && name != "lines") {  // those hold the text itself; some names hold a count of what was parsed
    EXPECT_NEAR(file_size(here / "before.cubin"), file_size(here / "after.cubin"), 64);
  }
  std::filesystem::remove_all(here);
}

INSTANTIATE_TEST_SUITE_P(Samples, Ptxas, testing::ValuesIn(kSamples), [](const auto& p) { return p.param; });

}  // namespace
}  // namespace bandsaw::ptx
