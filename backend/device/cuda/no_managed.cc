// Where code images cannot be unpacked: PTX with managed variables is refused where it shows.
#include <mutex>
#include <string_view>

#include "backend/device/cuda/managed.h"
#include "memory/base/log.h"

namespace bandsaw::cuda {

CUresult ManagedCode::find(std::span<const std::byte> image, uint32_t, std::shared_ptr<ManagedCode>*,
                           std::string* log) {
  static std::once_flag told;
  std::call_once(told, [] { log::warn("built without lz4 and zstd: no managed variables on this device"); });
  const std::string_view bytes(reinterpret_cast<const char*>(image.data()), image.size());
  if (bytes.find(".managed") == std::string_view::npos) return CUDA_SUCCESS;
  *log = "managed variables are not supported: this build has no lz4 and zstd";
  log::error("{}", *log);
  return CUDA_ERROR_NOT_SUPPORTED;
}

}  // namespace bandsaw::cuda
