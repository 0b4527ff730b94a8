// Entries as systemd's journal takes them.
#include "memory/base/journal.h"

#include <fmt/format.h>
#include <gtest/gtest.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>

#include <cstdlib>
#include <filesystem>

namespace bandsaw {
namespace {

// A socket that takes entries, which also stands for the journal's stream.
class JournalTest : public ::testing::Test {
 protected:
  void SetUp() override {
    char folder[] = "/tmp/bandsaw-test-XXXXXX";
    ASSERT_NE(::mkdtemp(folder), nullptr);
    folder_ = folder;
    path_ = folder_ + "/socket";
    sockaddr_un address{};
    address.sun_family = AF_UNIX;
    path_.copy(address.sun_path, sizeof address.sun_path - 1);
    listener_.reset(::socket(AF_UNIX, SOCK_DGRAM | SOCK_NONBLOCK, 0));
    ASSERT_EQ(::bind(listener_.get(), reinterpret_cast<sockaddr*>(&address), sizeof address), 0);
    struct stat found{};
    ASSERT_EQ(::fstat(listener_.get(), &found), 0);
    stream_ = fmt::format("{}:{}", found.st_dev, found.st_ino);
  }
  void TearDown() override { std::filesystem::remove_all(folder_); }

  std::optional<Journal> journal() const { return Journal::behind(listener_.get(), stream_.c_str(), path_.c_str()); }
  std::string entry() const {
    std::string text(1 << 16, '\0');
    const ssize_t length = ::recv(listener_.get(), text.data(), text.size(), 0);
    text.resize(length < 0 ? 0 : static_cast<size_t>(length));
    return text;
  }

  std::string folder_, path_, stream_;
  UniqueFd listener_;
};

TEST_F(JournalTest, EntriesHaveFields) {
  const auto found = journal();
  ASSERT_TRUE(found);
  EXPECT_TRUE(found->send({{"MESSAGE", "web0: it runs"}, {"PRIORITY", "6"}, {"VGPU", "web0"}, {"DEVICE", ""}}));
  EXPECT_EQ(entry(), "MESSAGE=web0: it runs\nPRIORITY=6\nVGPU=web0\n");
}

TEST_F(JournalTest, SeveralLinesAreOneField) {
  const auto found = journal();
  ASSERT_TRUE(found);
  // What a tenant has named makes no field of its own.
  EXPECT_TRUE(found->send({{"MESSAGE", "a\nPRIORITY=0"}, {"PRIORITY", "6"}}));
  using namespace std::string_literals;
  EXPECT_EQ(entry(), "MESSAGE\n\x0c\0\0\0\0\0\0\0a\nPRIORITY=0\nPRIORITY=6\n"s);
}

TEST_F(JournalTest, AnythingElseIsNoJournal) {
  EXPECT_FALSE(Journal::behind(listener_.get(), nullptr, path_.c_str())) << "systemd has not started it";
  EXPECT_FALSE(Journal::behind(listener_.get(), "1:2", path_.c_str())) << "stderr was turned elsewhere since";
  EXPECT_FALSE(Journal::behind(-1, stream_.c_str(), path_.c_str()));
  EXPECT_FALSE(Journal::behind(listener_.get(), stream_.c_str(), (folder_ + "/none").c_str())) << "it does not run";
}

TEST_F(JournalTest, WhatIsTooLargeIsNotTaken) {
  const auto found = journal();
  ASSERT_TRUE(found);
  EXPECT_FALSE(found->send({{"MESSAGE", std::string(8 << 20, 'x')}}));
}

}  // namespace
}  // namespace bandsaw
