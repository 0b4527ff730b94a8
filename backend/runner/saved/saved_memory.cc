#include "backend/runner/saved/saved_memory.h"

#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <map>

#include "backend/control/runner_link.h"
#include "backend/control/saved/stream.h"

namespace bandsaw::runner {
namespace {

int write_all(int pipe, std::span<const std::byte> bytes) {
  while (!bytes.empty()) {
    const ssize_t written = ::write(pipe, bytes.data(), bytes.size());
    if (written < 0 && errno == EINTR) continue;
    if (written <= 0) return errno;
    bytes = bytes.subspan(static_cast<size_t>(written));
  }
  return 0;
}

int read_all(int pipe, std::span<std::byte> bytes) {
  while (!bytes.empty()) {
    const ssize_t got = ::read(pipe, bytes.data(), bytes.size());
    if (got < 0 && errno == EINTR) continue;
    if (got <= 0) return got < 0 ? errno : EPIPE;
    bytes = bytes.subspan(static_cast<size_t>(got));
  }
  return 0;
}

int write_piece(int pipe, const saved::Piece& piece) { return write_all(pipe, std::as_bytes(std::span(&piece, 1))); }

// The next piece must be this one.
int expect_piece(int pipe, const saved::Piece& piece) {
  saved::Piece came;
  if (const int error = read_all(pipe, std::as_writable_bytes(std::span(&came, 1))); error != 0) return error;
  return came.address == piece.address && came.bytes == piece.bytes ? 0 : EPROTO;
}

int write_memory(std::span<const AwayMemory> away, int pipe) {
  for (const AwayMemory& one : away) {
    int error = write_piece(pipe, {one.address, one.pages.size()});
    if (error == 0) error = write_all(pipe, one.pages);
    if (error != 0) return error;
  }
  return write_piece(pipe, {});
}

int read_memory(std::span<const AwayMemory> away, int pipe) {
  for (const AwayMemory& one : away) {
    int error = expect_piece(pipe, {one.address, one.pages.size()});
    if (error == 0) error = read_all(pipe, one.pages);
    if (error != 0) return error;
  }
  return expect_piece(pipe, {});
}

// Into a process that was made anew: what its runner had for itself it has no more.
int take_memory(std::span<const AwayMemory> away, int pipe) {
  std::map<uint64_t, std::span<std::byte>> places;
  for (const AwayMemory& one : away) places.emplace(one.address, one.pages);
  std::vector<std::byte> nowhere(uint64_t{256} << 10);
  for (;;) {
    saved::Piece came;
    if (const int error = read_all(pipe, std::as_writable_bytes(std::span(&came, 1))); error != 0) return error;
    if (came.bytes == 0) break;
    const auto place = places.extract(came.address);
    if (!place.empty() && place.mapped().size() != came.bytes) return EPROTO;
    int error = place.empty() ? 0 : read_all(pipe, place.mapped());
    for (uint64_t left = place.empty() ? came.bytes : 0; left > 0 && error == 0;) {
      const auto part = std::span(nowhere).first(std::min<uint64_t>(left, nowhere.size()));
      error = read_all(pipe, part);
      left -= part.size();
    }
    if (error != 0) return error;
  }
  return places.empty() ? 0 : EPROTO;
}

int forget_memory(std::span<const AwayMemory> away) {
  for (const AwayMemory& one : away) {
    if (::madvise(one.pages.data(), one.pages.size(), MADV_REMOVE) == 0) continue;  // of a file's, which has them
    if (::madvise(one.pages.data(), one.pages.size(), MADV_DONTNEED) != 0) return errno;
  }
  return 0;
}

}  // namespace

int save_away_memory(std::span<const AwayMemory> away, uint32_t what, int pipe) {
  if (what == kSavedForget) return forget_memory(away);
  if (pipe < 0) return EBADF;
  if (what == kSavedWrite) return write_memory(away, pipe);
  if (what == kSavedMake) return take_memory(away, pipe);
  return what == kSavedRead ? read_memory(away, pipe) : EINVAL;
}

int write_state(int pipe, std::span<const std::byte> state, std::string_view words) {
  const saved::StateHead head{state.size(), words.size()};
  int error = write_all(pipe, std::as_bytes(std::span(&head, 1)));
  if (error == 0) error = write_all(pipe, state);
  return error == 0 ? write_all(pipe, std::as_bytes(std::span(words))) : error;
}

int read_state(int pipe, std::vector<std::byte>* state) {
  saved::StateHead head;
  if (const int error = read_all(pipe, std::as_writable_bytes(std::span(&head, 1))); error != 0) return error;
  if (head.bytes > saved::kStateMost || head.words != 0) return EPROTO;
  state->resize(head.bytes);
  return read_all(pipe, *state);
}

}  // namespace bandsaw::runner
