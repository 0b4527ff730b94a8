#include "guest-driver/libcuda/api/image.h"

#include <dlfcn.h>

#include <algorithm>
#include <cstdio>
#include <cstring>
#include <memory>
#include <mutex>
#include <set>

#include "guest-driver/libcuda/core/call.h"
#include "guest-driver/libcuda/core/careful_read.h"
#include "guest-driver/libcuda/core/log.h"
#include "guest-driver/libcuda/core/process.h"

namespace bandsaw::libcuda {

SharedImage::~SharedImage() {
  // An error means that the host is gone, and then the block does not matter.
  if (block_.address) static_cast<void>(block_.memory->release(block_.address));
}

// To share a block of its own takes the session twice, which is longer than most images take to load.
CUresult SharedImage::fill(Call& call, const Image& image) {
  if (image.bytes <= kBounceBytes) {
    Bounce bounce;
    if (const CUresult result = call.bounce(&bounce)) return result;
    address_ = bounce.data;
  } else {
    if (const CUresult result = call.gpu().memory->allocate(image.bytes, 0, &block_)) return result;
    address_ = static_cast<std::byte*>(block_.address);
  }
  if (!careful_read(address_, image.data, image.bytes)) return CUDA_ERROR_INVALID_IMAGE;
  bytes_ = image.bytes;
  return CUDA_SUCCESS;
}

CUresult JitOptions::read(unsigned count, const CUjit_option* options, void** values) {
  if (count && (!options || !values)) return CUDA_ERROR_INVALID_VALUE;
  for (unsigned i = 0; i < count; ++i) {
    void* const value = values[i];
    switch (options[i]) {
      case CU_JIT_WALL_TIME:
        wall_time_ = &values[i];
        break;
      case CU_JIT_INFO_LOG_BUFFER:
        info_.text = static_cast<char*>(value);
        info_.given = true;
        break;
      case CU_JIT_INFO_LOG_BUFFER_SIZE_BYTES:
        info_.capacity = static_cast<uint32_t>(reinterpret_cast<uintptr_t>(value));
        info_.size_value = &values[i];
        break;
      case CU_JIT_ERROR_LOG_BUFFER:
        error_.text = static_cast<char*>(value);
        error_.given = true;
        break;
      case CU_JIT_ERROR_LOG_BUFFER_SIZE_BYTES:
        error_.capacity = static_cast<uint32_t>(reinterpret_cast<uintptr_t>(value));
        error_.size_value = &values[i];
        break;
      case CU_JIT_CACHE_MODE:
        if (reinterpret_cast<uintptr_t>(value) > CU_JIT_CACHE_OPTION_CA) return CUDA_ERROR_INVALID_VALUE;
        break;
      default:
        break;
    }
  }
  const bool size_alone = (info_.size_value && !info_.given) || (error_.size_value && !error_.given);
  return size_alone ? CUDA_ERROR_INVALID_VALUE : CUDA_SUCCESS;
}

void JitOptions::put(const Buffer& buffer, const std::string& text) {
  size_t written = 0;
  if (buffer.text && buffer.capacity) {
    written = std::min(text.size(), buffer.capacity - 1);
    std::memcpy(buffer.text, text.data(), written);
    buffer.text[written] = 0;
  }
  if (buffer.size_value) *buffer.size_value = reinterpret_cast<void*>(written);
}

void JitOptions::report(CUresult result, const std::string& log, float milliseconds) {
  put(info_, result == CUDA_SUCCESS ? log : std::string());
  put(error_, result == CUDA_SUCCESS ? std::string() : log);
  if (wall_time_) std::memcpy(wall_time_, &milliseconds, sizeof(milliseconds));
}

CUresult explain(CUresult result, const void* image, const void* caller) {
  if (result != CUDA_ERROR_NO_BINARY_FOR_GPU) return result;
  // An image in a library's own data is that library's. One in other memory was made, or unpacked, by the caller.
  Dl_info owner;
  const bool known = dladdr(image, &owner) || dladdr(caller, &owner);
  const std::string file = known && owner.dli_fname ? owner.dli_fname : "this program";
  static std::mutex mutex;
  static auto* const told = new std::set<std::string>;
  std::lock_guard lock(mutex);
  if (!told->insert(file).second) return result;
  log(Level::kWarn,
      "%s hands over code without PTX that this device can use. A device that executes PTX alone (the software device) "
      "needs PTX (nvcc -gencode arch=compute_75,code=compute_75); NVIDIA's libraries (cuBLAS, cuDNN, cuFFT, cuRAND) "
      "hold "
      "machine code, and need a virtual GPU of an NVIDIA GPU. What is compiled at run time by NVRTC or nvJitLink is "
      "PTX "
      "with libbandsaw-ptx.so.1 preloaded, as tools/guest-run does",
      file.c_str());
  return result;
}

CUresult read_file(const char* path, std::vector<char>* bytes) {
  const std::unique_ptr<FILE, int (*)(FILE*)> file(std::fopen(path, "rbe"), std::fclose);
  if (!file) return CUDA_ERROR_FILE_NOT_FOUND;
  char piece[65536];
  size_t got;
  while ((got = std::fread(piece, 1, sizeof(piece), file.get())) > 0) bytes->insert(bytes->end(), piece, piece + got);
  if (std::ferror(file.get())) return CUDA_ERROR_FILE_NOT_FOUND;
  bytes->insert(bytes->end(), 8, 0);  // text ends, and magic numbers can be read
  return CUDA_SUCCESS;
}

}  // namespace bandsaw::libcuda
