#include "backend/device/image/linker.h"

#include <gtest/gtest.h>

#include <string_view>

namespace bandsaw::image {
namespace {

const std::string kHead = ".version 8.0\n.target sm_90\n.address_size 64\n";

CUresult add(PtxLinker* linker, const std::string& text, CUjitInputType type = CU_JIT_INPUT_PTX) {
  return linker->add(type, std::as_bytes(std::span(text)), "unit");
}

std::string linked(PtxLinker* linker) {
  std::vector<std::byte> ptx;
  if (linker->complete(&ptx) != CUDA_SUCCESS) return "";
  return reinterpret_cast<const char*>(ptx.data());
}

TEST(PtxLinker, BindsOverInputs) {
  PtxLinker linker;
  ASSERT_EQ(add(&linker, kHead + ".extern .func f;\n.extern .global .u32 x;\n.visible .entry k() { .reg .b32 %r<2>; "
                                 "ld.global.u32 %r1, [x]; call f; ret; }"),
            CUDA_SUCCESS);
  ASSERT_EQ(add(&linker, kHead + ".visible .global .u32 x = 5;\n.visible .func f { ret; }"), CUDA_SUCCESS);
  EXPECT_NE(linked(&linker).find(".visible .entry k"), std::string::npos) << linker.log();
  EXPECT_EQ(linker.log(), "");
}

TEST(PtxLinker, NamesWhatIsMissing) {
  PtxLinker linker;
  ASSERT_EQ(
      add(&linker, kHead + ".extern .func gone;\n.extern .func unused;\n.extern .func vprintf;\n"
                           ".extern .global .u32 lost;\n.extern .shared .b32 s[];\n.extern .shared .b32 sized[4];\n"
                           ".visible .entry k() { .reg .b32 %r<3>; ld.global.u32 %r1, [lost]; "
                           "ld.shared.u32 %r2, [s]; ld.shared.u32 %r2, [sized]; call gone; call vprintf; ret; }"),
      CUDA_SUCCESS);
  std::vector<std::byte> ptx;
  EXPECT_EQ(linker.complete(&ptx), CUDA_ERROR_INVALID_IMAGE);
  EXPECT_EQ(linker.log(),
            "error   : Undefined reference to 'gone'\nerror   : Undefined reference to 'lost'\n"
            "error   : Undefined reference to 'sized'\n");
}

TEST(PtxLinker, RefusesBrokenInputsWhenTheyCome) {
  PtxLinker linker;
  EXPECT_EQ(add(&linker, kHead + ".visible .entry k() { nonsense }"), CUDA_ERROR_INVALID_PTX);
  EXPECT_NE(linker.log().find("PTX input 'unit'"), std::string::npos) << linker.log();
  EXPECT_EQ(add(&linker, "not an image", CU_JIT_INPUT_CUBIN), CUDA_ERROR_INVALID_IMAGE);
  EXPECT_EQ(add(&linker, "BC", CU_JIT_INPUT_NVVM), CUDA_ERROR_NOT_SUPPORTED);
  EXPECT_EQ(add(&linker, "no code", CU_JIT_INPUT_OBJECT), CUDA_ERROR_NO_BINARY_FOR_GPU);
  EXPECT_EQ(add(&linker, "!<arch>\n", CU_JIT_INPUT_LIBRARY), CUDA_SUCCESS);
  std::vector<std::byte> ptx;
  EXPECT_EQ(linker.complete(&ptx), CUDA_ERROR_INVALID_IMAGE);
}

TEST(PtxLinker, RefusesTwoDefinitions) {
  PtxLinker linker;
  for (int i = 0; i < 2; ++i) ASSERT_EQ(add(&linker, kHead + ".visible .func f { ret; }"), CUDA_SUCCESS);
  EXPECT_EQ(linked(&linker), "");
  EXPECT_NE(linker.log().find("two definitions of 'f'"), std::string::npos) << linker.log();
}

}  // namespace
}  // namespace bandsaw::image
