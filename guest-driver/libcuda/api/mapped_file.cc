#include "guest-driver/libcuda/api/mapped_file.h"

#include <dirent.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <unistd.h>

#include <algorithm>
#include <cinttypes>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <string>

#include "guest-driver/libcuda/core/log.h"
#include "guest-driver/libcuda/core/window.h"

namespace bandsaw::libcuda {
namespace {

// A line of /proc/self/maps, proc(5).
struct MapsLine {
  uint64_t begin = 0, end = 0, offset = 0, inode = 0;
  char mode[5] = {};
  unsigned major = 0, minor = 0;
  std::string path;

  bool read(const char* line) {
    int at = 0;
    if (std::sscanf(line, "%" SCNx64 "-%" SCNx64 " %4s %" SCNx64 " %x:%x %" SCNu64 " %n", &begin, &end, mode, &offset,
                    &major, &minor, &inode, &at) != 7) {
      return false;
    }
    path = line + at;
    path.erase(path.find_last_not_of('\n') + 1);
    return true;
  }
  bool shared() const { return mode[3] == 's'; }
  bool same_file(const MapsLine& other) const {
    return major == other.major && minor == other.minor && inode == other.inode;
  }
  bool is(int file) const {
    struct stat info{};
    return fstat(file, &info) == 0 && info.st_ino == inode && ::major(info.st_dev) == major &&
           ::minor(info.st_dev) == minor;
  }
};

// The line that holds `begin`, if the mappings from there to `end` are one run of a shared file.
CUresult find_run(uint64_t begin, uint64_t end, bool write, MapsLine* first) {
  const std::unique_ptr<FILE, int (*)(FILE*)> maps(std::fopen("/proc/self/maps", "re"), std::fclose);
  if (!maps) return CUDA_ERROR_OPERATING_SYSTEM;
  uint64_t covered = begin;
  char text[4096 + 128];
  while (covered < end && std::fgets(text, sizeof(text), maps.get())) {
    MapsLine line;
    if (!line.read(text) || line.end <= covered) continue;
    if (line.begin > covered) return CUDA_ERROR_INVALID_VALUE;
    if (covered == begin) {
      if (!line.shared()) return CUDA_ERROR_NOT_FOUND;
      *first = line;
    }
    const bool goes_on =
        line.shared() && line.same_file(*first) && line.offset - line.begin == first->offset - first->begin;
    if (!goes_on || line.mode[0] != 'r' || (write && line.mode[1] != 'w')) return CUDA_ERROR_INVALID_VALUE;
    covered = line.end;
  }
  return covered >= end ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

bool allows(int file, bool write) {
  const int mode = fcntl(file, F_GETFL) & O_ACCMODE;
  return mode == O_RDWR || (mode == O_RDONLY && !write);
}

// A descriptor that the program still has; a new one to the same open file. -1: none.
int find_open(const MapsLine& line, bool write) {
  const std::unique_ptr<DIR, int (*)(DIR*)> all(opendir("/proc/self/fd"), closedir);
  while (const dirent* entry = all ? readdir(all.get()) : nullptr) {
    const int file = std::atoi(entry->d_name);
    if (entry->d_name[0] == '.' || file == dirfd(all.get())) continue;
    if (line.is(file) && allows(file, write)) return fcntl(file, F_DUPFD_CLOEXEC, 0);
  }
  return -1;
}

int open_if_same(const MapsLine& line, const char* path, bool write) {
  const int file = open(path, (write ? O_RDWR : O_RDONLY) | O_CLOEXEC | O_NONBLOCK | O_NOCTTY);
  if (file < 0 || line.is(file)) return file;
  close(file);
  return -1;
}

// The kernel lets only the privileged go through map_files.
int open_file(const MapsLine& line, bool write) {
  int file = find_open(line, write);
  if (file < 0 && line.path[0] == '/') file = open_if_same(line, line.path.c_str(), write);
  if (file >= 0) return file;
  char path[80];
  std::snprintf(path, sizeof(path), "/proc/self/map_files/%" PRIx64 "-%" PRIx64, line.begin, line.end);
  return open_if_same(line, path, write);
}

}  // namespace

MappedFile::~MappedFile() {
  if (pages_.file >= 0) close(pages_.file);
}

CUresult MappedFile::find(uint64_t address, uint64_t bytes, bool write) {
  const uint64_t begin = address / kPage * kPage, end = round_to_pages(address + bytes);
  MapsLine line;
  const CUresult result = find_run(begin, end, write, &line);
  if (result != CUDA_SUCCESS) return result;
  pages_ = {open_file(line, write), line.offset + (begin - line.begin), end - begin};
  if (pages_.file >= 0) return CUDA_SUCCESS;
  log(Level::kWarn,
      "the shared mapping at %#" PRIx64
      " (%s) cannot be registered: its file cannot be opened again (%s); "
      "keep a descriptor of it open, with the rights of the mapping",
      begin, line.path.empty() ? "no name" : line.path.c_str(), std::strerror(errno));
  return CUDA_ERROR_INVALID_VALUE;
}

}  // namespace bandsaw::libcuda
