// Descriptors that programs pass on: sealed files that name something. A guest's kernel knows nothing of a GPU's
// memory, so who has the file can have what it names.
#pragma once

#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

namespace bandsaw::libcuda {

inline constexpr int kTokenSeals = F_SEAL_SEAL | F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_WRITE;

// The caller owns the descriptor; -1: no room for one more.
template <typename Token>
int make_token_file(const char* name, const Token& token) {
  const int file = memfd_create(name, MFD_CLOEXEC | MFD_ALLOW_SEALING);
  if (file < 0) return -1;
  if (write(file, &token, sizeof(token)) == static_cast<ssize_t>(sizeof(token)) &&
      fcntl(file, F_ADD_SEALS, kTokenSeals) == 0) {
    return file;
  }
  close(file);
  return -1;
}

// False: it is no such file.
template <typename Token>
bool read_token_file(int file, Token* token) {
  return fcntl(file, F_GET_SEALS) == kTokenSeals &&
         pread(file, token, sizeof(*token), 0) == static_cast<ssize_t>(sizeof(*token)) && token->magic == Token::kMagic;
}

}  // namespace bandsaw::libcuda
