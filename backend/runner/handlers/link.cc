// cuLink*: a guest's inputs to the device's linker, and what comes out back to the guest.
#include <algorithm>
#include <cstring>

#include "backend/runner/handlers/handlers.h"
#include "memory/base/log.h"

namespace bandsaw::runner {
namespace {

using wire::HandleKind;

constexpr size_t kLinkersMost = 64;                 // alive at a time, of one guest process
constexpr uint64_t kInputBytesMost = 512ull << 20;  // of one linker, together
constexpr size_t kLogMost = 16 * 1024;
constexpr size_t kOptionsMost = 64;

// Options that change what is made; their values are numbers. Those about logs are ours.
bool is_known(uint32_t option) {
  switch (option) {
    case CU_JIT_MAX_REGISTERS:
    case CU_JIT_OPTIMIZATION_LEVEL:
    case CU_JIT_TARGET_FROM_CUCONTEXT:
    case CU_JIT_TARGET:
    case CU_JIT_FALLBACK_STRATEGY:
    case CU_JIT_GENERATE_DEBUG_INFO:
    case CU_JIT_LOG_VERBOSE:
    case CU_JIT_GENERATE_LINE_INFO:
    case CU_JIT_CACHE_MODE:
      return true;
    default:
      return false;
  }
}

}  // namespace

CUresult Handlers::link_create(C call, Bytes options, uint64_t* linker) {
  std::vector<LinkOption> asked;
  if (options.size() % 8 || options.size() / 8 > kOptionsMost) return CUDA_ERROR_INVALID_VALUE;
  for (size_t at = 0; at < options.size(); at += 8) {
    uint32_t pair[2];
    std::memcpy(pair, options.data() + at, sizeof pair);
    if (is_known(pair[0])) asked.push_back({static_cast<CUjit_option>(pair[0]), pair[1]});
  }
  std::lock_guard lock(linkers_mutex_);
  std::erase_if(linkers_, [](const std::weak_ptr<Linker>& one) { return one.expired(); });
  if (linkers_.size() >= kLinkersMost) return CUDA_ERROR_OUT_OF_MEMORY;
  LinkerRef made;
  if (const CUresult result = device_.link_create(call.context, asked, &made)) return result;
  linkers_.push_back(made);
  return give(HandleKind::kLinker, std::move(made), call.context.handle, linker);
}

CUresult Handlers::link_add(C, R<Linker> linker, uint32_t type, uint64_t data, uint64_t size, std::string_view name,
                            std::string* log) {
  std::lock_guard lock(linker.object->mutex);
  if (size > kInputBytesMost - linker.object->input_bytes) {
    *log = fmt::format("the inputs are more than {} bytes", kInputBytesMost);
    return CUDA_ERROR_OUT_OF_MEMORY;
  }
  std::vector<std::byte> bytes;
  if (const CUresult result = copy_image(data, size, &bytes, log)) return result;
  linker.object->input_bytes += size;
  const CUresult result = device_.link_add(linker, static_cast<CUjitInputType>(type), bytes, std::string(name), log);
  if (log->size() > kLogMost) log->resize(kLogMost);
  return result;
}

CUresult Handlers::link_complete(C, R<Linker> linker, uint64_t* size, std::string* log) {
  std::lock_guard lock(linker.object->mutex);
  const CUresult result = device_.link_complete(linker, &linker.object->image, log);
  if (log->size() > kLogMost) log->resize(kLogMost);
  *size = linker.object->image.size();
  return result;
}

CUresult Handlers::link_image(C, R<Linker> linker, uint64_t to, uint64_t size) {
  std::lock_guard lock(linker.object->mutex);
  const std::vector<std::byte>& image = linker.object->image;
  if (image.empty() || size != image.size()) return CUDA_ERROR_INVALID_VALUE;
  const GuestSpan span = world_.memory.find(to, size, Access::kWrite);
  if (!span) return CUDA_ERROR_INVALID_VALUE;
  std::memcpy(span.data, image.data(), size);
  return CUDA_SUCCESS;
}

CUresult Handlers::link_destroy(C, R<Linker> linker) {
  return table().remove(HandleKind::kLinker, linker.handle) ? CUDA_SUCCESS : CUDA_ERROR_INVALID_HANDLE;
}

}  // namespace bandsaw::runner
