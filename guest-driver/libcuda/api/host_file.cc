#include "guest-driver/libcuda/api/host_file.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstdio>

namespace bandsaw::libcuda {
namespace {

constexpr int kHostFileSeals = F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL;

}  // namespace

int make_host_file(uint64_t bytes, int node) {
  char name[64];
  std::snprintf(name, sizeof(name), "bandsaw-host-memory:%d", node);
  const int file = memfd_create(name, MFD_CLOEXEC | MFD_ALLOW_SEALING);
  if (file < 0) return -1;
  if (ftruncate(file, static_cast<off_t>(bytes)) == 0 && fcntl(file, F_ADD_SEALS, kHostFileSeals) == 0) return file;
  close(file);
  return -1;
}

// From what it is and how make_host_file called it.
bool is_host_file(int file, uint64_t* bytes, int* node) {
  char link[64], name[128];
  std::snprintf(link, sizeof(link), "/proc/self/fd/%d", file);
  const ssize_t length = readlink(link, name, sizeof(name) - 1);
  if (length <= 0 || fcntl(file, F_GET_SEALS) != kHostFileSeals) return false;
  name[length] = 0;
  struct stat info{};
  if (std::sscanf(name, "/memfd:bandsaw-host-memory:%d", node) != 1 || fstat(file, &info) != 0) return false;
  *bytes = static_cast<uint64_t>(info.st_size);
  return *bytes && *bytes % kHostGranularity == 0;
}

}  // namespace bandsaw::libcuda
