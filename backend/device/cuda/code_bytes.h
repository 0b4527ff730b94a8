// What a code image takes on the GPU. The driver does not say: it loads code when it is first used, and shares its own
// bookkeeping between images.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

namespace bandsaw::cuda {

// Code, constants and variables (not managed ones) of what the driver would choose from the image for a GPU of this
// compute capability (90 for 9.0). PTX counts with the length of its text, which exceeds that of the code made of it.
// What cannot be read counts with its own length.
uint64_t code_bytes(std::span<const std::byte> image, uint32_t capability);

}  // namespace bandsaw::cuda
