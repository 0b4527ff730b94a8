#include "backend/control/paths.h"

#include <gtest/gtest.h>
#include <sys/stat.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>

namespace bandsaw {
namespace {

class RunnerTest : public ::testing::Test {
 protected:
  RunnerTest() {
    char path[] = "/tmp/bandsaw-paths-XXXXXX";
    folder_ = ::mkdtemp(path);
    ::setenv("BANDSAW_LIBEXEC", folder_.c_str(), 1);
  }
  ~RunnerTest() override {
    ::unsetenv("BANDSAW_LIBEXEC");
    std::filesystem::remove_all(folder_);
  }
  void make(const std::string& name, unsigned mode = 0755) {
    std::ofstream(folder_ + "/" + name).close();
    ::chmod((folder_ + "/" + name).c_str(), mode);
  }
  std::string folder_;
};

TEST_F(RunnerTest, OneServesAllDevices) {
  make("bandsaw-runner");
  EXPECT_EQ(find_runner(), folder_ + "/bandsaw-runner");
  EXPECT_EQ(runner_of(find_runner(), "soft"), folder_ + "/bandsaw-runner");
}

TEST_F(RunnerTest, EachDeviceMayHaveItsOwn) {
  make("bandsaw-runner-soft");
  EXPECT_EQ(find_runner(), folder_ + "/bandsaw-runner");
  EXPECT_EQ(runner_of(find_runner(), "soft"), folder_ + "/bandsaw-runner-soft");
  EXPECT_EQ(runner_of(find_runner(), "cuda"), folder_ + "/bandsaw-runner");  // which is not there, and vgpud says so
  make("bandsaw-runner-cuda");
  EXPECT_EQ(runner_of(find_runner(), "cuda"), folder_ + "/bandsaw-runner-cuda");
}

TEST_F(RunnerTest, WhatCannotBeExecutedIsNone) {
  make("bandsaw-runner-soft", 0644);
  EXPECT_EQ(runner_of(folder_ + "/bandsaw-runner", "soft"), folder_ + "/bandsaw-runner");
}

}  // namespace
}  // namespace bandsaw
