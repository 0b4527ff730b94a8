#include "backend/session/ram_map.h"

#include <sys/stat.h>

#include <algorithm>

#include "backend/session/request.h"

namespace bandsaw {
namespace {

constexpr size_t kPiecesMax = (kRunnerMessageMax - sizeof(RunnerMessage)) / sizeof(RunnerSegment);

// Bytes beyond the end of the file would be a SIGBUS in the runner.
Status check_file(const Ram& ram) {
  struct stat file{};
  if (::fstat(ram.fd.get(), &file) < 0) return Status::system("RAM {} has no usable descriptor", ram.id);
  uint64_t end = 0;
  if (!S_ISREG(file.st_mode)) return {};  // a device's size is its own affair
  if (__builtin_add_overflow(ram.offset, ram.bytes, &end) || end > static_cast<uint64_t>(file.st_size)) {
    return Status::error(EINVAL, "RAM {} ends beyond its file of {} bytes", ram.id, file.st_size);
  }
  return {};
}

void append(RunnerSegment piece, std::vector<RunnerSegment>* out) {
  if (!out->empty() && out->back().ram == piece.ram && out->back().offset + out->back().bytes == piece.offset) {
    out->back().bytes += piece.bytes;
  } else {
    out->push_back(piece);
  }
}

}  // namespace

Status RamMap::add(Ram ram) {
  uint64_t end = 0;
  if (ram.bytes == 0 || (ram.base | ram.bytes | ram.offset) % kPageBytes ||
      __builtin_add_overflow(ram.base, ram.bytes, &end)) {
    return Status::error(EINVAL, "RAM {} at {:#x}+{:#x} is not made of pages", ram.id, ram.base, ram.bytes);
  }
  if (Status status = check_file(ram); !status.ok()) return status;
  if (find(ram.id)) return Status::error(EEXIST, "RAM {} exists already", ram.id);
  const auto next = by_base_.lower_bound(ram.base);
  const bool hits_next = next != by_base_.end() && next->first < end;
  const bool hits_previous =
      next != by_base_.begin() && std::prev(next)->first + std::prev(next)->second.bytes > ram.base;
  if (hits_next || hits_previous) {
    return Status::error(EEXIST, "RAM {} at {:#x}+{:#x} overlaps another", ram.id, ram.base, ram.bytes);
  }
  const uint64_t base = ram.base;
  by_base_.emplace(base, std::move(ram));
  return {};
}

bool RamMap::remove(uint32_t id) {
  return std::erase_if(by_base_, [id](const auto& entry) { return entry.second.id == id; }) > 0;
}

void RamMap::clear() { by_base_.clear(); }

const Ram* RamMap::find(uint32_t id) const {
  for (const auto& [base, ram] : by_base_) {
    if (ram.id == id) return &ram;
  }
  return nullptr;
}

uint64_t RamMap::total_bytes() const {
  uint64_t sum = 0;
  for (const auto& [base, ram] : by_base_) sum += ram.bytes;
  return sum;
}

const Ram* RamMap::at(uint64_t address) const {
  auto next = by_base_.upper_bound(address);
  if (next == by_base_.begin()) return nullptr;
  const Ram& ram = std::prev(next)->second;
  return address - ram.base < ram.bytes ? &ram : nullptr;
}

Result<Translation> RamMap::translate(std::span<const vgpu_segment> segments, bool write) const {
  Translation result;
  for (const vgpu_segment& segment : segments) {
    uint64_t address = segment.address;
    for (uint64_t left = segment.bytes; left > 0;) {
      const Ram* ram = at(address);
      if (!ram) return Status::error(EFAULT, "{:#x} is not in the guest's RAM", address);
      if (write && !ram->writable) return Status::error(EACCES, "{:#x} is read-only memory", address);
      const uint64_t offset = address - ram->base;
      const uint64_t piece = std::min(left, ram->bytes - offset);
      append({ram->id, 0, offset, piece}, &result.segments);
      if (result.segments.size() > kPiecesMax) return Status::error(E2BIG, "more than {} pieces", kPiecesMax);
      result.rams.push_back(ram->id);
      left -= piece;
      address += piece;  // cannot wrap: every RAM ends inside 64 bits
    }
  }
  std::sort(result.rams.begin(), result.rams.end());
  result.rams.erase(std::unique(result.rams.begin(), result.rams.end()), result.rams.end());
  return result;
}

}  // namespace bandsaw
