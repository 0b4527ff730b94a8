// The MD2 digest (RFC 1319) and HMAC over it (RFC 2104, blocks of 16 bytes).
#pragma once

#include <array>
#include <cstdint>
#include <span>

namespace bandsaw::libcuda {

using Digest = std::array<uint8_t, 16>;

Digest md2(std::span<const uint8_t> message);
Digest hmac_md2(std::span<const uint8_t, 16> key, std::span<const uint8_t> message);

}  // namespace bandsaw::libcuda
