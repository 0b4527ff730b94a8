// nvcc: -lcuda
// The names of a module's kernels are more than one reply of the host's holds: all are counted and listed.
#include <set>
#include <string>
#include <vector>

#include "check.h"

constexpr unsigned kKernels = 300;

static std::string name_of(unsigned i) { return "kernel_" + std::to_string(i) + "_" + std::string(1000, 'n'); }

static std::string ptx() {
  std::string text = ".version 8.0\n.target sm_75\n.address_size 64\n";
  for (unsigned i = 0; i < kKernels; ++i) text += ".visible .entry " + name_of(i) + "() { ret; }\n";
  return text;
}

int main() {
  CHECK_DRIVER(cuInit(0));
  CUdevice device;
  CUcontext context;
  CHECK_DRIVER(cuDeviceGet(&device, 0));
  CHECK_DRIVER(cuDevicePrimaryCtxRetain(&context, device));
  CHECK_DRIVER(cuCtxSetCurrent(context));
  CUmodule module;
  CHECK_DRIVER(cuModuleLoadData(&module, ptx().c_str()));
  unsigned count = 0;
  CHECK_DRIVER(cuModuleGetFunctionCount(&count, module));
  EXPECT_EQ(count, kKernels);
  std::vector<CUfunction> functions(kKernels);
  CHECK_DRIVER(cuModuleEnumerateFunctions(functions.data(), kKernels, module));
  std::set<std::string> names;
  for (const CUfunction function : functions) {
    const char* name = nullptr;
    CHECK_DRIVER(cuFuncGetName(&name, function));
    names.insert(name);
  }
  EXPECT_EQ(names.size(), kKernels);
  EXPECT(names.count(name_of(kKernels - 1)) == 1);

  CUlibrary library;
  CHECK_DRIVER(cuLibraryLoadData(&library, ptx().c_str(), nullptr, nullptr, 0, nullptr, nullptr, 0));
  CHECK_DRIVER(cuLibraryGetKernelCount(&count, library));
  EXPECT_EQ(count, kKernels);
  std::vector<CUkernel> kernels(kKernels);
  CHECK_DRIVER(cuLibraryEnumerateKernels(kernels.data(), kKernels, library));
  EXPECT(kernels.back() != nullptr);
  return passed();
}
