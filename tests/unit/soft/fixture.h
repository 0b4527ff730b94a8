// A software device whose "compiler" knows kernels written in C++, so that the runtime is tested without LLVM.
#pragma once

#include "backend/device/soft/compile.h"
#include "tests/unit/soft/host_fixture.h"

namespace bandsaw::soft {

// What compile() gives for any text. Set before library_load; functions take their arguments from parameters.
inline constexpr int64_t kFakeCodeBytes = 5000;
struct FakeModule {
  std::vector<KernelCode> kernels;
  std::vector<Variable> variables;
};
void set_fake_module(FakeModule module);
KernelCode fake_kernel(const std::string& name, KernelEntry entry, uint32_t parameter_bytes = 0);

class SoftDeviceTest : public HostFixture {
 protected:
  KernelRef load(const KernelCode& kernel);  // the only kernel of a new library
  LibraryRef load(FakeModule module);
};

}  // namespace bandsaw::soft
