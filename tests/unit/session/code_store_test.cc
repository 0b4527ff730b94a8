// A session keeps what its runners compile, within the virtual GPU's limit, whatever they ask for.
#include "backend/session/code_store.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstring>
#include <filesystem>
#include <fstream>

namespace bandsaw {
namespace {

namespace fs = std::filesystem;
constexpr uint64_t kFileBytes = 40'000, kOnDisk = 40'960;
constexpr int kSealed = F_SEAL_WRITE | F_SEAL_SHRINK | F_SEAL_GROW;

class CodeStoreTest : public testing::Test {
 protected:
  void SetUp() override {
    char name[] = "/tmp/code-store-XXXXXX";
    ASSERT_NE(::mkdtemp(name), nullptr);
    root_ = name;
    folder_.reset(::open(name, O_RDONLY | O_DIRECTORY | O_CLOEXEC));
    open(10 * kOnDisk);
  }
  void TearDown() override { fs::remove_all(root_); }

  void open(uint64_t most) {
    store_.reset();
    auto opened = CodeStore::open(folder_.get(), most);
    ASSERT_TRUE(opened.ok()) << opened.status().message();
    store_ = std::move(opened.value());
  }
  static std::string key(int number) {
    std::string text(64, '0');
    return text.replace(0, 2, std::to_string(10 + number));
  }
  void ask(RunnerMessageType type, const std::string& key, uint64_t bytes = 0, int file = -1) {
    ExchangeTail tail;
    std::memcpy(tail.payload.data(), key.data(), std::min(key.size(), tail.payload.size()));
    store_->request({.type = type, .bytes = bytes}, tail, file);
  }
  static UniqueFd sealed(uint64_t bytes, char content = 'x', int seals = kSealed) {
    UniqueFd file(::memfd_create("code", MFD_CLOEXEC | MFD_ALLOW_SEALING));
    const std::string text(bytes, content);
    EXPECT_EQ(::write(file.get(), text.data(), text.size()), static_cast<ssize_t>(text.size()));
    EXPECT_EQ(::fcntl(file.get(), F_ADD_SEALS, seals), 0);
    return file;
  }
  void keep(int number) { ask(RunnerMessageType::kKeepCode, key(number), kFileBytes, sealed(kFileBytes).get()); }
  bool has(int number) const { return fs::exists(root_ / "cache" / (key(number) + ".o")); }
  uint64_t on_disk() const {
    uint64_t total = 0;
    for (const auto& entry : fs::directory_iterator(root_ / "cache")) {
      struct stat found{};
      EXPECT_EQ(::lstat(entry.path().c_str(), &found), 0);
      total += static_cast<uint64_t>(found.st_blocks) * 512;
    }
    return total;
  }

