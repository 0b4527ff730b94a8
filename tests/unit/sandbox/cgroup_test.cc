// Cgroups of virtual GPUs: what is written where, in a folder of the test's own; and on the host's own tree where that
// has what it takes.
#include "backend/sandbox/cgroup.h"

#include <gtest/gtest.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <sys/xattr.h>
#include <unistd.h>

#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <sstream>

namespace bandsaw {
namespace {

namespace fs = std::filesystem;

class CgroupTest : public ::testing::Test {
 protected:
  void SetUp() override {
    char name[] = "/tmp/bandsaw-test-XXXXXX";
    folder = ::mkdtemp(name);
    root = folder / "tree";
    cgroup("", "cpuset cpu io memory pids");
    put(folder / "mounts", "24 30 0:22 / /proc rw - proc proc rw\n31 23 0:27 / " + root.string() +
                               " rw,nosuid shared:9 - cgroup2 cgroup2 rw\n");
    put(folder / "self", "1:name=systemd:/\n0::/\n");
  }
  void TearDown() override { fs::remove_all(folder); }

  static void put(const fs::path& path, const std::string& text) { std::ofstream(path) << text; }
  static std::string text(const fs::path& path) {
    std::ifstream file(path);
    std::ostringstream all;
    all << file.rdbuf();
    return all.str();
  }
  // As the kernel makes one.
  void cgroup(const std::string& path, const std::string& controllers) {
    fs::create_directories(root / path);
    put(root / path / "cgroup.controllers", controllers + "\n");
    for (const char* file : {"cgroup.subtree_control", "cgroup.procs", "memory.max", "memory.swap.max", "pids.max",
                             "cpu.weight", "cgroup.kill"}) {
      put(root / path / file, "");
    }
  }
  Result<CgroupTree> open() {
    return CgroupTree::open("bandsaw-1", {(folder / "mounts").string(), (folder / "self").string()});
  }
  fs::path folder, root;
};

TEST_F(CgroupTest, BoundsAreWritten) {
  cgroup("bandsaw-1", "cpu memory pids");
  cgroup("bandsaw-1/vgpu-web0", "");
  const auto tree = open();
  ASSERT_TRUE(tree.ok()) << tree.status().message();
  EXPECT_EQ(tree.value().controllers(), "memory pids cpu");
  ASSERT_TRUE(tree.value().set("web0", {.memory = 1 << 30, .pids = 100, .cpu_weight = 50}).ok());
  const fs::path web0 = root / "bandsaw-1/vgpu-web0";
  EXPECT_EQ(text(web0 / "memory.max"), "1073741824");
  EXPECT_EQ(text(web0 / "memory.swap.max"), "0");
  EXPECT_EQ(text(web0 / "pids.max"), "100");
  EXPECT_EQ(text(web0 / "cpu.weight"), "50");
  ASSERT_TRUE(tree.value().set("web0", {}).ok());
  EXPECT_EQ(text(web0 / "memory.max"), "max");
  EXPECT_TRUE(tree.value().entrance("web0").ok());
  put(web0 / "memory.current", "4096\n");
  put(web0 / "pids.current", "7\n");
  put(web0 / "cpu.stat", "nr_periods 3\nusage_usec 1234\nuser_usec 5\n");
  put(web0 / "memory.events", "low 0\noom 4\noom_kill 2\n");
  const auto use = tree.value().use("web0");
  ASSERT_TRUE(use);
  EXPECT_EQ((std::array{use->memory, use->pids, use->cpu_us, use->oom_kills}),
            (std::array<uint64_t, 4>{4096, 7, 1234, 2}));
  EXPECT_FALSE(tree.value().use("web1"));
  EXPECT_FALSE(tree.value().entrance("web1").ok());
  tree.value().remove("web0");
  EXPECT_EQ(text(web0 / "cgroup.kill"), "1");
}

TEST_F(CgroupTest, AUnitsProcessesGoIntoItsLeaf) {
  cgroup("system.slice/bandsaw.service", "memory pids");
  cgroup("system.slice/bandsaw.service/daemon", "");
  const fs::path unit = root / "system.slice/bandsaw.service";
  if (::setxattr(unit.c_str(), "user.delegate", "1", 1, 0) != 0) GTEST_SKIP() << "no extended attributes here";
  put(unit / "cgroup.procs", "4711\n");
  for (const char* own : {"0::/system.slice/bandsaw.service\n", "0::/system.slice/bandsaw.service/daemon\n"}) {
    put(folder / "self", own);
    const auto tree = open();
    ASSERT_TRUE(tree.ok()) << tree.status().message();
    EXPECT_EQ(tree.value().path(), unit.string());
    EXPECT_EQ(text(unit / "daemon/cgroup.procs"), "4711");
  }
  put(folder / "self", "0::/system.slice/bandsaw.service/.control\n");
  put(unit / "cgroup.subtree_control", "memory\n");
  release_controllers({(folder / "mounts").string(), (folder / "self").string()});
  EXPECT_EQ(text(unit / "cgroup.subtree_control"), "-memory");
}

TEST_F(CgroupTest, WhatIsMissingIsSaid) {
  put(root / "cgroup.controllers", "hugetlb\n");
  EXPECT_NE(open().status().message().find("no 'memory' controller"), std::string::npos);
  put(folder / "self", "1:memory:/\n");
  EXPECT_NE(open().status().message().find("cgroup v2 is not mounted"), std::string::npos);
  put(folder / "mounts", "");
  EXPECT_FALSE(open().ok());
  // Nothing is taken from a tree that no unit has been given.
  put(folder / "self", "0::/user.slice/shell\n");
  put(root / "cgroup.subtree_control", "memory\n");
  release_controllers({(folder / "mounts").string(), (folder / "self").string()});
  EXPECT_EQ(text(root / "cgroup.subtree_control"), "memory\n");
}

// Root in a virtual machine or on a host that has the memory controller in version 2.
class HostCgroupTest : public ::testing::Test {
 protected:
  void SetUp() override {
    auto opened = CgroupTree::open("bandsaw-test");
    if (!opened.ok()) GTEST_SKIP() << opened.status().message();
    tree.emplace(std::move(opened.value()));
  }
  void TearDown() override {
    if (tree) tree->remove("web0");
  }
  // What becomes of a process in the cgroup.
  template <typename Work>
  int run(Work work) {
    const UniqueFd entrance = std::move(tree->entrance("web0").value());
    const pid_t pid = ::fork();
    if (pid == 0) ::_exit(::write(entrance.get(), "0", 1) == 1 ? work() : 99);
    int status = 0;
    ::waitpid(pid, &status, 0);
    return status;
  }
  std::optional<CgroupTree> tree;
};

TEST_F(HostCgroupTest, MemoryBeyondTheBoundEndsTheProcess) {
  ASSERT_TRUE(tree->set("web0", {.memory = 64 << 20, .pids = 100}).ok());
  const int status = run([] {
    constexpr size_t kBytes = 256 << 20;
    void* const memory = ::mmap(nullptr, kBytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    std::memset(memory, 1, kBytes);
    return 0;
  });
  EXPECT_TRUE(WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL) << status;
  EXPECT_GE(tree->use("web0")->oom_kills, 1u);
}

TEST_F(HostCgroupTest, ThreadsBeyondTheBoundAreRefused) {
  ASSERT_TRUE(tree->set("web0", {.memory = 0, .pids = 5}).ok());
  const int status = run([] {
    for (int i = 0; i < 20; ++i) {
      const pid_t pid = ::fork();
      if (pid < 0) return i;
      if (pid == 0) ::pause();
    }
    return 50;
  });
  EXPECT_EQ(WEXITSTATUS(status), 4);
  EXPECT_EQ(tree->use("web0")->pids, 4u);  // the children are there yet, and go with their cgroup
  tree->remove("web0");
  EXPECT_FALSE(tree->use("web0"));
}

}  // namespace
}  // namespace bandsaw
