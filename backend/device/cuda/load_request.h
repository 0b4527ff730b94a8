// An image for cuLibraryLoadData and cuModuleLoadDataEx.
#pragma once

#include <cuda.h>

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

namespace bandsaw::cuda {

// What the driver takes for relocatable code: the linked fatbin and those that it was linked from, up to a null
// pointer.
struct FatbinWrapper {
  uint32_t magic = 0x466243b1, version = 2;
  const void* linked = nullptr;
  const void* const* parts = nullptr;
};

// An image as the driver wants it, and the options that make it say what is wrong with it. The image has a NUL behind
// it, which ends PTX text; several fatbins one behind the other, at multiples of 8, become a wrapper.
class LoadRequest {
 public:
  explicit LoadRequest(std::span<const std::byte> image);
  LoadRequest(const LoadRequest&) = delete;
  LoadRequest& operator=(const LoadRequest&) = delete;
  const void* image() const { return parts_.size() > 1 ? static_cast<const void*>(&wrapper_) : image_.data(); }
  CUjit_option* options() { return options_; }
  void** values() { return values_; }
  static constexpr unsigned kOptions = 2;
  std::string log() const { return log_.c_str(); }

 private:
  static constexpr size_t kLogBytes = 16 * 1024;
  void find_parts();

  std::vector<std::byte> image_;
  std::vector<const void*> parts_;
  FatbinWrapper wrapper_;
  std::string log_;
  CUjit_option options_[kOptions] = {CU_JIT_ERROR_LOG_BUFFER, CU_JIT_ERROR_LOG_BUFFER_SIZE_BYTES};
  void* values_[kOptions] = {log_.data(), reinterpret_cast<void*>(kLogBytes)};
};

}  // namespace bandsaw::cuda
