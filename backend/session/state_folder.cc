#include "backend/session/state_folder.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <filesystem>

namespace bandsaw {
namespace {

constexpr mode_t kOwnerOnly = 0700, kReadByGroup = 0750;

// The folder `name` in `parent`, made if need be; never through a link.
Result<UniqueFd> open_own(int parent, const std::string& name) {
  if (::mkdirat(parent, name.c_str(), kOwnerOnly) < 0 && errno != EEXIST) {
    return Status::system("cannot make the folder '{}'", name);
  }
  UniqueFd folder(::openat(parent, name.c_str(), O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC));
  if (!folder) return Status::system("'{}' is no folder of its own", name);
  return folder;
}

}  // namespace

Result<UniqueFd> open_state_folder(const std::string& path, uid_t uid, uid_t before, gid_t readers) {
  const std::filesystem::path whole(path);
  std::error_code error;
  std::filesystem::create_directories(whole.parent_path(), error);
  if (error) return Status::error(error.value(), "cannot make {}: {}", whole.parent_path().string(), error.message());
  const UniqueFd parent(::open(whole.parent_path().c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  if (!parent) return Status::system("cannot open {}", whole.parent_path().string());
  auto folder = open_own(parent.get(), whole.filename().string());
  if (!folder.ok()) return folder;
  struct stat found;
  if (::fstat(folder.value().get(), &found) < 0) return Status::system("cannot look at {}", path);
  if (before != 0 && before != uid && found.st_uid == before && ::geteuid() == 0) {
    std::filesystem::remove_all(whole, error);
    if (error) return Status::error(error.value(), "cannot remove {}: {}", path, error.message());
    return open_state_folder(path, uid, 0, readers);
  }
  if (found.st_uid != ::geteuid() && found.st_uid != uid) {
    return Status::error(EACCES, "{} belongs to user {}; remove it, and it is made anew", path, found.st_uid);
  }
  if (uid != 0 && ::geteuid() == 0 && ::fchown(folder.value().get(), uid, readers != 0 ? readers : uid) < 0) {
    return Status::system("cannot give {} to user {}", path, uid);
  }
  const mode_t mode = uid != 0 && readers != 0 ? kReadByGroup : kOwnerOnly;
  if (::fchmod(folder.value().get(), mode) < 0) return Status::system("cannot close {} to others", path);
  return folder;
}

}  // namespace bandsaw
