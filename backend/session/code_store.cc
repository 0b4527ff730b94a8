#include "backend/session/code_store.h"

#include <dirent.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <string_view>
#include <tuple>
#include <vector>

#include "memory/base/log.h"

namespace bandsaw {
namespace {

constexpr const char* kFolder = "cache";
constexpr std::string_view kEnd = ".o";
constexpr const char* kPart = "part";  // what is being written
// The folder above lets nobody in but this session and its runners. No file becomes the runners' by the set-group-ID
// bit: systemd's unit forbids that bit.
constexpr mode_t kFolderMode = 0755, kFileMode = 0444;
// One file is copied in one go, while nothing else of this virtual GPU is served.
constexpr uint64_t kLargest = 256ull << 20;
constexpr uint64_t kBlock = 4096;  // what the smallest file takes of a disk

bool is_key(std::string_view text) {
  return text.size() == std::tuple_size_v<decltype(ExchangeTail::payload)> &&
         text.find_first_not_of("0123456789abcdef") == text.npos;
}

uint64_t on_disk(uint64_t bytes) { return (bytes + kBlock - 1) / kBlock * kBlock; }

}  // namespace

Result<std::unique_ptr<CodeStore>> CodeStore::open(int folder, uint64_t most) {
  if (::mkdirat(folder, kFolder, kFolderMode) < 0 && errno != EEXIST)
    return Status::system("cannot make '{}'", kFolder);
  UniqueFd inside(::openat(folder, kFolder, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC));
  if (!inside) return Status::system("'{}' is no folder", kFolder);
  // Whatever the umask is.
  if (::fchmod(inside.get(), kFolderMode) < 0) return Status::system("cannot open '{}' to runners", kFolder);
  std::unique_ptr<CodeStore> store(new CodeStore(std::move(inside), most));
  if (Status status = store->find_kept(); !status.ok()) return status;
  store->make_room(most);
  return store;
}

// What was left behind by something else than a keeper goes.
Status CodeStore::find_kept() {
  const int copy = ::openat(folder_.get(), ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  DIR* const list = copy < 0 ? nullptr : ::fdopendir(copy);
  if (!list) {
    const Status status = Status::system("cannot read the folder of compiled code");
    if (copy >= 0) ::close(copy);
    return status;
  }
  std::vector<std::tuple<int64_t, int64_t, std::string, struct stat>> found;
  while (const dirent* const entry = ::readdir(list)) {
    const std::string_view name = entry->d_name;
    if (name == "." || name == "..") continue;
    struct stat about{};
    const std::string key(name.substr(0, name.size() - std::min(name.size(), kEnd.size())));
    const bool ours = name.ends_with(kEnd) && is_key(key) &&
                      ::fstatat(folder_.get(), entry->d_name, &about, AT_SYMLINK_NOFOLLOW) == 0 &&
                      S_ISREG(about.st_mode) && about.st_uid == ::geteuid();
    if (ours) {
      found.emplace_back(about.st_mtim.tv_sec, about.st_mtim.tv_nsec, key, about);
    } else {
      ::unlinkat(folder_.get(), entry->d_name, 0);
    }
  }
  ::closedir(list);
  std::sort(found.begin(), found.end(), [](const auto& a, const auto& b) {
    return std::tie(std::get<0>(a), std::get<1>(a)) < std::tie(std::get<0>(b), std::get<1>(b));
  });
  for (const auto& [seconds, nanoseconds, key, about] : found) add(key, about);
  return {};
}

void CodeStore::request(const RunnerMessage& message, const ExchangeTail& tail, int file) {
  const std::string key(reinterpret_cast<const char*>(tail.payload.data()), tail.payload.size());
  if (!is_key(key)) return log::warn("a runner names compiled code by what is no key");
  if (message.type == RunnerMessageType::kCodeUsed) return use(key);
  if (const Status status = keep(key, file, message.bytes); !status.ok()) {
    log::warn("compiled code of {} bytes is not kept: {}", message.bytes, status.message());
  }
}

Status CodeStore::keep(const std::string& key, int file, uint64_t bytes) {
  const int seals = file < 0 ? -1 : ::fcntl(file, F_GET_SEALS);
  struct stat about{};
  if (seals < 0 || (seals & F_SEAL_SHRINK) == 0 || ::fstat(file, &about) < 0 || bytes == 0 ||
      static_cast<uint64_t>(about.st_size) != bytes) {
    return Status::error(EPROTO, "its file is not a sealed one of this size");
  }
  const uint64_t takes = on_disk(bytes);
  if (bytes > kLargest || takes > most_) {
    if (std::exchange(told_, true)) return {};
    return Status::error(EDQUOT,
                         "this virtual GPU may keep {} MiB ('disk_mib'; `vgpuctl set --limit` changes it); its "
                         "programs compile it each time",
                         most_ >> 20);
  }
  if (kept_.contains(key)) remove(key);  // two have compiled the same, or what was kept cannot be read
  make_room(most_ - takes);
  const std::string name = key + std::string(kEnd);
  Status status = write(name, file, bytes);
  if (status.ok() && ::fstatat(folder_.get(), name.c_str(), &about, AT_SYMLINK_NOFOLLOW) < 0) {
    status = Status::system("it cannot be found again");
  }
  if (status.ok()) add(key, about);
  make_room(most_);  // a file system may need more than the bytes
  return status;
}

Status CodeStore::write(const std::string& name, int file, uint64_t bytes) {
  ::unlinkat(folder_.get(), kPart, 0);
  const UniqueFd part(::openat(folder_.get(), kPart, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, kFileMode));
  if (!part) return Status::system("its file cannot be made");
  std::vector<char> buffer(std::min<uint64_t>(bytes, 1 << 20));
  Status status;
  if (::fchmod(part.get(), kFileMode) < 0) status = Status::system("its file cannot be opened to runners");
  for (uint64_t at = 0; at < bytes && status.ok();) {
    const ssize_t read =
        ::pread(file, buffer.data(), std::min<uint64_t>(buffer.size(), bytes - at), static_cast<off_t>(at));
    const ssize_t written = read <= 0 ? -1 : ::write(part.get(), buffer.data(), static_cast<size_t>(read));
    if (written < 0) status = Status::system("writing it");
    at += written > 0 ? static_cast<uint64_t>(written) : 0;
  }
  if (status.ok() && ::renameat(folder_.get(), kPart, folder_.get(), name.c_str()) < 0) {
    status = Status::system("its file cannot be put in place");
  }
  if (!status.ok()) ::unlinkat(folder_.get(), kPart, 0);
  return status;
}

void CodeStore::use(const std::string& key) {
  const auto found = kept_.find(key);
  if (found == kept_.end()) return;
  by_use_.erase(found->second.used);
  found->second.used = ++uses_;
  by_use_.emplace(uses_, key);
  ::utimensat(folder_.get(), (key + std::string(kEnd)).c_str(), nullptr, AT_SYMLINK_NOFOLLOW);
}

void CodeStore::add(const std::string& key, const struct stat& found) {
  const Kept kept{std::max(static_cast<uint64_t>(found.st_blocks) * 512, on_disk(static_cast<uint64_t>(found.st_size))),
                  ++uses_};
  kept_.emplace(key, kept);
  by_use_.emplace(kept.used, key);
  held_ += kept.bytes;
}

void CodeStore::remove(const std::string& key) {
  const auto found = kept_.find(key);
  ::unlinkat(folder_.get(), (key + std::string(kEnd)).c_str(), 0);
  by_use_.erase(found->second.used);
  held_ -= found->second.bytes;
  kept_.erase(found);
}

void CodeStore::make_room(uint64_t most) {
  while (held_ > most && !by_use_.empty()) remove(std::string(by_use_.begin()->second));
}

void CodeStore::set_most(uint64_t most) {
  most_ = most;
  told_ = false;
  make_room(most);
}

}  // namespace bandsaw
