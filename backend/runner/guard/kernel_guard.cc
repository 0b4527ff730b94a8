#include "backend/runner/guard/kernel_guard.h"

#include <algorithm>

#include "backend/runner/guard/guarded_image.h"
#include "memory/base/log.h"

namespace bandsaw::runner {

Result<GuardSettings> read_guard_settings(std::string_view text) {
  GuardSettings settings;
  while (!text.empty()) {
    const std::string_view word = text.substr(0, text.find(','));
    if (word == "guard")
      settings.guard = true;
    else if (word == "machine-code")
      settings.machine_code = true;
    else if (word == "clear-shared")
      settings.clear_shared = true;
    else
      return Status::error(EINVAL, "BANDSAW_GUARD: there is no '{}'", word);
    text.remove_prefix(std::min(text.size(), word.size() + 1));
  }
  return settings;
}

Result<std::unique_ptr<KernelGuard>> KernelGuard::make(Device* device, const GuardSettings& settings, uint64_t memory) {
  if (!settings.guard) return std::unique_ptr<KernelGuard>(new KernelGuard(device, settings, {}));
  auto place = device->guard(memory);
  if (!place.ok()) return place.status();
  return std::unique_ptr<KernelGuard>(new KernelGuard(device, settings, place.value()));
}

KernelGuard::KernelGuard(Device* device, const GuardSettings& settings, const GuardPlace& place)
    : device_(*device), settings_(settings), place_(place) {
  if (settings.any_gpu) return;
  vgpu_device_info info{};
  device->info(&info);
  gpu_ = static_cast<uint32_t>(info.attributes[CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR] * 10 +
                               info.attributes[CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR]);
}

CUresult KernelGuard::rewrite(std::vector<std::byte>* image, std::string* log) const {
  const ImageGuard how{settings_.guard, settings_.clear_shared, place_.area, gpu_};
  const CUresult result = guard_image(how, image, log);
  if (result != CUDA_ERROR_NO_BINARY_FOR_GPU) return result;
  if (settings_.machine_code || !settings_.guard) return CUDA_SUCCESS;
  *log = "this virtual GPU guards its kernels, and the image has no PTX to be guarded: " + *log;
  return result;
}

void KernelGuard::allow(uint64_t begin, uint64_t bytes) {
  if (!settings_.guard) return;
  std::lock_guard lock(mutex_);
  ranges_.emplace(begin, begin + bytes);
  write_ranges();
}

void KernelGuard::forbid(uint64_t begin, uint64_t bytes) {
  if (!settings_.guard) return;
  std::lock_guard lock(mutex_);
  const auto [first, last] = ranges_.equal_range(begin);
  const auto found = std::find_if(first, last, [&](const auto& range) { return range.second == begin + bytes; });
  if (found == last) return;
  ranges_.erase(found);
  write_ranges();
}

void KernelGuard::allow_variable(const Object* owner, uint64_t begin, uint64_t bytes) {
  {
    std::lock_guard lock(mutex_);
    const auto [first, last] = variables_.equal_range(owner);
    const std::pair variable(begin, bytes);
    if (std::any_of(first, last, [&](const auto& known) { return known.second == variable; })) return;
    variables_.emplace(owner, variable);
  }
  allow(begin, bytes);
}

void KernelGuard::forget(const Object* owner) {
  std::vector<std::pair<uint64_t, uint64_t>> gone;
  {
    std::lock_guard lock(mutex_);
    const auto [first, last] = variables_.equal_range(owner);
    for (auto it = first; it != last; ++it) gone.push_back(it->second);
    variables_.erase(first, last);
  }
  for (const auto& [begin, bytes] : gone) forbid(begin, bytes);
}

// Into a list that no kernel reads, unless it has begun to kGuardLists changes ago. With mutex_ held.
void KernelGuard::write_ranges() {
  std::vector<ptx::GuardRange> merged;
  for (const auto& [begin, end] : ranges_) {
    if (!merged.empty() && begin <= merged.back().end) {
      merged.back().end = std::max(merged.back().end, end);
    } else {
      merged.push_back({begin, end});
    }
  }
  if (merged.size() > ptx::kGuardRangesMost) {
    if (!told_)
      log::warn("guard: more than {} ranges of host memory; kernels do not reach the rest", ptx::kGuardRangesMost);
    told_ = true;
    merged.resize(ptx::kGuardRangesMost);
  }
  list_ = (list_ + 1) % ptx::kGuardLists;
  const uint32_t current = list_ << 16 | static_cast<uint32_t>(merged.size());
  Status status =
      device_.guard_write(ptx::kGuardListsAt + list_ * ptx::kGuardListBytes, std::as_bytes(std::span(merged)));
  if (status.ok()) {
    status = device_.guard_write(offsetof(ptx::GuardTable, current), std::as_bytes(std::span(&current, 1)));
  }
  if (!status.ok()) log::error("guard: {}", status.message());
}

CUresult KernelGuard::error() const {
  return place_.report ? static_cast<CUresult>(place_.report->error) : CUDA_SUCCESS;
}

}  // namespace bandsaw::runner
