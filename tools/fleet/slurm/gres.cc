#include "tools/fleet/slurm/gres.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>

namespace bandsaw::slurm {
namespace {

struct Part {
  std::string_view name, rest;  // "vgpu", "1"; the rest is empty where no number is given
};

// "gres:vgpu:1", "gres/vgpu:1" and "vgpu=1" are one and the same in different versions of Slurm.
Part read_part(std::string_view text) {
  for (const std::string_view prefix : {"gres:", "gres/"}) {
    if (text.starts_with(prefix)) text.remove_prefix(prefix.size());
  }
  const size_t end = std::min(text.find_first_of(":="), text.size());
  return {text.substr(0, end), text.substr(std::min(text.size(), end + 1))};
}

Result<uint32_t> read_count(std::string_view text) {
  if (text.empty()) return uint32_t{1};
  uint32_t count = 0;
  const auto [end, code] = std::from_chars(text.data(), text.data() + text.size(), count);
  if (code != std::errc() || end != text.data() + text.size() || count > kCountMost) {
    return Status::error(EINVAL, "--gres={}:{}: write {}:N with N from 1 to {}", kVgpus, text.substr(0, 64), kVgpus,
                         kCountMost);
  }
  return count;
}

}  // namespace

Result<uint32_t> count_vgpus(std::string_view text) {
  uint32_t count = 0;
  while (!text.empty()) {
    const std::string_view piece = text.substr(0, text.find(','));
    text.remove_prefix(std::min(text.size(), piece.size() + 1));
    const Part part = read_part(piece);
    if (part.name == kMemory || part.name == kCompute || part.name == kCopy) {
      return Status::error(EINVAL, "--gres={}: memory and shares are asked for by --vgpu={}", part.name, kWords);
    }
    if (part.name != kVgpus) continue;
    const auto one = read_count(part.rest);
    if (!one.ok()) return one.status();
    if (count != 0) return Status::error(EINVAL, "--gres has {} twice", kVgpus);
    count = one.value();
  }
  return count;
}

std::string with_consumables(std::string_view text, const Request& request) {
  const VgpuSpec& each = request.each;
  return fmt::format("{},gres:{}:{},gres:{}:{},gres:{}:{}", text, kMemory, each.memory * request.count, kCompute,
                     each.compute * request.count, kCopy, each.copy * request.count);
}

}  // namespace bandsaw::slurm
