// The memory that guest processes can name: guest RAM in a VM, the arena in direct mode. Translates the guest's
// addresses into (RAM, offset) pieces for runners.
#pragma once

#include <cstdint>
#include <map>
#include <span>
#include <vector>

#include "backend/control/runner_link.h"
#include "guest-driver/uapi/vgpu_control.h"
#include "memory/base/status.h"
#include "memory/base/unique_fd.h"

namespace bandsaw {

struct Ram {
  uint32_t id = 0;
  uint64_t base = 0;  // address of its first byte, as the guest names it
  uint64_t bytes = 0;
  uint64_t offset = 0;  // where it begins in `fd`
  UniqueFd fd;
  bool writable = true;
};

struct Translation {
  std::vector<RunnerSegment> segments;  // neighbours are merged
  std::vector<uint32_t> rams;           // the ones used, each once, ascending
};

class RamMap {
 public:
  // EINVAL: not made of pages, out of range, or the descriptor is shorter; EEXIST: id or range is taken.
  Status add(Ram ram);
  bool remove(uint32_t id);
  void clear();
  const Ram* find(uint32_t id) const;
  const std::map<uint64_t, Ram>& by_base() const { return by_base_; }
  uint64_t total_bytes() const;

  // EFAULT: a part of a segment lies in no RAM; EACCES: it would be written and must not; E2BIG: too many pieces.
  Result<Translation> translate(std::span<const vgpu_segment> segments, bool write) const;

 private:
  const Ram* at(uint64_t address) const;
  std::map<uint64_t, Ram> by_base_;
};

}  // namespace bandsaw
