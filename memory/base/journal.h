// systemd's journal, by its native protocol: one datagram for each entry, so that an entry has fields beside its text.
// Not libsystemd, which each program that logs would load with five libraries more.
#pragma once

#include <initializer_list>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

#include "memory/base/unique_fd.h"

namespace bandsaw {

class Journal {
 public:
  static constexpr const char* kSocket = "/run/systemd/journal/socket";

  // None: `descriptor` is not the journal's stream. `stream` is what systemd says in JOURNAL_STREAM ("DEVICE:INODE";
  // null: it says nothing).
  static std::optional<Journal> behind(int descriptor, const char* stream, const char* socket = kSocket);

  // Names of fields are upper case. A field whose text is empty is left out. False: the entry was not taken (it is
  // larger than a datagram, or the journal does not run). Any thread.
  using Field = std::pair<std::string_view, std::string_view>;
  bool send(std::initializer_list<Field> fields) const noexcept;

 private:
  explicit Journal(UniqueFd socket) : socket_(std::move(socket)) {}

  UniqueFd socket_;  // connected
};

}  // namespace bandsaw
