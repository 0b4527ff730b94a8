#include "backend/sandbox/root.h"

#include <fcntl.h>
#include <linux/mount.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <optional>
#include <string_view>

#include "memory/base/unique_fd.h"

namespace bandsaw {
namespace {

namespace fs = std::filesystem;
using Access = RootEntry::Access;

constexpr size_t kRootBytes = 1 << 20, kScratchBytes = 64 << 20;
constexpr unsigned long kQuiet = MS_NOSUID | MS_NODEV | MS_NOEXEC;

// A copy of what is mounted at a path, not yet mounted anywhere.
struct Piece {
  UniqueFd tree;
  std::string at;
  bool is_folder = false;
};

uint64_t attributes_of(Access access) {
  switch (access) {
    case Access::kRead:
      return MOUNT_ATTR_RDONLY | MOUNT_ATTR_NOSUID | MOUNT_ATTR_NODEV;
    case Access::kWrite:
      return MOUNT_ATTR_NOSUID | MOUNT_ATTR_NODEV | MOUNT_ATTR_NOEXEC;
    case Access::kDevice:
      return MOUNT_ATTR_NOSUID | MOUNT_ATTR_NOEXEC;
    case Access::kWhole:
      break;
  }
  return 0;
}

Result<Piece> clone(const RootEntry& entry) {
  Piece piece{UniqueFd(static_cast<int>(::syscall(SYS_open_tree, AT_FDCWD, entry.path.c_str(),
                                                  OPEN_TREE_CLONE | OPEN_TREE_CLOEXEC | AT_RECURSIVE))),
              entry.at.empty() ? entry.path : entry.at};
  if (!piece.tree) return Status::system("cannot show {} in a root", entry.path);
  struct stat found{};
  if (::fstatat(piece.tree.get(), "", &found, AT_EMPTY_PATH) < 0)
    return Status::system("cannot look at {}", entry.path);
  piece.is_folder = S_ISDIR(found.st_mode);
  mount_attr attributes{};
  attributes.attr_set = attributes_of(entry.access);
  if (attributes.attr_set != 0 && ::syscall(SYS_mount_setattr, piece.tree.get(), "", AT_EMPTY_PATH | AT_RECURSIVE,
                                            &attributes, sizeof attributes) < 0) {
    return Status::system("cannot close {}", entry.path);
  }
  return piece;
}

bool is_within(const fs::path& path, const std::vector<RootEntry>& entries) {
  return std::any_of(entries.begin(), entries.end(), [&](const RootEntry& entry) {
    const fs::path folder(entry.path);
    return std::mismatch(folder.begin(), folder.end(), path.begin(), path.end()).first == folder.end();
  });
}

// A folder by its name, and what that is a link to. What lies in a folder that is there needs no place of its own; and
// nothing can be mounted on a link.
void add_folder(const fs::path& path, std::vector<RootEntry>* entries) {
  std::error_code error;
  const fs::path name = path.lexically_normal(), whole = fs::canonical(name, error);
  if (error) return;
  for (const fs::path& each : {whole, name}) {
    if (!is_within(each, *entries)) entries->push_back({each});
  }
}

// Of a path below this process's folder, which is the root to be.
std::string below(const std::string& path) { return "." + path; }

Status make_folders(const std::string& path) {
  std::error_code error;
  fs::create_directories(below(path), error);
  return error ? Status::error(error.value(), "cannot make {} in a root: {}", path, error.message()) : Status();
}

Status make_file(const std::string& path) {
  if (Status status = make_folders(fs::path(path).parent_path()); !status.ok()) return status;
  const UniqueFd file(::open(below(path).c_str(), O_WRONLY | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0444));
  return file ? Status() : Status::system("cannot make {} in a root", path);
}

Status place(const Piece& piece) {
  // Inside of another entry it is there already.
  if (::access(below(piece.at).c_str(), F_OK) != 0) {
    if (Status status = piece.is_folder ? make_folders(piece.at) : make_file(piece.at); !status.ok()) return status;
  }
  if (::syscall(SYS_move_mount, piece.tree.get(), "", AT_FDCWD, below(piece.at).c_str(), MOVE_MOUNT_F_EMPTY_PATH) < 0) {
    return Status::system("cannot mount {} in a root", piece.at);
  }
  return {};
}

// /lib and its like are links on most hosts.
void copy_links() {
  for (const char* name : {"/lib", "/lib64", "/lib32", "/bin", "/sbin"}) {
    std::error_code error;
    const fs::path to = fs::read_symlink(name, error);
    if (!error) fs::create_symlink(to, below(name), error);
  }
}

// Folders and files of a root are for its users, whatever the umask is (systemd's unit has 0077).
class OpenUmask {
 public:
  OpenUmask() : before_(::umask(0022)) {}
  ~OpenUmask() { ::umask(before_); }
  OpenUmask(const OpenUmask&) = delete;

