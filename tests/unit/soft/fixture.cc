#include "tests/unit/soft/fixture.h"

namespace bandsaw::soft {

namespace {

std::mutex g_module_mutex;
FakeModule g_module;
std::map<std::string, KernelEntry> g_entries;  // of all kernels, by name

class FakeProgram : public Program {
 public:
  explicit FakeProgram(FakeModule module) : module_(std::move(module)) {}
  std::vector<std::string> kernel_names() const override {
    std::vector<std::string> names;
    for (const KernelCode& kernel : module_.kernels) names.push_back(kernel.name);
    return names;
  }
  const KernelCode* kernel(const std::string& name, std::string*) override {
    for (const KernelCode& kernel : module_.kernels)
      if (kernel.name == name) return &kernel;
    return nullptr;
  }
  const std::vector<Variable>& variables() const override { return module_.variables; }
  uint64_t code_bytes() const override { return kFakeCodeBytes; }
  struct FakeLoaded : Loaded {
    std::map<std::string, KernelEntry> entries;
    KernelEntry entry(const std::string& kernel, std::string*) override {
      const auto found = entries.find(kernel);
      return found == entries.end() ? nullptr : found->second;
    }
    uint64_t function_address(const std::string& name) const override {
      const auto found = entries.find(name);
      return found == entries.end() ? 0 : reinterpret_cast<uint64_t>(found->second);
    }
  };
  std::unique_ptr<Loaded> load(const std::map<std::string, uint64_t>&, std::string*) override {
    auto loaded = std::make_unique<FakeLoaded>();
    for (const KernelCode& kernel : module_.kernels) loaded->entries[kernel.name] = g_entries[kernel.name];
    return loaded;
  }

 private:
  const FakeModule module_;
};

}  // namespace

std::unique_ptr<Program> compile(std::string_view ptx, const CompileOptions&, std::string* log) {
  std::lock_guard lock(g_module_mutex);
  if (ptx.find("broken") != ptx.npos) {
    *log = "line 2: broken";
    return nullptr;
  }
  return std::make_unique<FakeProgram>(g_module);
}

void set_fake_module(FakeModule module) {
  std::lock_guard lock(g_module_mutex);
  g_module = std::move(module);
}

KernelCode fake_kernel(const std::string& name, KernelEntry entry, uint32_t parameter_bytes) {
  KernelCode kernel;
  kernel.name = name;
  g_entries[name] = entry;
  kernel.parameter_bytes = parameter_bytes;
  return kernel;
}

LibraryRef SoftDeviceTest::load(FakeModule module) {
  set_fake_module(std::move(module));
  const std::string text = ".version 9.0\n.target sm_90\n.address_size 64\n";
  LibraryRef library;
  std::string log;
  EXPECT_EQ(device->library_load(std::as_bytes(std::span(text)), &library, &log), CUDA_SUCCESS) << log;
  return library;
}

KernelRef SoftDeviceTest::load(const KernelCode& kernel) {
  KernelRef found;
  EXPECT_EQ(device->library_kernel(load(FakeModule{{kernel}, {}}), kernel.name, &found), CUDA_SUCCESS);
  return found;
}

}  // namespace bandsaw::soft
