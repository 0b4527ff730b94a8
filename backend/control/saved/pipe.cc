#include <poll.h>
#include <unistd.h>

#include <cerrno>

#include "backend/control/saved/file.h"

namespace bandsaw::saved {
namespace {

constexpr int kLookMs = 200;  // how often `stop` is looked at

Status gone() { return Status::error(EPIPE, "a program has ended meanwhile"); }

Status await(int pipe, short what, const std::atomic<bool>& stop) {
  for (int waited = 0; waited < kSilenceMostMs; waited += kLookMs) {
    if (stop.load()) return Status::error(ECANCELED, "it is given up");
    pollfd entry{pipe, what, 0};
    const int ready = ::poll(&entry, 1, kLookMs);
    if (ready > 0) return {};
    if (ready < 0 && errno != EINTR) return Status::system("waiting for a program");
  }
  return Status::error(ETIMEDOUT, "a program is silent");
}

// Of what did not move.
Status wait_or_fail(ssize_t moved, int pipe, short what, const std::atomic<bool>& stop) {
  if (moved == 0 || errno == EPIPE) return gone();
  if (errno == EAGAIN) return await(pipe, what, stop);
  return errno == EINTR ? Status() : Status::system("moving memory");
}

}  // namespace

Status PipeSource::read(std::span<std::byte> bytes) {
  while (!bytes.empty()) {
    const ssize_t got = ::read(pipe_, bytes.data(), bytes.size());
    if (got > 0) {
      bytes = bytes.subspan(static_cast<size_t>(got));
    } else if (Status status = wait_or_fail(got, pipe_, POLLIN, stop_); !status.ok()) {
      return status;
    }
  }
  return {};
}

Status PipeSink::write(std::span<const std::byte> bytes) {
  while (!bytes.empty()) {
    const ssize_t written = ::write(pipe_, bytes.data(), bytes.size());
    if (written > 0) {
      bytes = bytes.subspan(static_cast<size_t>(written));
    } else if (Status status = wait_or_fail(written, pipe_, POLLOUT, stop_); !status.ok()) {
      return status;
    }
  }
  return {};
}

}  // namespace bandsaw::saved
