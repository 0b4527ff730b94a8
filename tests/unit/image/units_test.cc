#include "backend/device/image/units.h"

#include <gtest/gtest.h>

namespace bandsaw::image {
namespace {

const std::string kHeader = ".version 9.0\n.target sm_90\n.address_size 64\n";

TEST(Units, OnePassesUnread) {
  std::string ptx, log;
  EXPECT_EQ(link_units({"not PTX at all"}, &ptx, &log), CUDA_SUCCESS);
  EXPECT_EQ(ptx, "not PTX at all");
}

TEST(Units, SeveralAreLinked) {
  std::string ptx, log;
  ASSERT_EQ(
      link_units({kHeader + ".extern .func f;\n.entry k() { call f; ret; }", kHeader + ".visible .func f() { ret; }"},
                 &ptx, &log),
      CUDA_SUCCESS);
  EXPECT_EQ(ptx.find(".extern"), std::string::npos);
  EXPECT_EQ(ptx.find(".version", 1), std::string::npos);
}

TEST(Units, SayWhatIsWrong) {
  std::string ptx, log;
  EXPECT_EQ(link_units({kHeader, kHeader + "?"}, &ptx, &log), CUDA_ERROR_INVALID_PTX);
  EXPECT_EQ(log.substr(0, 16), "PTX unit 1, 4:1:");
  const std::string entry = kHeader + ".visible .entry k() { ret; }";
  EXPECT_EQ(link_units({entry, entry}, &ptx, &log), CUDA_ERROR_INVALID_PTX);
  EXPECT_EQ(log, "PTX units do not link: two definitions of 'k'");
  EXPECT_EQ(link_units({}, &ptx, &log), CUDA_ERROR_INVALID_PTX);
}

}  // namespace
}  // namespace bandsaw::image
