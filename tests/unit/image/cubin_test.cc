#include "backend/device/image/cubin.h"

#include <elf.h>
#include <gtest/gtest.h>

#include <cstring>
#include <fstream>
#include <iterator>
#include <map>

namespace bandsaw::image {
namespace {

std::string cubin() {
  std::ifstream file(SAMPLES "/parameters.cubin");
  if (!file) ADD_FAILURE() << "no sample";
  return {std::istreambuf_iterator<char>(file), {}};
}

CUresult list(const std::string& elf, std::vector<CubinKernel>* kernels) {
  std::string log;
  return list_kernels({reinterpret_cast<const std::byte*>(elf.data()), elf.size()}, kernels, &log);
}

TEST(Cubin, ListsKernelsAndTheirParameters) {
  std::vector<CubinKernel> kernels;
  ASSERT_EQ(list(cubin(), &kernels), CUDA_SUCCESS);
  std::map<std::string, CubinKernel> by_name;
  for (const CubinKernel& kernel : kernels) by_name[kernel.name] = kernel;
  ASSERT_EQ(by_name.size(), 3u);
  EXPECT_TRUE(by_name.at("none").parameters.empty());
  EXPECT_EQ(by_name.at("none").parameter_bytes, 0u);

  const auto& mixed = by_name.at("mixed").parameters;  // char, double, float3, short, pointer
  const uint32_t offsets[] = {0, 8, 16, 28, 32}, sizes[] = {1, 8, 12, 2, 8};
  ASSERT_EQ(mixed.size(), 5u);
  for (size_t i = 0; i < 5; ++i) {
    EXPECT_EQ(mixed[i].offset, offsets[i]) << i;
    EXPECT_EQ(mixed[i].bytes, sizes[i]) << i;
  }
  EXPECT_EQ(by_name.at("mixed").parameter_bytes, 40u);

  const auto& large = by_name.at("large").parameters;
  ASSERT_EQ(large.size(), 3u);
  EXPECT_EQ(large[0].bytes, 5600u);
  EXPECT_EQ(large[2].offset, 5608u);
}

TEST(Cubin, RefusesForeignElf) {
  std::string elf = cubin();
  Elf64_Ehdr header;
  std::memcpy(&header, elf.data(), sizeof header);
  header.e_machine = EM_X86_64;
  std::memcpy(elf.data(), &header, sizeof header);
  std::vector<CubinKernel> kernels;
  EXPECT_EQ(list(elf, &kernels), CUDA_ERROR_INVALID_IMAGE);
}

TEST(Cubin, SurvivesCutsAndFlips) {
  std::string elf = cubin();
  std::vector<CubinKernel> kernels;
  for (size_t length = 0; length + 512 < elf.size(); length += 97)  // the program headers at the end are not read
    EXPECT_EQ(list(elf.substr(0, length), &kernels), CUDA_ERROR_INVALID_IMAGE) << length;
  for (size_t i = 0; i < elf.size(); i += 5) {
    std::string broken = elf;
    broken[i] = static_cast<char>(~broken[i]);
    (void)list(broken, &kernels);  // either way, it returns
  }
}

}  // namespace
}  // namespace bandsaw::image
