#include "tools/benchmarks/research/planning/pair_profits.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>

namespace bandsaw::research {
namespace {

class ProfitsTest : public testing::Test {
 protected:
  std::string write(const std::string& text) {
    std::ofstream(path_) << text;
    return path_;
  }
  ~ProfitsTest() override { std::filesystem::remove(path_); }

  const std::string path_ = testing::TempDir() + "/profits.json";
};

TEST_F(ProfitsTest, AreReadFromAFile) {
  const auto pairs = load_profits(write(R"({"pairs": [{"a": "pc", "b": "tea", "resident_a": 2, "resident_b": 6,
                                            "speed_a": 0.75, "speed_b": 1}]})"));
  ASSERT_TRUE(pairs.ok());
  ASSERT_EQ(pairs.value().size(), 1u);
  EXPECT_EQ(pairs.value()[0].b, "tea");
  EXPECT_EQ(pairs.value()[0].resident_b, 6);
  EXPECT_EQ(pairs.value()[0].speed_a, 0.75);
}

TEST_F(ProfitsTest, WhatMakesNoSenseIsSaid) {
  EXPECT_EQ(load_profits("/nonexistent/profits").status().code(), ENOENT);
  for (const char* text :
       {"", "[]", "{\"pairs\": 3}", "{\"pairs\": [3]}", "{\"pairs\": [{}]}",
        R"({"pairs": [{"a": "", "b": "x", "resident_a": 1, "resident_b": 1, "speed_a": 1, "speed_b": 1}]})",
        R"({"pairs": [{"a": "y", "b": "x", "resident_a": 0, "resident_b": 1, "speed_a": 1, "speed_b": 1}]})",
        R"({"pairs": [{"a": "y", "b": "x", "resident_a": 1, "resident_b": 1, "speed_a": -1, "speed_b": 1}]})"}) {
    EXPECT_EQ(load_profits(write(text)).status().code(), EINVAL) << text;
  }
}

}  // namespace
}  // namespace bandsaw::research
