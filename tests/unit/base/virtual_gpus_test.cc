// Which virtual GPUs of the host a process is to use.
#include "memory/base/virtual_gpus.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>

namespace bandsaw {
namespace {

class VirtualGpus : public ::testing::Test {
 protected:
  VirtualGpus() : folder_(std::filesystem::path(::testing::TempDir()) / ("vgpus-" + std::to_string(getpid()))) {
    std::filesystem::create_directories(folder_);
    setenv("BANDSAW_RUN", folder_.c_str(), 1);
  }
  ~VirtualGpus() override {
    std::filesystem::remove_all(folder_);
    unsetenv("BANDSAW_RUN");
    unsetenv("BANDSAW_VGPU");
  }
  std::vector<std::string> found(const char* names) {
    setenv("BANDSAW_VGPU", names, 1);
    std::vector<std::string> paths;
    for (const VirtualGpuPath& one : find_virtual_gpus()) {
      EXPECT_TRUE(one.direct);
      paths.push_back(std::filesystem::relative(one.path, folder_));
    }
    return paths;
  }
  void make(const std::string& name) {
    std::filesystem::create_directories(folder_ / name);
    std::ofstream(folder_ / name / "direct.sock");
  }

  std::filesystem::path folder_;
};

using Paths = std::vector<std::string>;

TEST_F(VirtualGpus, NamesKeepTheirOrder) { EXPECT_EQ(found("b, a"), (Paths{"b/direct.sock", "a/direct.sock"})); }

TEST_F(VirtualGpus, AStarIsAllWithASocketByName) {
  make("web1");
  make("web0");
  std::filesystem::create_directories(folder_ / "peers.d");
  EXPECT_EQ(found("*"), (Paths{"web0/direct.sock", "web1/direct.sock"}));
}

TEST_F(VirtualGpus, AStarThatFindsNoneSaysWhere) { EXPECT_EQ(found("*"), Paths{"*/direct.sock"}); }

}  // namespace
}  // namespace bandsaw
