// All of it, or false: errno says why, or the file takes no more.
#pragma once

#include <unistd.h>

#include <cstddef>

namespace bandsaw::soft {

inline bool write_all(int fd, const void* data, size_t bytes) {
  const auto* at = static_cast<const char*>(data);
  while (bytes > 0) {
    const ssize_t written = ::write(fd, at, bytes);
    if (written <= 0) return false;
    at += written;
    bytes -= static_cast<size_t>(written);
  }
  return true;
}

}  // namespace bandsaw::soft