 private:
  const mode_t before_;
};

Status furnish(const RootPlan& plan, const std::vector<Piece>& pieces) {
  const OpenUmask open;
  copy_links();
  // First: other things may lie in there.
  for (const std::string& path : plan.scratch) {
    if (Status status = make_folders(path); !status.ok()) return status;
    if (Status status = mount_scratch(below(path), kQuiet, kScratchBytes, 01777); !status.ok()) return status;
  }
  for (const Piece& piece : pieces) {
    if (Status status = place(piece); !status.ok()) return status;
  }
  for (const std::string& path : plan.folders) {
    if (Status status = make_folders(path); !status.ok()) return status;
  }
  for (const std::string& path : plan.files) {
    if (::access(below(path).c_str(), F_OK) == 0) continue;
    if (Status status = make_file(path); !status.ok()) return status;
  }
  if (::mount(nullptr, ".", nullptr, MS_REMOUNT | MS_BIND | MS_RDONLY | MS_NOSUID | MS_NODEV, nullptr) < 0) {
    return Status::system("cannot close a root");
  }
  return {};
}

// Where the old root is no mount, as in the kernel's first file system, the new one is put over it.
Status move_in() {
  if (::syscall(SYS_pivot_root, ".", ".") == 0) {
    if (::umount2(".", MNT_DETACH) < 0) return Status::system("cannot leave the host's root");
    return ::chdir("/") < 0 ? Status::system("cannot enter a root") : Status();
  }
  if (errno != EINVAL) return Status::system("cannot change the root");
  if (::mount(".", "/", nullptr, MS_MOVE, nullptr) < 0 || ::chroot(".") < 0 || ::chdir("/") < 0) {
    return Status::system("cannot change the root");
  }
  return {};
}

}  // namespace

Status mount_scratch(const std::string& on, unsigned long flags, size_t bytes, unsigned mode) {
  const std::string options = fmt::format("mode={:o},size={}", mode, bytes);
  if (::mount("bandsaw", on.c_str(), "tmpfs", flags, options.c_str()) < 0) {
    return Status::system("cannot make a file system in memory on {}", on);
  }
  return {};
}

Status enter_root(const RootPlan& plan) {
  if (::mount(nullptr, "/", nullptr, MS_REC | MS_PRIVATE, nullptr) < 0) return Status::system("cannot part mounts");
  std::vector<Piece> pieces;
  for (const RootEntry& entry : plan.entries) {
    auto piece = clone(entry);
    if (piece.ok()) {
      pieces.push_back(std::move(piece.value()));
    } else if (entry.needed || (piece.status().code() != ENOENT && piece.status().code() != ENOTDIR)) {
      return piece.status();
    }
  }
  const UniqueFd before(::open(".", O_PATH | O_DIRECTORY | O_CLOEXEC));
  if (Status status = mount_scratch(plan.staging, MS_NOSUID | MS_NODEV, kRootBytes, 0755); !status.ok()) return status;
  Status status = ::chdir(plan.staging.c_str()) < 0 ? Status::system("cannot enter a root") : Status();
  if (status.ok()) status = furnish(plan, pieces);
  if (status.ok()) status = move_in();
  if (status.ok()) return status;
  (void)!::fchdir(before.get());
  ::umount2(plan.staging.c_str(), MNT_DETACH);
  return status;
}

std::vector<RootEntry> program_entries(const std::string& program, const std::vector<std::string>& environment,
                                       bool gpu) {
  constexpr std::string_view kPath = "LD_LIBRARY_PATH=", kDriver = "BANDSAW_CUDA_DRIVER=";
  std::vector<RootEntry> entries;
  // Of alternatives there are links alone.
  for (const char* path : {"/usr/lib", "/usr/lib64", gpu ? "/usr/local" : "/usr/local/lib", "/lib", "/lib64",
                           "/etc/ld.so.cache", "/etc/alternatives"}) {
    std::error_code error;
    if (!fs::is_symlink(path, error)) entries.push_back({path});
  }
  for (const std::string& variable : environment) {
    if (variable.starts_with(kDriver) && variable.size() > kDriver.size() && variable[kDriver.size()] == '/') {
      add_folder(fs::path(variable.substr(kDriver.size())).parent_path(), &entries);
    }
    if (!variable.starts_with(kPath)) continue;
    for (size_t from = kPath.size(); from < variable.size();) {
      const size_t to = std::min(variable.find(':', from), variable.size());
      if (variable[from] == '/' && to - from > 1) add_folder(variable.substr(from, to - from), &entries);
      from = to + 1;
    }
  }
  entries.push_back({.path = fs::path(program).parent_path(), .needed = true});
  return entries;
}

std::vector<RootEntry> common_devices() {
  std::vector<RootEntry> entries;
  for (const char* file : {"/dev/null", "/dev/zero", "/dev/full", "/dev/random", "/dev/urandom"}) {
    entries.push_back({file, Access::kDevice});
  }
  return entries;
}

Status mount_proc(bool all, bool sees_others) {
  const std::string options =
      std::string(sees_others ? "hidepid=off" : "hidepid=invisible") + (all ? "" : ",subset=pid");
  if (::mount("proc", "/proc", "proc", kQuiet, options.c_str()) == 0) return {};
  return Status::system("cannot mount /proc");
}

Status bind(const std::string& from, const std::string& to) {
  if (::mount(from.c_str(), to.c_str(), nullptr, MS_BIND | MS_REC, nullptr) < 0) {
    return Status::system("cannot show {} at {}", from, to);
  }
  return {};
}

}  // namespace bandsaw
