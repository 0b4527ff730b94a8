#include "backend/vgpud/lock.h"

#include <fcntl.h>
#include <sys/file.h>
#include <unistd.h>

#include <algorithm>

namespace bandsaw {

Result<UniqueFd> take_lock(const std::string& path) {
  UniqueFd file(::open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0644));
  if (!file) return Status::system("cannot make {}", path);
  if (::flock(file.get(), LOCK_EX | LOCK_NB) < 0) {
    char pid[16] = {};
    const ssize_t length = ::pread(file.get(), pid, sizeof pid - 1, 0);
    std::string text(pid, static_cast<size_t>(std::max<ssize_t>(length, 0)));
    std::erase(text, '\n');
    return Status::error(EEXIST,
                         "a vgpud runs already (pid {}, {}); end it first, or give this one another BANDSAW_RUN",
                         text.empty() ? "unknown" : text, path);
  }
  const std::string pid = std::to_string(::getpid()) + "\n";
  if (::ftruncate(file.get(), 0) < 0 || ::pwrite(file.get(), pid.data(), pid.size(), 0) < 0) {
    return Status::system("cannot write {}", path);
  }
  return file;
}

}  // namespace bandsaw
