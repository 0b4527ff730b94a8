// Whether a code image may print, so that waits need not look for text that cannot be there.
#pragma once

#include <cstddef>
#include <span>

namespace bandsaw::cuda {

// False only if the image is machine code that is not packed and names neither vprintf nor __assertfail, which are what
// device printf and assert call. A pure function of untrusted bytes.
bool may_print(std::span<const std::byte> image);

}  // namespace bandsaw::cuda
