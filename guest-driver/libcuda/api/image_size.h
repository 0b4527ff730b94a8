// Finds the bytes of a code image that a program hands over as a bare pointer.
#pragma once

#include <cuda.h>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

namespace bandsaw::libcuda {

struct Image {
  const void* data = nullptr;  // borrowed from the program
  uint64_t bytes = 0;
  std::shared_ptr<std::vector<char>> joined = {};  // owns `data` where it was put together
};

// Accepts what cuLibraryLoadData and cuModuleLoadData accept: a fatbin wrapper (__fatBinC_Wrapper_t as nvcc emits it,
// versions 1 and 2; its pointer is followed), a bare fatbin, a 64-bit ELF, or PTX text that ends in NUL. For an -rdc
// program the result is the linked fatbin, followed by those that it was linked from: only they hold PTX.
// Errors: INVALID_VALUE for nullptr; INVALID_IMAGE for anything else, also for an image whose stated size reaches into
// unmapped memory. Reads no byte beyond the image.
CUresult find_image(const void* image, Image* found);

}  // namespace bandsaw::libcuda
