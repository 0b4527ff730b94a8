// In a build without lz4 and zstd, which images are packed with.
#include "backend/runner/guard/guarded_image.h"

namespace bandsaw::runner {

CUresult guard_image(const ImageGuard&, std::vector<std::byte>*, std::string* log) {
  *log = "this build cannot read images (it has no lz4 and zstd), so it cannot guard their code";
  return CUDA_ERROR_NOT_SUPPORTED;
}

}  // namespace bandsaw::runner
