// What the software device says about itself: the limits of compute capability 9.0 (CUDA C++ Programming Guide,
// table of technical specifications per compute capability).
#pragma once

#include <cstdint>

namespace bandsaw::soft {

inline constexpr uint32_t kMaxBlockThreads = 1024;
inline constexpr uint32_t kMaxGridX = 2147483647, kMaxGridYZ = 65535;
inline constexpr uint64_t kMaxBlockShared = 227 * 1024;  // with the opt-in attribute
inline constexpr uint64_t kDefaultBlockShared = 48 * 1024;
inline constexpr uint64_t kReservedShared = 1024;  // per block, beside its own
inline constexpr uint64_t kSmShared = 228 * 1024;
inline constexpr uint32_t kPortableCluster = 8;
inline constexpr uint32_t kSmThreads = 2048, kSmBlocks = 32, kSmRegisters = 65536;

}  // namespace bandsaw::soft
