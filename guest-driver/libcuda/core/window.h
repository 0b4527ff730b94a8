// The address window of this process (vgpu_control.h): reserved as a whole, the guest's half-TiB at its beginning
// handed out in ranges. All virtual GPUs of the process share it.
#pragma once

#include <cstdint>
#include <map>
#include <mutex>

namespace bandsaw::libcuda {

inline constexpr uint64_t kPage = 4096;
inline constexpr uint64_t round_to_pages(uint64_t bytes) { return (bytes + kPage - 1) / kPage * kPage; }

struct Pages {
  uint64_t begin = 0, end = 0;  // addresses

  uint64_t bytes() const { return end - begin; }
  friend bool operator==(const Pages&, const Pages&) = default;
};
// The whole pages that hold [address, address + bytes).
inline constexpr Pages pages_around(uint64_t address, uint64_t bytes) {
  return {address / kPage * kPage, round_to_pages(address + bytes)};
}

// Thread-safe.
class Window {
 public:
  ~Window();
  // Reserves the addresses. 0, or an errno: EEXIST when something lies there already, EXDEV when the window is reserved
  // elsewhere.
  int reserve(uint64_t base);
  uint64_t base() const { return base_; }
  // Which of the bases it cannot be reserved at, as bits: bit 0 is of VGPU_WINDOW_BASE_0. If it is reserved, those
  // before its own, which a host would try first; so hosts of earlier releases are asked for nothing new as a rule.
  uint32_t taken() const;
  bool holds(uint64_t address, uint64_t bytes) const;

  // A free range of the guest's: its offset, or kNone. `bytes` is a multiple of kPage, `align` a power of two.
  static constexpr uint64_t kNone = ~0ull;
  uint64_t take(uint64_t bytes, uint64_t align);
  void give_back(uint64_t offset, uint64_t bytes);
  // Takes away what lies at whole pages of a window; their addresses stay reserved.
  static void close(uint64_t address, uint64_t bytes);

 private:
  uint64_t base_ = 0;
  std::mutex mutex_;
  std::map<uint64_t, uint64_t> free_;  // offset -> bytes
};

}  // namespace bandsaw::libcuda
