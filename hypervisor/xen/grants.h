// Pages that a domain has granted.
//
// Threads: one event loop.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "memory/base/status.h"
#include "memory/base/unique_fd.h"

namespace bandsaw::xen {

class Grants {
 public:
  // Pages that whoever has `fd` may map, all at once: mmap(bytes, MAP_SHARED, fd, offset).
  struct Pages {
    UniqueFd fd;
    uint64_t offset = 0;
    uint32_t count = 0;
  };

  virtual ~Grants() = default;
  // The first bytes of a granted page. EFAULT: it is not granted to us.
  virtual Status read(uint32_t ref, std::span<uint8_t> to) = 0;
  // Nothing is mapped yet, so a wrong grant shows when it is. ENOSPC, ENOMEM.
  virtual Result<Pages> offer(std::span<const uint32_t> refs) = 0;
  // Nobody can map them any more; a mapping that there is stays.
  virtual void withdraw(uint64_t offset, uint32_t count) = 0;
};

// The grants that a list names (see vgpu_xen_request). `pages`: 1 to VGPU_XEN_PAGES_MAX.
Result<std::vector<uint32_t>> read_list(Grants& grants, uint32_t list, uint32_t pages);

}  // namespace bandsaw::xen
