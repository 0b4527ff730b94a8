// Files of saved virtual GPUs: what was written comes back, and nothing else is taken for one.
#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <unistd.h>

#include <array>
#include <cstring>
#include <string>
#include <vector>

#include "backend/control/saved/file.h"
#include "memory/base/unique_fd.h"

namespace bandsaw::saved {
namespace {

UniqueFd file_of(const std::string& content) {
  UniqueFd file(::memfd_create("saved", MFD_CLOEXEC));
  EXPECT_EQ(::write(file.get(), content.data(), content.size()), static_cast<ssize_t>(content.size()));
  EXPECT_EQ(::lseek(file.get(), 0, SEEK_SET), 0);
  return file;
}

std::string content_of(int file) {
  std::string content(static_cast<size_t>(::lseek(file, 0, SEEK_END)), '\0');
  EXPECT_EQ(::pread(file, content.data(), content.size(), 0), static_cast<ssize_t>(content.size()));
  return content;
}

std::vector<std::byte> page(int filled_with) { return std::vector<std::byte>(kPage, std::byte(filled_with)); }

Status write_example(Sink* sink) {
  Status status = write_one(sink, Head{.id = {1, 2, 3}, .vgpu = {4}, .runners = 2});
  for (const uint8_t pid : {10, 20}) {
    if (status.ok()) status = write_one(sink, RunnerHead{.program = {pid}});
    // Of the first all that another runner needs, of the second what that could not have.
    const std::string said = pid == 10 ? "its state" : "a graph";
    if (status.ok()) status = write_one(sink, pid == 10 ? StateHead{said.size(), 0} : StateHead{0, said.size()});
    if (status.ok()) status = sink->write(std::as_bytes(std::span(said)));
    for (int i = 0; i < 3 && status.ok(); ++i) {
      status = write_one(sink, Piece{.address = kPage * static_cast<uint64_t>(i), .bytes = kPage});
      if (status.ok()) status = sink->write(page(pid + i));
    }
    if (status.ok()) status = write_one(sink, Piece{});
  }
  return status;
}

std::string example() {
  const UniqueFd file(::memfd_create("saved", MFD_CLOEXEC));
  const auto sink = FileSink::begin(file.get());
  EXPECT_TRUE(sink.ok());
  EXPECT_TRUE(write_example(sink.value().get()).ok());
  EXPECT_TRUE(sink.value()->end().ok());
  return content_of(file.get());
}

Status check(const std::string& content) {
  Contents contents;
  return check_file(file_of(content).get(), &contents);
}

TEST(SavedFile, ComesBack) {
  Contents contents;
  ASSERT_TRUE(check_file(file_of(example()).get(), &contents).ok());
  EXPECT_EQ(contents.head.id[1], 2);
  EXPECT_EQ(contents.head.vgpu[0], 4);
  EXPECT_EQ(contents.head.runners, 2u);
  EXPECT_EQ(contents.bytes, 6 * kPage);
  EXPECT_EQ(contents.programs, (std::set<Id>{{10}})) << "of the other one something is missing";
  EXPECT_EQ(contents.lacks, "a graph");
  const UniqueFd file = file_of(example());
  const auto source = FileSource::begin(file.get());
  ASSERT_TRUE(source.ok());
  Head head;
  RunnerHead runner;
  Piece piece;
  std::string words;
  std::vector<std::byte> memory(kPage);
  ASSERT_TRUE(read_head(source.value().get(), &head).ok() && read_one(source.value().get(), &runner).ok() &&
              copy_state(source.value().get(), nullptr, &words).ok() && read_one(source.value().get(), &piece).ok() &&
              source.value()->read(memory).ok());
  EXPECT_EQ(runner.program, Id{10});
  EXPECT_EQ(piece.bytes, kPage);
  EXPECT_EQ(memory, page(10));
}

TEST(SavedFile, CutOffAnywhereIsRefused) {
  const std::string whole = example();
  for (size_t length = 0; length < whole.size(); ++length) EXPECT_FALSE(check(whole.substr(0, length)).ok()) << length;
  EXPECT_EQ(check(whole.substr(0, whole.size() - 1)).code(), EBADMSG);
}

class Collect final : public Sink {
 public:
  Status write(std::span<const std::byte> bytes) override {
    all.insert(all.end(), bytes.begin(), bytes.end());
    return {};
  }
  std::vector<std::byte> all;
};

// All that it has; nothing: it is refused.
std::vector<std::byte> read_all(const std::string& content) {
  const UniqueFd file = file_of(content);
  const auto source = FileSource::begin(file.get());
  Head head;
  if (!source.ok() || !read_head(source.value().get(), &head).ok()) return {};
  Collect collect;
  (void)write_one(&collect, head);
  uint64_t bytes = 0;
  for (uint32_t i = 0; i < head.runners; ++i) {
    RunnerHead runner;
    if (!read_one(source.value().get(), &runner).ok()) return {};
    (void)write_one(&collect, runner);
    std::string words;
    if (!copy_state(source.value().get(), &collect, &words).ok()) return {};
    if (!copy_pieces(source.value().get(), &collect, &bytes).ok()) return {};
  }
  return source.value()->end().ok() ? collect.all : std::vector<std::byte>();
}

// zstd has bits that mean nothing: what has only these changed is what it was.
TEST(SavedFile, AlteredAnywhereItIsRefusedOrTheSame) {
  const std::string whole = example();
  const std::vector<std::byte> right = read_all(whole);
  ASSERT_GT(right.size(), 6 * kPage);
  size_t refused = 0;
  for (size_t at = 0; at < whole.size(); ++at) {
    for (const char bit : {1, 64}) {
      std::string altered = whole;
      altered[at] = static_cast<char>(altered[at] ^ bit);
      const std::vector<std::byte> read = read_all(altered);
      refused += read.empty();
      EXPECT_TRUE(read.empty() || read == right) << at;
    }
  }
  EXPECT_GT(refused, whole.size() * 2 * 9 / 10);
}

TEST(SavedFile, NothingComesAfterIt) {
  EXPECT_EQ(check(example() + "x").code(), EBADMSG);
  EXPECT_EQ(check(example() + example()).code(), EBADMSG);
}

TEST(SavedFile, WhatItIsStandsInFront) {
  EXPECT_EQ(check("").message(), "it is no saved virtual GPU");
  EXPECT_EQ(check(std::string(4096, 'x')).code(), EINVAL);
  std::string later = example();
  later[sizeof kMagic] = kVersion + 1;
  const std::string words = fmt::format("version {}", kVersion + 1);
  EXPECT_NE(check(later).message().find(words), std::string::npos);
}

TEST(SavedFile, AFullDiskIsAnError) {
  const UniqueFd full(::open("/dev/full", O_WRONLY | O_CLOEXEC));
  ASSERT_TRUE(full);
  EXPECT_EQ(FileSink::begin(full.get()).status().code(), ENOSPC);
}

// Bytes that a program which has been taken over may write.
class Bytes final : public Source {
 public:
  explicit Bytes(std::vector<std::byte> bytes) : bytes_(std::move(bytes)) {}
  template <typename... Parts>
  static Bytes of(const Parts&... parts) {
    std::vector<std::byte> all;
    [[maybe_unused]] const auto add = [&all](const auto& part) {
      const auto raw = std::as_bytes(std::span(&part, 1));
      all.insert(all.end(), raw.begin(), raw.end());
    };
    (add(parts), ...);
    return Bytes(std::move(all));
  }
  Status read(std::span<std::byte> to) override {
    if (to.size() > bytes_.size() - at_) return Status::error(EPIPE, "the end");
    std::memcpy(to.data(), bytes_.data() + at_, to.size());
    at_ += to.size();
    return {};
  }

