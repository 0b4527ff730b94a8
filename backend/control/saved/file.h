// The file of a saved virtual GPU: 16 bytes that say what it is, then one frame of zstd's with a checksum.
#pragma once

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <iterator>
#include <memory>
#include <set>
#include <string>

#include "backend/control/saved/stream.h"

namespace bandsaw::saved {

// vgpuctl looks at these before it hands a file on.
inline constexpr char kMagic[12] = {'B', 'a', 'n', 'd', 's', 'a', 'w', ' ', 's', 'a', 'v', 'e'};
inline constexpr uint32_t kVersion = 4;
struct FileHead {
  char magic[sizeof kMagic]{};
  uint32_t version = 0;
};
// EINVAL: no saved virtual GPU, or one of another version.
inline Status check_file_head(const FileHead& head) {
  if (!std::equal(std::begin(kMagic), std::end(kMagic), head.magic)) {
    return Status::error(EINVAL, "it is no saved virtual GPU");
  }
  if (head.version == kVersion) return {};
  return Status::error(EINVAL, "it is a saved virtual GPU of version {}, and this is {}", head.version, kVersion);
}

// The descriptors are the caller's, and outlive these.
class FileSink final : public Sink {
 public:
  static Result<std::unique_ptr<FileSink>> begin(int file);
  ~FileSink() override;
  Status write(std::span<const std::byte> bytes) override;
  // Nothing more comes. What was written is on the disk.
  Status end();

 private:
  struct Stream;
  explicit FileSink(int file);
  Status flush(std::span<const std::byte> bytes, bool last);
  const int file_;
  std::unique_ptr<Stream> stream_;
};

class FileSource final : public Source {
 public:
  // From where the descriptor stands.
  static Result<std::unique_ptr<FileSource>> begin(int file);
  ~FileSource() override;
  // EBADMSG: it is cut off, or was altered.
  Status read(std::span<std::byte> bytes) override;
  // Nothing more is to come, and what came was what was written.
  Status end();

 private:
  struct Stream;
  explicit FileSource(int file);
  Status fill();
  const int file_;
  std::unique_ptr<Stream> stream_;
};

// What a file has.
struct Contents {
  Head head;
  uint64_t bytes = 0;     // of memory
  std::set<Id> programs;  // whose runners may be others
  std::string lacks;      // of one of the others, if there are any, why not
};
// Reads all of it. An error says what is wrong.
Status check_file(int file, Contents* contents);

// Our end of a pipe, which does not block. EPIPE: the other end has gone before all has come; ETIMEDOUT: it was silent
// for kSilenceMostMs; ECANCELED: `stop` was set.
inline constexpr int kSilenceMostMs = 40000;

class PipeSource final : public Source {
 public:
  PipeSource(int pipe, const std::atomic<bool>* stop) : pipe_(pipe), stop_(*stop) {}
  Status read(std::span<std::byte> bytes) override;

 private:
  const int pipe_;
  const std::atomic<bool>& stop_;
};

class PipeSink final : public Sink {
 public:
  PipeSink(int pipe, const std::atomic<bool>* stop) : pipe_(pipe), stop_(*stop) {}
  Status write(std::span<const std::byte> bytes) override;

 private:
  const int pipe_;
  const std::atomic<bool>& stop_;
};

}  // namespace bandsaw::saved
