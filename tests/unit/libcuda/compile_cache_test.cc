// What NVRTC has compiled, kept in files.
#include "guest-driver/libcuda/core/compile_cache.h"

#include <gtest/gtest.h>
#include <stdlib.h>
#include <sys/stat.h>

#include <cstring>
#include <filesystem>
#include <fstream>
#include <thread>

namespace bandsaw::libcuda {
namespace {

namespace fs = std::filesystem;

class CompileCacheTest : public testing::Test {
 protected:
  CompileCacheTest() { above_ = mkdtemp(std::string("/tmp/bandsaw-compile-cache-XXXXXX").data()); }
  ~CompileCacheTest() override { fs::remove_all(above_); }

  static std::vector<std::byte> code(size_t bytes, int value) { return {bytes, static_cast<std::byte>(value)}; }
  std::string folder() const { return above_ + "/made/late"; }
  fs::path only_file() const { return fs::directory_iterator(folder())->path(); }
  size_t files() const { return static_cast<size_t>(std::distance(fs::directory_iterator(folder()), {})); }

  std::string above_;
};

TEST_F(CompileCacheTest, WhatIsKeptIsFoundByItsWholeKey) {
  CompileCache cache(folder(), 1 << 20);
  const std::string key("source\0options", 14);
  EXPECT_FALSE(cache.find(key));
  cache.keep(key, code(1000, 7));
  EXPECT_EQ(cache.find(key), code(1000, 7));
  EXPECT_FALSE(cache.find(std::string("source\0options+", 15)));
  cache.keep(key, code(10, 8));
  EXPECT_EQ(CompileCache(folder(), 1 << 20).find(key), code(10, 8)) << "another process";
  EXPECT_EQ(files(), 1u);
  EXPECT_EQ(fs::status(folder()).permissions(), fs::perms::owner_all);
}

TEST_F(CompileCacheTest, BrokenFilesArePassedOver) {
  CompileCache cache(folder(), 1 << 20);
  cache.keep("key", code(1000, 7));
  const auto size = fs::file_size(only_file());
  for (const uint64_t at : {uint64_t{0}, uint64_t{8}, uint64_t{16}, uint64_t{24}, uint64_t{33}, size - 1}) {
    std::fstream file(only_file(), std::ios::in | std::ios::out | std::ios::binary);
    file.seekg(static_cast<std::streamoff>(at));
    const int was = file.get();
    file.seekp(static_cast<std::streamoff>(at));
    file.put(static_cast<char>(was ^ 1)).flush();
    EXPECT_FALSE(cache.find("key")) << at;
    file.seekp(static_cast<std::streamoff>(at));
    file.put(static_cast<char>(was)).flush();
    EXPECT_TRUE(cache.find("key")) << at;
  }
  fs::resize_file(only_file(), size - 1);
  EXPECT_FALSE(cache.find("key"));
  fs::resize_file(only_file(), 3);
  EXPECT_FALSE(cache.find("key"));
}

TEST_F(CompileCacheTest, WhatOthersCouldWriteIsPassedOver) {
  CompileCache cache(folder(), 1 << 20);
  cache.keep("key", code(10, 7));
  chmod(only_file().c_str(), 0622);
  EXPECT_FALSE(cache.find("key"));
  chmod(only_file().c_str(), 0600);
  EXPECT_TRUE(cache.find("key"));
  const fs::path kept = only_file();
  fs::rename(kept, above_ + "/elsewhere");
  fs::create_symlink(above_ + "/elsewhere", kept);
  EXPECT_FALSE(cache.find("key"));
}

TEST_F(CompileCacheTest, TheOldestMakesRoom) {
  for (int i = 0; i < 5; ++i) {
    CompileCache cache(folder(), 3500);  // each looks for room when it keeps its first
    cache.keep("key" + std::to_string(i), code(1000, i));
    EXPECT_TRUE(cache.find("key0")) << "asked for since";
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
  }
  CompileCache cache(folder(), 3500);
  EXPECT_TRUE(cache.find("key0"));
  EXPECT_TRUE(cache.find("key4"));
  EXPECT_FALSE(cache.find("key1"));
  cache.keep("large", code(4000, 1));
  EXPECT_FALSE(cache.find("large"));
}

TEST_F(CompileCacheTest, WithoutAFolderNothingIsKept) {
  CompileCache cache("", 1 << 20);
  cache.keep("key", code(10, 7));
  EXPECT_FALSE(cache.find("key"));
  CompileCache forbidden("/proc/no/such", 1 << 20);
  forbidden.keep("key", code(10, 7));
  EXPECT_FALSE(forbidden.find("key"));
}

}  // namespace
}  // namespace bandsaw::libcuda
