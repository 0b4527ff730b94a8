// What NVRTC has compiled, kept in files for the user's next programs: as NVIDIA's driver keeps it for NVRTC 13, which
// asks for it through a private table (export_tables.cc).
//
// A file holds the whole key, so that no other code is ever taken for what was asked. Files that are broken, or that
// others could have written, are passed over. What cannot be kept is compiled again.
//
// Thread-safe, and safe beside other processes with the same folder.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace bandsaw::libcuda {

class CompileCache {
 public:
  // `folder` is made when something is kept first; empty: nothing is kept. `most`: bytes of all files in it, about.
  CompileCache(std::string folder, uint64_t most) : folder_(std::move(folder)), most_(most) {}

  // By CUDA_CACHE_PATH, CUDA_CACHE_DISABLE and CUDA_CACHE_MAXSIZE; else .cache/bandsaw/nvrtc in the user's home, 1 GiB.
  static CompileCache& of_this_program();

  // Nothing: it is not there.
  std::optional<std::vector<std::byte>> find(std::string_view key) const;
  void keep(std::string_view key, std::span<const std::byte> code);

 private:
  std::string path_of(std::string_view key) const;
  void make_room() const;

  const std::string folder_;
  const uint64_t most_;
  std::atomic<uint32_t> kept_{0};
};

}  // namespace bandsaw::libcuda
