// What the driver loads of an image.
#pragma once

#ifdef BANDSAW_HAVE_IMAGE
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <vector>

#include "backend/device/image/image.h"

namespace bandsaw::cuda {

inline bool is_code_for(const image::ImageEntry& entry, uint32_t capability) {
  if (entry.kind == image::ImageEntry::Kind::kPtx) return entry.sm <= capability;
  return entry.kind == image::ImageEntry::Kind::kElf && entry.sm / 10 == capability / 10 && entry.sm <= capability;
}

// From each fatbin machine code before PTX, and of either what is for the latest GPU that this one (90 for compute
// capability 9.0) can run. They view the image. False: there is none.
inline bool choose_code(std::span<const std::byte> image, uint32_t capability, std::vector<image::ImageEntry>* chosen) {
  std::vector<image::ImageEntry> entries;
  std::string ignored;
  if (image::list_image(image, &entries, &ignored) != CUDA_SUCCESS) return false;
  const auto rank = [](const image::ImageEntry& entry) {
    return (entry.kind == image::ImageEntry::Kind::kElf ? 1u << 16 : 0u) + entry.sm;
  };
  std::map<uint32_t, uint32_t> best;  // by fatbin
  for (const image::ImageEntry& entry : entries) {
    if (is_code_for(entry, capability)) best[entry.fatbin] = std::max(best[entry.fatbin], rank(entry));
  }
  for (const image::ImageEntry& entry : entries) {
    if (is_code_for(entry, capability) && rank(entry) == best[entry.fatbin]) chosen->push_back(entry);
  }
  return !chosen->empty();
}

}  // namespace bandsaw::cuda
#endif
