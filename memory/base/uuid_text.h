// How a UUID is written.
#pragma once

#include <cstdint>
#include <span>
#include <string>

namespace bandsaw {

// Lower-case hexadecimal digits, 8-4-4-4-12; nvidia-smi and CUDA_VISIBLE_DEVICES put "GPU-" before it.
inline std::string uuid_text(std::span<const uint8_t, 16> uuid) {
  constexpr char kDigits[] = "0123456789abcdef";
  std::string text;
  for (size_t i = 0; i < uuid.size(); ++i) {
    if (i == 4 || i == 6 || i == 8 || i == 10) text += '-';
    text += kDigits[uuid[i] >> 4];
    text += kDigits[uuid[i] & 0xf];
  }
  return text;
}

}  // namespace bandsaw
