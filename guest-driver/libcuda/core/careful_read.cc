#include "guest-driver/libcuda/core/careful_read.h"

#include <sys/uio.h>
#include <unistd.h>

#include <cerrno>
#include <cstdint>
#include <cstring>

namespace bandsaw::libcuda {

bool careful_read(void* to, const void* from, size_t bytes) {
  if (reinterpret_cast<uintptr_t>(from) + bytes < reinterpret_cast<uintptr_t>(from)) return false;
  auto* out = static_cast<char*>(to);
  const auto* in = static_cast<const char*>(from);
  while (bytes > 0) {
    const iovec local{out, bytes}, remote{const_cast<char*>(in), bytes};
    const ssize_t got = process_vm_readv(getpid(), &local, 1, &remote, 1, 0);
    if (got < 0 && errno != EFAULT && errno != ENOMEM && errno != EINVAL) {  // a sandbox that forbids it
      std::memcpy(out, in, bytes);
      return true;
    }
    if (got <= 0) return false;
    out += got, in += got, bytes -= static_cast<size_t>(got);
  }
  return true;
}

}  // namespace bandsaw::libcuda
