#include "memory/base/journal.h"

#include <fmt/format.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>

#include <cstdint>
#include <cstring>

namespace bandsaw {
namespace {

// NAME=text, and where the text has several lines its length in 8 bytes, the lowest first.
void add(std::string* entry, std::string_view name, std::string_view text) {
  entry->append(name);
  if (text.find('\n') == text.npos) {
    entry->append("=").append(text).append("\n");
    return;
  }
  entry->append("\n");
  for (int shift = 0; shift < 64; shift += 8) entry->push_back(static_cast<char>(uint64_t{text.size()} >> shift));
  entry->append(text).append("\n");
}

}  // namespace

std::optional<Journal> Journal::behind(int descriptor, const char* stream, const char* socket) {
  struct stat found{};
  if (!stream || ::fstat(descriptor, &found) < 0) return std::nullopt;
  if (fmt::format("{}:{}", found.st_dev, found.st_ino) != stream) return std::nullopt;
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  if (std::strlen(socket) >= sizeof address.sun_path) return std::nullopt;
  std::strcpy(address.sun_path, socket);
  UniqueFd made(::socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0));
  if (!made || ::connect(made.get(), reinterpret_cast<const sockaddr*>(&address), sizeof address) < 0) {
    return std::nullopt;
  }
  return Journal(std::move(made));
}

bool Journal::send(std::initializer_list<Field> fields) const noexcept {
  try {
    std::string entry;
    for (const auto& [name, text] : fields) {
      if (!text.empty()) add(&entry, name, text);
    }
    return ::send(socket_.get(), entry.data(), entry.size(), MSG_NOSIGNAL) == static_cast<ssize_t>(entry.size());
  } catch (const std::bad_alloc&) {
    return false;
  }
}

}  // namespace bandsaw
