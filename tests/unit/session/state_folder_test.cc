// A tenant's session writes in its folder on disk. What root makes there must not follow what the tenant has put there.
#include "backend/session/state_folder.h"

#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <filesystem>

namespace bandsaw {
namespace {

namespace fs = std::filesystem;
constexpr uid_t kTenant = 61234;

class StateFolder : public testing::Test {
 protected:
  void SetUp() override {
    char name[] = "/tmp/state-folder-XXXXXX";
    ASSERT_NE(::mkdtemp(name), nullptr);
    root_ = name;
    ::chmod(name, 0755);
    fs::create_directory(root_ / "treasure");
    if (::geteuid() != 0) GTEST_SKIP() << "only root gives folders away";
  }
  void TearDown() override { fs::remove_all(root_); }

  uid_t owner(const fs::path& path) {
    struct stat found{};
    return ::lstat(path.c_str(), &found) == 0 ? found.st_uid : ~0u;
  }

  fs::path root_;
};

TEST_F(StateFolder, IsTheTenantsAndClosedToOthers) {
  const fs::path path = root_ / "vgpus" / "web0";
  for (int start = 0; start < 2; ++start) {
    auto folder = open_state_folder(path, kTenant);
    ASSERT_TRUE(folder.ok()) << folder.status().message();
    EXPECT_EQ(owner(path), kTenant);
    EXPECT_EQ(fs::status(path).permissions(), fs::perms::owner_all);
  }
}

TEST_F(StateFolder, ItsReadersReadAndWriteNothing) {
  const fs::path path = root_ / "web0";
  ASSERT_TRUE(open_state_folder(path, kTenant).ok());
  // As a user of before had it: it is made anew.
  ASSERT_TRUE(open_state_folder(path, kTenant + 1, kTenant, kTenant).ok());
  struct stat found{};
  ASSERT_EQ(::lstat(path.c_str(), &found), 0);
  EXPECT_EQ(found.st_uid, kTenant + 1);
  EXPECT_EQ(found.st_gid, kTenant);
  EXPECT_EQ(found.st_mode & 07777, 0750u) << "no set-group-ID bit: systemd's unit forbids it";
}

TEST_F(StateFolder, ALinkInsideIsNotFollowed) {
  const fs::path path = root_ / "web0";
  ASSERT_TRUE(open_state_folder(path, kTenant).ok());
  fs::create_directory_symlink(root_ / "treasure", path / "cache");
  ASSERT_TRUE(open_state_folder(path, kTenant).ok());
  EXPECT_EQ(owner(root_ / "treasure"), 0u);
  EXPECT_EQ(fs::status(root_ / "treasure").permissions() & fs::perms::others_read, fs::perms::others_read);
}

TEST_F(StateFolder, ALinkInItsPlaceIsRefused) {
  fs::create_directory_symlink(root_ / "treasure", root_ / "web0");
  EXPECT_FALSE(open_state_folder(root_ / "web0", kTenant).ok());
  EXPECT_EQ(owner(root_ / "treasure"), 0u);
}

TEST_F(StateFolder, AnotherUsersIsRefused) {
  ASSERT_TRUE(open_state_folder(root_ / "web0", kTenant + 1).ok());
  EXPECT_EQ(open_state_folder(root_ / "web0", kTenant).status().code(), EACCES);
}

// As sessions of an earlier version had it: what is in there, its runners cannot read.
TEST_F(StateFolder, TheSessionsOwnIsMadeAnew) {
  constexpr uid_t kSession = kTenant + 1;
  const fs::path path = root_ / "web0";
  ASSERT_TRUE(open_state_folder(path, kSession).ok());
  fs::create_directory(path / "cache");
  fs::create_directory_symlink(root_ / "treasure", path / "link");
  ASSERT_TRUE(open_state_folder(path, kTenant, kSession).ok());
  EXPECT_EQ(owner(path), kTenant);
  EXPECT_TRUE(fs::is_empty(path));
  EXPECT_TRUE(fs::exists(root_ / "treasure"));
}

}  // namespace
}  // namespace bandsaw
