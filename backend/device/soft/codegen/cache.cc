#include "backend/device/soft/codegen/cache.h"

#include <fcntl.h>
#include <link.h>
#include <llvm/ADT/StringExtras.h>
#include <llvm/Support/SHA256.h>
#include <sys/mman.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <filesystem>

#include "backend/device/soft/write_all.h"
#include "memory/base/unique_fd.h"

namespace bandsaw::soft {
namespace {

constexpr char kMagic[8] = {'B', 'S', 'W', 'O', 'B', 'J', '0', '1'};
constexpr size_t kHashBytes = 32;
constexpr off_t kLargestObject = 1 << 30;

std::array<uint8_t, kHashBytes> hash_of(const std::vector<char>& data) {
  return llvm::SHA256::hash({reinterpret_cast<const uint8_t*>(data.data()), data.size()});
}

bool read_all(int fd, void* data, size_t bytes) {
  auto* p = static_cast<char*>(data);
  while (bytes) {
    ssize_t n = ::read(fd, p, bytes);
    if (n <= 0) return false;
    p += n;
    bytes -= static_cast<size_t>(n);
  }
  return true;
}

// A file of `owner`'s that nobody else may write, under one name.
bool nobody_elses(const struct stat& st, uid_t owner) {
  return S_ISREG(st.st_mode) && st.st_uid == owner && (st.st_mode & (S_IWGRP | S_IWOTH)) == 0 && st.st_nlink == 1;
}

uid_t owner_of(const std::string& directory) {
  struct stat st;
  return ::stat(directory.c_str(), &st) == 0 ? st.st_uid : ::geteuid();
}

// What a file of the cache has.
bool write_object(int fd, const std::vector<char>& object) {
  const auto hash = hash_of(object);
  return write_all(fd, kMagic, sizeof kMagic) && write_all(fd, hash.data(), hash.size()) &&
         write_all(fd, object.data(), object.size());
}

struct CacheFile {
  timespec used;
  uint64_t bytes;
  std::string path;
};

// Files of the folder go, those first that were not used for longest, until the rest has at most `most` bytes. Several
// processes may do so at once: what one does not find, another has removed.
void make_room(const std::string& directory, uint64_t most) {
  std::vector<CacheFile> files;
  uint64_t total = 0;
  std::error_code error;
  for (std::filesystem::directory_iterator entry(directory, error), end; !error && entry != end;
       entry.increment(error)) {
    struct stat st;
    if (::lstat(entry->path().c_str(), &st) != 0 || !S_ISREG(st.st_mode)) continue;
    const auto bytes = static_cast<uint64_t>(st.st_blocks) * 512;
    files.push_back({st.st_mtim, bytes, entry->path()});
    total += bytes;
  }
  if (total <= most) return;
  std::sort(files.begin(), files.end(), [](const CacheFile& a, const CacheFile& b) {
    return std::pair(a.used.tv_sec, a.used.tv_nsec) < std::pair(b.used.tv_sec, b.used.tv_nsec);
  });
  for (const CacheFile& file : files) {
    if (total <= most) return;
    if (::unlink(file.path.c_str()) == 0) total -= file.bytes;
  }
}

// The linker's build id of the object that holds this function.
int find_build_id(dl_phdr_info* info, size_t, void* out) {
  auto here = reinterpret_cast<uintptr_t>(&find_build_id);
  bool ours = false;
  for (int i = 0; i < info->dlpi_phnum; ++i) {
    auto& h = info->dlpi_phdr[i];
    uintptr_t start = info->dlpi_addr + h.p_vaddr;
    if (h.p_type == PT_LOAD && here >= start && here - start < h.p_memsz) ours = true;
  }
  if (!ours) return 0;
  for (int i = 0; i < info->dlpi_phnum; ++i) {
    auto& h = info->dlpi_phdr[i];
    if (h.p_type != PT_NOTE) continue;
    auto* p = reinterpret_cast<const char*>(info->dlpi_addr + h.p_vaddr);
    auto* end = p + h.p_memsz;
    while (p + sizeof(ElfW(Nhdr)) <= end) {
      auto* note = reinterpret_cast<const ElfW(Nhdr)*>(p);
      const char* name = p + sizeof *note;
      const char* data = name + (note->n_namesz + 3) / 4 * 4;
      if (note->n_type == NT_GNU_BUILD_ID && note->n_namesz == 4 && !std::memcmp(name, "GNU", 4)) {
        static_cast<std::string*>(out)->assign(data, note->n_descsz);
        return 1;
      }
      p = data + (note->n_descsz + 3) / 4 * 4;
    }
  }
  return 1;
}

}  // namespace

std::string build_identity() {
  std::string id;
  dl_iterate_phdr(find_build_id, &id);
  return id;
}

std::string content_key(const std::vector<std::string_view>& parts) {
  llvm::SHA256 hash;
  for (auto part : parts) {
    uint64_t size = part.size();
    hash.update(llvm::ArrayRef<uint8_t>(reinterpret_cast<const uint8_t*>(&size), sizeof size));
    hash.update(llvm::StringRef(part.data(), part.size()));
  }
  return llvm::toHex(hash.final(), true);
}

std::vector<char> cache_read(const std::string& directory, const std::string& key, CodeKeeper* keeper) {
  std::string path = directory + "/" + key + ".o";
  UniqueFd fd(::open(path.c_str(), O_RDONLY | O_NOFOLLOW | O_CLOEXEC));
  if (fd.get() < 0) return {};
  struct stat st;
  char magic[sizeof kMagic];
  std::array<uint8_t, kHashBytes> expected;
  std::vector<char> object;
  const uid_t owner = keeper ? owner_of(directory) : ::geteuid();
  bool good = ::fstat(fd.get(), &st) == 0 && nobody_elses(st, owner) && st.st_size > off_t(sizeof magic + kHashBytes) &&
              st.st_size < kLargestObject && read_all(fd.get(), magic, sizeof magic) &&
              !std::memcmp(magic, kMagic, sizeof magic) && read_all(fd.get(), expected.data(), expected.size());
  if (good) {
    object.resize(static_cast<size_t>(st.st_size) - sizeof magic - kHashBytes);
    good = read_all(fd.get(), object.data(), object.size()) && hash_of(object) == expected;
  }
  if (good) {
    if (keeper)
      keeper->used(key);
    else
      ::futimens(fd.get(), nullptr);  // what is used stays longest
    return object;
  }
  if (!keeper) ::unlink(path.c_str());
  return {};
}

void cache_write(const std::string& directory, const std::string& key, const std::vector<char>& object,
                 uint64_t quota) {
  ::mkdir(directory.c_str(), 0700);
  const uint64_t bytes = object.size() + sizeof kMagic + kHashBytes;
  if (bytes > quota) return;
  make_room(directory, quota - bytes);
  std::string path = directory + "/" + key + ".o";
  // By chance, because runners may all have the same process number.
  uint64_t chance = 0;
  if (::getrandom(&chance, sizeof chance, 0) != sizeof chance) return;
  const std::string temporary = path + "." + llvm::utohexstr(chance);
  UniqueFd fd(::open(temporary.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600));
  if (fd.get() < 0) return;
  if (!write_object(fd.get(), object) || ::rename(temporary.c_str(), path.c_str()) != 0) ::unlink(temporary.c_str());
}

void cache_hand_over(CodeKeeper* keeper, const std::string& key, const std::vector<char>& object) {
  const UniqueFd file(::memfd_create("bandsaw-code", MFD_CLOEXEC | MFD_ALLOW_SEALING));
  constexpr int kSeals = F_SEAL_WRITE | F_SEAL_SHRINK | F_SEAL_GROW;
  if (!file || !write_object(file.get(), object) || ::fcntl(file.get(), F_ADD_SEALS, kSeals) < 0) return;
  keeper->keep(key, file.get(), sizeof kMagic + kHashBytes + object.size());
}

}  // namespace bandsaw::soft
