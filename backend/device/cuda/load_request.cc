#include "backend/device/cuda/load_request.h"

#include <cstring>

namespace bandsaw::cuda {
namespace {

struct FatbinHeader {
  uint32_t magic;
  uint16_t version, header_bytes;
  uint64_t payload_bytes;
};
constexpr uint32_t kFatbinMagic = 0xBA55ED50;

}  // namespace

LoadRequest::LoadRequest(std::span<const std::byte> image) : image_(image.begin(), image.end()), log_(kLogBytes, '\0') {
  image_.push_back(std::byte{0});
  find_parts();
}

void LoadRequest::find_parts() {
  FatbinHeader header;
  for (size_t at = 0; at < image_.size() && image_.size() - at > sizeof header;) {
    std::memcpy(&header, image_.data() + at, sizeof header);
    const size_t left = image_.size() - at;
    if (header.magic != kFatbinMagic || header.payload_bytes > left || header.header_bytes > left ||
        header.header_bytes < sizeof header)
      break;
    parts_.push_back(image_.data() + at);
    at = (at + header.header_bytes + header.payload_bytes + 7) / 8 * 8;
  }
  if (parts_.size() < 2) return;
  parts_.push_back(nullptr);
  wrapper_.linked = parts_[0];
  wrapper_.parts = parts_.data() + 1;
}

}  // namespace bandsaw::cuda