 private:
  std::vector<std::byte> bytes_;
  size_t at_ = 0;
};

TEST(SavedPieces, OnesThatMakeNoSenseAreRefused) {
  uint64_t bytes = 0;
  for (const Piece& piece : {Piece{1, kPage}, Piece{kPage, 1}, Piece{kPage, 0}, Piece{0, kPieceMost + kPage},
                             Piece{UINT64_MAX - kPage + 1, kPage * 2}}) {
    Bytes source = Bytes::of(piece);
    EXPECT_EQ(copy_pieces(&source, nullptr, &bytes).code(), EPROTO) << piece.address << " " << piece.bytes;
  }
  Bytes unended = Bytes::of();
  EXPECT_EQ(copy_pieces(&unended, nullptr, &bytes).code(), EPIPE);
  EXPECT_EQ(bytes, 0u);
}

TEST(SavedPieces, NoMoreComesThanThereIsRoomFor) {
  uint64_t bytes = 0, room = 2 * sizeof(Piece) + kPage;
  Bytes fits = Bytes::of(Piece{kPage, kPage}, std::array<std::byte, kPage>{}, Piece{});
  EXPECT_TRUE(copy_pieces(&fits, nullptr, &bytes, &room).ok());
  EXPECT_EQ(room, 0u);
  Bytes more = Bytes::of(Piece{kPage, kPage}, std::array<std::byte, kPage>{}, Piece{});
  EXPECT_EQ(copy_pieces(&more, nullptr, &bytes, &room).code(), EDQUOT);
  EXPECT_EQ(bytes, kPage);
}

TEST(SavedPieces, WordsSayWhatAnotherRunnerCouldNotHave) {
  Bytes source = Bytes::of(StateHead{0, 7}, std::array{'a', ' ', 'g', 'r', 'a', 'p', 'h'});
  std::string words;
  EXPECT_TRUE(copy_state(&source, nullptr, &words).ok());
  EXPECT_EQ(words, "a graph");
}

TEST(SavedPieces, AStateThatMakesNoSenseIsRefused) {
  std::string words;
  for (const StateHead& head : {StateHead{kStateMost + 1, 0}, StateHead{0, kWordsMost + 1}, StateHead{1, 1}}) {
    Bytes source = Bytes::of(head);
    EXPECT_EQ(copy_state(&source, nullptr, &words).code(), EPROTO) << head.bytes << " " << head.words;
  }
  Bytes unended = Bytes::of(StateHead{100, 0});
  EXPECT_EQ(copy_state(&unended, nullptr, &words).code(), EPIPE);
}

TEST(SavedPieces, AHeadThatMakesNoSenseIsRefused) {
  Head head;
  Bytes many = Bytes::of(Head{.runners = kRunnersMost + 1}), strange = Bytes::of(Head{.reserved = 1});
  EXPECT_EQ(read_head(&many, &head).code(), EPROTO);
  EXPECT_EQ(read_head(&strange, &head).code(), EPROTO);
}

TEST(SavedPipe, WhoHasGoneIsSeenAndWhoIsStoppedStops) {
  int ends[2];
  ASSERT_EQ(::pipe2(ends, O_CLOEXEC | O_NONBLOCK), 0);
  UniqueFd reads(ends[0]), writes(ends[1]);
  std::atomic<bool> stop{true};
  std::byte byte{};
  EXPECT_EQ(PipeSource(reads.get(), &stop).read({&byte, 1}).code(), ECANCELED);
  stop = false;
  writes.reset();
  EXPECT_EQ(PipeSource(reads.get(), &stop).read({&byte, 1}).code(), EPIPE);
}

}  // namespace
}  // namespace bandsaw::saved
