#include "backend/device/cuda/print_scan.h"

#include <string_view>

#ifdef BANDSAW_HAVE_IMAGE
#include <algorithm>
#include <string>
#include <vector>

#include "backend/device/image/image.h"
#endif

namespace bandsaw::cuda {

#ifdef BANDSAW_HAVE_IMAGE
bool may_print(std::span<const std::byte> bytes) {
  std::vector<image::ImageEntry> entries;
  std::string log;
  if (image::list_image(bytes, &entries, &log) != CUDA_SUCCESS) return true;
  const auto names = [](const image::ImageEntry& entry) {
    const std::string_view text(reinterpret_cast<const char*>(entry.payload.data()), entry.payload.size());
    return text.find("vprintf") != text.npos || text.find("__assertfail") != text.npos;
  };
  // PTX beside machine code holds the same kernels.
  bool plain = false;
  for (const image::ImageEntry& entry : entries) {
    if (entry.kind != image::ImageEntry::Kind::kElf) continue;
    if (entry.packing != image::ImageEntry::Packing::kNone || names(entry)) return true;
    plain = true;
  }
  return !plain;
}
#else
// Nothing here reads fatbins: this build had no lz4 or zstd.
bool may_print(std::span<const std::byte>) { return true; }
#endif

}  // namespace bandsaw::cuda
