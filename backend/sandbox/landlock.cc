#include "backend/sandbox/landlock.h"

#include <fcntl.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cstdint>

#include "memory/base/unique_fd.h"

// As in linux/landlock.h: this may be built where the kernel's headers are older than the kernel that it runs on.
#ifndef SYS_landlock_create_ruleset
#define SYS_landlock_create_ruleset 444
#define SYS_landlock_add_rule 445
#define SYS_landlock_restrict_self 446
#endif

namespace bandsaw {
namespace {

struct Ruleset {
  uint64_t files, network, scoped;
};
struct [[gnu::packed]] PathBeneath {
  uint64_t allowed;
  int32_t parent;
};

constexpr unsigned kVersionFlag = 1;
constexpr int kPathBeneath = 1;
// Rights for files and folders; each ABI has more of them.
constexpr uint64_t kExecute = 1 << 0, kWriteFile = 1 << 1, kReadFile = 1 << 2, kReadFolder = 1 << 3, kRefer = 1 << 13,
                   kTruncate = 1 << 14, kIoctl = 1 << 15;
constexpr uint64_t kAllOfAbi1 = (1 << 13) - 1;  // the above, and to make and remove each kind of file
constexpr uint64_t kFiles = kExecute | kWriteFile | kReadFile | kTruncate | kIoctl;
constexpr uint64_t kBindAndConnect = 3, kAbstractSocketsAndSignals = 3;
constexpr long kAbiRefer = 2, kAbiTruncate = 3, kAbiNetwork = 4, kAbiIoctl = 5, kAbiScopes = 6;

long abi() {
  const long version = ::syscall(SYS_landlock_create_ruleset, nullptr, 0, kVersionFlag);
  return version < 0 ? 0 : version;
}

Ruleset handled(long version) {
  Ruleset rules{kAllOfAbi1, 0, 0};
  if (version >= kAbiRefer) rules.files |= kRefer;
  if (version >= kAbiTruncate) rules.files |= kTruncate;
  if (version >= kAbiIoctl) rules.files |= kIoctl;
  if (version >= kAbiNetwork) rules.network = kBindAndConnect;
  if (version >= kAbiScopes) rules.scoped = kAbstractSocketsAndSignals;
  return rules;
}

size_t size_for(long version) {
  if (version < kAbiNetwork) return sizeof(uint64_t);
  return version < kAbiScopes ? 2 * sizeof(uint64_t) : sizeof(Ruleset);
}

Status allow(int ruleset, int file, const std::string& path, uint64_t rights) {
  struct stat found{};
  if (::fstat(file, &found) < 0) return Status::system("cannot look at {}", path);
  PathBeneath rule{S_ISDIR(found.st_mode) ? rights : rights & kFiles, file};
  if (::syscall(SYS_landlock_add_rule, ruleset, kPathBeneath, &rule, 0) < 0) {
    return Status::system("landlock refuses a rule for {}", path);
  }
  return {};
}

Status allow(int ruleset, const std::string& path, uint64_t rights) {
  const UniqueFd file(::open(path.c_str(), O_PATH | O_CLOEXEC));
  return file ? allow(ruleset, file.get(), path, rights) : Status();
}

}  // namespace

bool has_landlock() { return abi() > 0; }

Result<bool> enter_landlock(const LandlockPaths& paths) {
  const long version = abi();
  if (version == 0) return false;
  const Ruleset rules = handled(version);
  const UniqueFd ruleset(static_cast<int>(::syscall(SYS_landlock_create_ruleset, &rules, size_for(version), 0)));
  if (!ruleset) return Status::system("landlock makes no rules");
  const uint64_t read = kExecute | kReadFile | kReadFolder;
  // To truncate: NVIDIA's driver library opens /proc/self/task/N/comm so, and gives up where it cannot.
  const uint64_t use = rules.files & (kReadFile | kReadFolder | kWriteFile | kTruncate | kIoctl);
  Status status;
  for (const std::string& path : paths.read) {
    if (status.ok()) status = allow(ruleset.get(), path, read);
  }
  for (const std::string& path : paths.write) {
    if (status.ok()) status = allow(ruleset.get(), path, rules.files & ~(kExecute | kIoctl));
  }
  if (status.ok() && paths.write_in >= 0) {
    status = allow(ruleset.get(), paths.write_in, "the own folder", rules.files & ~(kExecute | kIoctl));
  }
  for (const std::string& path : paths.use) {
    if (status.ok()) status = allow(ruleset.get(), path, use);
  }
  if (!status.ok()) return status;
  if (::prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) < 0) return Status::system("cannot forbid new privileges");
  if (::syscall(SYS_landlock_restrict_self, ruleset.get(), 0) < 0) return Status::system("landlock is refused");
  return true;
}

}  // namespace bandsaw
