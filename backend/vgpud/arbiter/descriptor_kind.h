// What a descriptor that a session has sent really is. Polling or closing a file of another kind may wait for whoever
// serves it.
#pragma once

#include <unistd.h>

#include <string>
#include <string_view>

namespace bandsaw {

// As /proc names it; a file's name begins with a slash, so none looks like a kind.
inline std::string descriptor_kind(int descriptor) {
  char kind[64];
  const std::string link = "/proc/self/fd/" + std::to_string(descriptor);
  const ssize_t length = ::readlink(link.c_str(), kind, sizeof kind);
  return std::string(kind, length > 0 ? static_cast<size_t>(length) : 0);
}

inline bool is_eventfd(int descriptor) { return descriptor_kind(descriptor) == "anon_inode:[eventfd]"; }

// Kernels from 6.9 on give pidfds a file system of their own.
inline bool is_pidfd(int descriptor) {
  const std::string kind = descriptor_kind(descriptor);
  return kind == "anon_inode:[pidfd]" || std::string_view(kind).starts_with("pidfd:[");
}

}  // namespace bandsaw