  fs::path root_;
  UniqueFd folder_;
  std::unique_ptr<CodeStore> store_;
};

// The folder above says who comes in. The umask is that of systemd's unit.
TEST_F(CodeStoreTest, WhatIsKeptIsThereToReadAlone) {
  fs::remove(root_ / "cache");
  const mode_t before = ::umask(0077);
  auto store = CodeStore::open(folder_.get(), 10 * kOnDisk);
  ASSERT_TRUE(store.ok()) << store.status().message();
  store_ = std::move(store.value());
  keep(0);
  ::umask(before);
  ASSERT_TRUE(has(0));
  EXPECT_EQ(store_->held(), kOnDisk);
  struct stat found{};
  ASSERT_EQ(::stat((root_ / "cache" / (key(0) + ".o")).c_str(), &found), 0);
  EXPECT_EQ(found.st_mode & 07777, 0444u);
  EXPECT_EQ(static_cast<uint64_t>(found.st_size), kFileBytes);
  ASSERT_EQ(::stat((root_ / "cache").c_str(), &found), 0);
  EXPECT_EQ(found.st_mode & 07777, 0755u);
}

TEST_F(CodeStoreTest, ThousandsFillNoMoreThanTheLimit) {
  for (int i = 0; i < 80; ++i) keep(i);
  EXPECT_LE(store_->held(), 10 * kOnDisk);
  EXPECT_LE(on_disk(), 10 * kOnDisk);
  EXPECT_TRUE(has(79)) << "the last one is there";
}

TEST_F(CodeStoreTest, WhatIsUsedStaysLongest) {
  for (int i = 0; i < 10; ++i) keep(i);
  ask(RunnerMessageType::kCodeUsed, key(0));
  keep(10);
  EXPECT_TRUE(has(0));
  EXPECT_FALSE(has(1));
}

TEST_F(CodeStoreTest, WhatIsCompiledAgainTakesTheOldOnesPlace) {
  keep(0);
  std::ofstream(root_ / "cache" / (key(0) + ".o"), std::ios::trunc) << "damaged";
  keep(0);
  EXPECT_EQ(fs::file_size(root_ / "cache" / (key(0) + ".o")), kFileBytes);
  EXPECT_EQ(store_->held(), kOnDisk);
}

TEST_F(CodeStoreTest, ASmallerLimitHoldsAtOnce) {
  for (int i = 0; i < 10; ++i) keep(i);
  store_->set_most(2 * kOnDisk);
  EXPECT_LE(on_disk(), 2 * kOnDisk);
  EXPECT_TRUE(has(9));
  store_->set_most(0);
  keep(20);
  EXPECT_EQ(on_disk(), 0u);
}

TEST_F(CodeStoreTest, TheNextSessionFindsItAgainAndNothingElse) {
  keep(0);
  keep(1);
  std::ofstream(root_ / "cache" / "part") << "half";
  std::ofstream(root_ / "cache" / "what.o") << "is this";
  fs::create_symlink("/etc/passwd", root_ / "cache" / (key(7) + ".o"));
  open(10 * kOnDisk);
  EXPECT_EQ(store_->held(), 2 * kOnDisk);
  EXPECT_EQ(on_disk(), 2 * kOnDisk);
  EXPECT_TRUE(fs::exists("/etc/passwd"));
  open(kOnDisk);
  EXPECT_EQ(store_->held(), kOnDisk);
}

TEST_F(CodeStoreTest, NonsenseIsRefused) {
  const UniqueFd good = sealed(kFileBytes), open_to_change = sealed(kFileBytes, 'x', F_SEAL_SEAL);
  const UniqueFd null(::open("/dev/null", O_RDONLY | O_CLOEXEC));
  ask(RunnerMessageType::kKeepCode, "../../../../etc/cron.d/x", kFileBytes, good.get());
  ask(RunnerMessageType::kKeepCode, std::string(63, '0') + "/", kFileBytes, good.get());
  ask(RunnerMessageType::kKeepCode, key(0), kFileBytes + 1, good.get());
  ask(RunnerMessageType::kKeepCode, key(0), 0, good.get());
  ask(RunnerMessageType::kKeepCode, key(0), UINT64_MAX, good.get());
  ask(RunnerMessageType::kKeepCode, key(0), kFileBytes, open_to_change.get());
  ask(RunnerMessageType::kKeepCode, key(0), kFileBytes, null.get());
  ask(RunnerMessageType::kKeepCode, key(0), kFileBytes, -1);
  ask(RunnerMessageType::kCodeUsed, key(5));
  EXPECT_EQ(on_disk(), 0u);
  EXPECT_EQ(store_->held(), 0u);
}

TEST_F(CodeStoreTest, ALinkInPlaceOfTheFolderIsRefused) {
  store_.reset();
  fs::remove_all(root_ / "cache");
  fs::create_directory(root_ / "treasure");
  fs::create_directory_symlink(root_ / "treasure", root_ / "cache");
  EXPECT_FALSE(CodeStore::open(folder_.get(), kOnDisk).ok());
}

}  // namespace
}  // namespace bandsaw
