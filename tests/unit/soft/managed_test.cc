// Code whose managed variables were given addresses runs like any other code: here the software device stands for a
// GPU.
#include <fstream>
#include <iterator>

#include "tests/unit/soft/host_fixture.h"
#include "vgpu-sched/ptx/initial_value.h"
#include "vgpu-sched/ptx/managed.h"
#include "vgpu-sched/ptx/parser.h"
#include "vgpu-sched/ptx/printer.h"

namespace bandsaw::soft {
namespace {

class PlacedManaged : public HostFixture {
 protected:
  void SetUp() override {
    std::ifstream file(PTX_SAMPLES "/managed.ptx");
    ptx::Module module = ptx::parse(std::string(std::istreambuf_iterator<char>(file), {}));
    for (const ptx::ManagedVariable& variable : ptx::managed_variables(module))
      addresses_[variable.name] = alloc(variable.bytes);
    const std::vector<ptx::PlacedVariable> placed = ptx::place_managed(&module, addresses_);
    const std::string text = ptx::print(module);
    std::string log;
    ASSERT_EQ(device->library_load(std::as_bytes(std::span(text)), &library_, &log), CUDA_SUCCESS) << log;
    for (const ptx::PlacedVariable& variable : placed) initialise(variable);
  }

  void initialise(const ptx::PlacedVariable& variable) {
    std::vector<std::byte> bytes(variable.declaration.bytes());
    if (variable.source.empty()) {
      const auto write = [&](uint64_t offset, std::span<const std::byte> value) {
        std::copy(value.begin(), value.end(), bytes.begin() + static_cast<std::ptrdiff_t>(offset));
      };
      ptx::write_initial(variable.declaration, write,
                         [](uint64_t, uint32_t, const ptx::SymbolAddress& address) { ADD_FAILURE() << address.name; });
    } else {
      uint64_t source = 0, size = 0;
      ASSERT_EQ(device->library_global(context, library_, variable.source, &source, &size), CUDA_SUCCESS);
      ASSERT_EQ(size, bytes.size());
      ASSERT_EQ(copy_out(legacy, bytes.data(), source, size), CUDA_SUCCESS);
    }
    ASSERT_EQ(copy_in(legacy, addresses_.at(variable.declaration.name), bytes.data(), bytes.size()), CUDA_SUCCESS);
  }

  int32_t value(const std::string& name, uint64_t index = 0) {
    int32_t got = 0;
    EXPECT_EQ(copy_out(legacy, &got, addresses_.at(name) + 4 * index, 4), CUDA_SUCCESS);
    EXPECT_EQ(sync(), CUDA_SUCCESS);
    return got;
  }

  ptx::Addresses addresses_;
  LibraryRef library_;
};

TEST_F(PlacedManaged, KernelsUseWhatStandsAtTheAddresses) {
  EXPECT_EQ(value("counter"), 7);
  KernelRef kernel;
  ASSERT_EQ(device->library_kernel(library_, "_Z6changePii", &kernel), CUDA_SUCCESS);
  const uint64_t out = alloc(16);
  addresses_["out"] = out;
  ASSERT_EQ(launch(legacy, kernel, 1, 4, out, 2), CUDA_SUCCESS);
  EXPECT_EQ(value("out", 0), 0 + 3 + 3 + 6 + 5 + 8);
  EXPECT_EQ(value("out", 3), 0 + 3 + 3 + 6 + 8 + 8);
  EXPECT_EQ(value("counter"), 11);
  EXPECT_EQ(value("big", 2), 5);
  EXPECT_EQ(value("two", 1), 'b' + 3);
}

}  // namespace
}  // namespace bandsaw::soft
