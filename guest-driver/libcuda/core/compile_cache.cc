#include "guest-driver/libcuda/core/compile_cache.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <system_error>

#include "memory/base/unique_fd.h"

namespace bandsaw::libcuda {
namespace {

namespace fs = std::filesystem;

constexpr uint64_t kMostByDefault = uint64_t{1} << 30;
constexpr uint64_t kLargest = uint64_t{256} << 20;  // of a file
constexpr uint32_t kSweepEvery = 64;                // files kept

struct Header {
  char magic[8] = {'B', 'W', 'N', 'V', 'R', 'T', 'C', '1'};
  uint64_t key_bytes = 0, code_bytes = 0;
  uint64_t check = 0;  // of key and code
};

// FNV-1a: finds damage and names files; equal keys are told by the keys themselves.
uint64_t fnv(const void* data, size_t bytes, uint64_t hash = 0xcbf29ce484222325) {
  const auto* at = static_cast<const unsigned char*>(data);
  for (size_t i = 0; i < bytes; ++i) hash = (hash ^ at[i]) * 0x100000001b3;
  return hash;
}

bool read_all(int file, void* to, size_t bytes) {
  for (size_t done = 0; done < bytes;) {
    const ssize_t got = read(file, static_cast<char*>(to) + done, bytes - done);
    if (got <= 0) return false;
    done += static_cast<size_t>(got);
  }
  return true;
}

bool write_all(int file, const void* from, size_t bytes) {
  for (size_t done = 0; done < bytes;) {
    const ssize_t put = write(file, static_cast<const char*>(from) + done, bytes - done);
    if (put <= 0) return false;
    done += static_cast<size_t>(put);
  }
  return true;
}

std::string variable(const char* name) {
  const char* const text = std::getenv(name);
  return text ? text : "";
}

std::string folder_of_this_program() {
  if (variable("CUDA_CACHE_DISABLE") == "1") return "";
  if (const std::string chosen = variable("CUDA_CACHE_PATH"); !chosen.empty()) return chosen + "/bandsaw-nvrtc";
  if (const std::string cache = variable("XDG_CACHE_HOME"); !cache.empty()) return cache + "/bandsaw/nvrtc";
  const std::string home = variable("HOME");
  return home.empty() ? "" : home + "/.cache/bandsaw/nvrtc";
}

}  // namespace

// Leaked: used after static destructors.
CompileCache& CompileCache::of_this_program() {
  static auto* const made = [] {
    const uint64_t told = std::strtoull(variable("CUDA_CACHE_MAXSIZE").c_str(), nullptr, 10);
    return new CompileCache(folder_of_this_program(), told ? told : kMostByDefault);
  }();
  return *made;
}

std::string CompileCache::path_of(std::string_view key) const {
  char name[40];
  std::snprintf(name, sizeof name, "/%016llx%016llx", static_cast<unsigned long long>(fnv(key.data(), key.size())),
                static_cast<unsigned long long>(fnv(key.data(), key.size(), key.size())));
  return folder_ + name;
}

std::optional<std::vector<std::byte>> CompileCache::find(std::string_view key) const {
  if (folder_.empty()) return std::nullopt;
  const UniqueFd file(open(path_of(key).c_str(), O_RDONLY | O_NOFOLLOW | O_CLOEXEC));
  struct stat is{};
  if (!file || fstat(file.get(), &is) < 0 || !S_ISREG(is.st_mode)) return std::nullopt;
  if (is.st_uid != geteuid() || (is.st_mode & 022) != 0) return std::nullopt;
  Header header;
  const Header wanted;
  const auto bytes = static_cast<uint64_t>(is.st_size);
  if (bytes > kLargest || !read_all(file.get(), &header, sizeof header)) return std::nullopt;
  if (std::memcmp(header.magic, wanted.magic, sizeof header.magic) != 0 || header.key_bytes != key.size() ||
      bytes - sizeof header < key.size() || header.code_bytes != bytes - sizeof header - key.size())
    return std::nullopt;
  std::string its_key(key.size(), '\0');
  std::vector<std::byte> code(header.code_bytes);
  if (!read_all(file.get(), its_key.data(), its_key.size()) || its_key != key) return std::nullopt;
  if (!read_all(file.get(), code.data(), code.size())) return std::nullopt;
  if (fnv(code.data(), code.size(), fnv(key.data(), key.size())) != header.check) return std::nullopt;
  futimens(file.get(), nullptr);  // what was not asked for longest goes first
  return code;
}

void CompileCache::keep(std::string_view key, std::span<const std::byte> code) {
  if (folder_.empty() || key.size() + code.size() + sizeof(Header) > std::min(kLargest, most_)) return;
  std::error_code failed;
  if (!fs::exists(folder_, failed)) {
    fs::create_directories(folder_, failed);
    fs::permissions(folder_, fs::perms::owner_all, failed);
  }
  if (kept_++ % kSweepEvery == 0) make_room();
  const std::string path = path_of(key);
  std::string draft = path + ".XXXXXX";
  const UniqueFd file(mkostemp(draft.data(), O_CLOEXEC));
  if (!file) return;
  Header header;
  header.key_bytes = key.size();
  header.code_bytes = code.size();
  header.check = fnv(code.data(), code.size(), fnv(key.data(), key.size()));
  const bool written = write_all(file.get(), &header, sizeof header) && write_all(file.get(), key.data(), key.size()) &&
                       write_all(file.get(), code.data(), code.size());
  if (!written || rename(draft.c_str(), path.c_str()) < 0) unlink(draft.c_str());
}

void CompileCache::make_room() const {
  struct Entry {
    fs::file_time_type asked;
    uint64_t bytes;
    fs::path path;
  };
  std::vector<Entry> entries;
  uint64_t sum = 0;
  std::error_code failed;
  for (auto at = fs::directory_iterator(folder_, failed); !failed && at != fs::directory_iterator();
       at.increment(failed)) {
    std::error_code gone;
    const Entry entry{at->last_write_time(gone), at->file_size(gone), at->path()};
    if (gone) continue;
    sum += entry.bytes;
    entries.push_back(entry);
  }
  std::sort(entries.begin(), entries.end(),
            [](const Entry& one, const Entry& other) { return one.asked < other.asked; });
  for (const Entry& entry : entries) {
    if (sum <= most_) return;
    fs::remove(entry.path, failed);
    sum -= entry.bytes;
  }
}

}  // namespace bandsaw::libcuda
