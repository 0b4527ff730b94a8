#include "memory/base/replace_file.h"

#include <fcntl.h>
#include <unistd.h>

#include <cstdio>
#include <filesystem>

#include "memory/base/unique_fd.h"

namespace bandsaw {
namespace {

Status write_all(int fd, const std::string& text, const std::string& path) {
  for (size_t written = 0; written < text.size();) {
    const ssize_t count = ::write(fd, text.data() + written, text.size() - written);
    if (count < 0 && errno == EINTR) continue;
    if (count < 0) return Status::system("cannot write {}", path);
    written += static_cast<size_t>(count);
  }
  return {};
}

Status write_synced(const std::string& path, const std::string& text) {
  UniqueFd file(::open(path.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644));
  if (!file) return Status::system("cannot make {}", path);
  if (Status status = write_all(file.get(), text, path); !status.ok()) return status;
  if (::fsync(file.get()) < 0) return Status::system("cannot sync {}", path);
  return {};
}

}  // namespace

Status replace_file(const std::string& path, const std::string& text) {
  const std::string temporary = path + ".new";
  Status status = write_synced(temporary, text);
  if (status.ok() && ::rename(temporary.c_str(), path.c_str()) < 0) status = Status::system("cannot replace {}", path);
  if (!status.ok()) {
    ::unlink(temporary.c_str());
    return status;
  }
  const std::string directory = std::filesystem::path(path).parent_path();
  UniqueFd folder(::open(directory.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  if (!folder || ::fsync(folder.get()) < 0) return Status::system("cannot sync {}", directory);
  return {};
}

}  // namespace bandsaw
