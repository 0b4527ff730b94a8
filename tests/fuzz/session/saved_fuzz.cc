// A file that an administrator restores, and what a runner writes into its pipe: any bytes. What must hold: they are
// refused, or every piece makes sense.
#include <sys/mman.h>
#include <unistd.h>

#include <cstdlib>
#include <cstring>

#include "backend/control/saved/file.h"
#include "memory/base/unique_fd.h"
#include "tests/fuzz/input.h"

namespace {

using namespace bandsaw;
using namespace bandsaw::saved;

class Bytes final : public Source {
 public:
  explicit Bytes(std::span<const std::byte> bytes) : input_(bytes) {}
  Status read(std::span<std::byte> to) override {
    const auto came = input_.take(to.size());
    if (came.size() < to.size()) return Status::error(EPIPE, "the end");
    std::memcpy(to.data(), came.data(), came.size());
    return {};
  }

 private:
  Input input_;
};

// Sees what goes on: heads of pieces, and as many bytes as they say.
class Watch final : public Sink {
 public:
  Status write(std::span<const std::byte> bytes) override {
    if (left_ == 0) {
      Piece piece;
      if (bytes.size() != sizeof piece || ended_) std::abort();
      std::memcpy(&piece, bytes.data(), sizeof piece);
      if (piece.address % kPage != 0 || piece.bytes % kPage != 0 || piece.address + piece.bytes < piece.address) {
        std::abort();
      }
      left_ = piece.bytes;
      ended_ = piece.bytes == 0;
    } else {
      if (bytes.size() > left_) std::abort();
      left_ -= bytes.size();
    }
    return {};
  }
  bool ended() const { return ended_; }

 private:
  uint64_t left_ = 0;
  bool ended_ = false;
};

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const auto bytes = std::as_bytes(std::span(data, size));
  Bytes source(bytes);
  Watch watch;
  uint64_t moved = 0;
  if (copy_pieces(&source, &watch, &moved).ok() != watch.ended()) std::abort();

  const UniqueFd file(::memfd_create("saved", MFD_CLOEXEC));
  if (::write(file.get(), data, size) != static_cast<ssize_t>(size) || ::lseek(file.get(), 0, SEEK_SET) != 0) {
    std::abort();
  }
  Contents contents;
  if (check_file(file.get(), &contents).ok() && contents.head.runners > kRunnersMost) std::abort();
  return 0;
}
