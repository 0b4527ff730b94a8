// What the printer writes is what ptxas reads: it must make the same machine code as from the original. Runs only
// where the CUDA Toolkit is installed.
#include "ptxas.h"

#include "support.h"
#include "vgpu-sched/ptx/printer.h"

namespace bandsaw::ptx {
namespace {

class Ptxas : public testing::TestWithParam<const char*> {};

TEST_P(Ptxas, AcceptsWhatThePrinterWrites) {
  if (!have_ptxas()) GTEST_SKIP() << "no ptxas at " << PTXAS;
  const ScratchFolder here;
  Module module = parse(sample(GetParam()));
  std::ofstream(here / "before.ptx") << sample(GetParam());
  std::ofstream(here / "after.ptx") << print(module);
  EXPECT_EQ(assemble(module.targets[0], here / "before.ptx", here / "before.cubin"), 0);
  EXPECT_EQ(assemble(module.targets[0], here / "after.ptx", here / "after.cubin"), 0);
  const auto before = code_of(here / "before.cubin"), after = code_of(here / "after.cubin");
  EXPECT_FALSE(before.empty());
  EXPECT_TRUE(before == after);  // not printed: it is bytes
}

INSTANTIATE_TEST_SUITE_P(Samples, Ptxas, testing::ValuesIn(kSamples), [](const auto& p) { return p.param; });

}  // namespace
}  // namespace bandsaw::ptx
