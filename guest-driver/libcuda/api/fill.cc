// Memset in all its forms.
#include "guest-driver/libcuda/api/across.h"
#include "guest-driver/libcuda/api/address_map.h"
#include "guest-driver/libcuda/api/managed_space.h"
#include "guest-driver/libcuda/api/stream.h"
#include "guest-driver/libcuda/core/call.h"
#include "guest-driver/libcuda/wire_client.h"

namespace bandsaw::libcuda {
namespace {

// Fills `width` elements in each of `height` rows. As in CUDA, the synchronous forms wait for pinned host memory, but
// not for device memory. If only the host knows whether the address is valid, every form waits for its result.
CUresult fill(CUdeviceptr address, size_t pitch, uint32_t value, uint32_t element, size_t width, size_t height,
              CUstream stream, bool wait, const char* entry = __builtin_FUNCTION()) {
  Call call(entry);
  if (!require_context(call, stream)) return call.status();
  uint64_t on = 0;
  CUresult result = check_work_stream(call, stream, &on);
  if (result != CUDA_SUCCESS) return result;
  if (address % element || (height > 1 && pitch % element)) return CUDA_ERROR_INVALID_VALUE;
  if (!width || !height) return CUDA_SUCCESS;
  uint64_t row = 0, span = 0;
  if (__builtin_mul_overflow(width, element, &row) || __builtin_mul_overflow(height - 1, pitch, &span) ||
      __builtin_add_overflow(span, row, &span)) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  if (!address || (height > 1 && pitch < row)) return CUDA_ERROR_INVALID_VALUE;
  const auto range = AddressMap::get().find(address);
  if (range && !AddressMap::get().covers(*range, address, span)) return CUDA_ERROR_INVALID_VALUE;
  const vgpu_fill what{address, height > 1 ? pitch : 0, width, height, element, value};
  if (range && range->on_device() && &gpu_of(*range) != &call.gpu()) {
    return do_across(call, on, gpu_of(*range), [&what](Call& there, uint64_t stream_there) {
      return wire::fill(there, what, stream_there, vgpu_done{});
    });
  }
  const DeviceWork work(call, on, {{address, span}});
  if (work.status() != CUDA_SUCCESS) return work.status();
  if (range && (!wait || range->on_device())) return wire::fill(call, what, on, vgpu_done{});
  result = check_may_wait();
  Bounce completion;
  if (result == CUDA_SUCCESS) result = call.completion(&completion);
  if (result == CUDA_SUCCESS) result = wire::fill(call, what, on, completion.done);
  if (result != CUDA_SUCCESS) return result;
  call.bounce_used(completion);
  return call.wait_done(completion);
}

}  // namespace
}  // namespace bandsaw::libcuda

using bandsaw::libcuda::fill;

extern "C" {

CUresult cuMemsetD8_v2(CUdeviceptr to, unsigned char value, size_t count) {
  return fill(to, 0, value, 1, count, 1, nullptr, true);
}

CUresult cuMemsetD16_v2(CUdeviceptr to, unsigned short value, size_t count) {
  return fill(to, 0, value, 2, count, 1, nullptr, true);
}

CUresult cuMemsetD32_v2(CUdeviceptr to, unsigned value, size_t count) {
  return fill(to, 0, value, 4, count, 1, nullptr, true);
}

CUresult cuMemsetD2D8_v2(CUdeviceptr to, size_t pitch, unsigned char value, size_t width, size_t height) {
  return fill(to, pitch, value, 1, width, height, nullptr, true);
}

CUresult cuMemsetD2D16_v2(CUdeviceptr to, size_t pitch, unsigned short value, size_t width, size_t height) {
  return fill(to, pitch, value, 2, width, height, nullptr, true);
}

CUresult cuMemsetD2D32_v2(CUdeviceptr to, size_t pitch, unsigned value, size_t width, size_t height) {
  return fill(to, pitch, value, 4, width, height, nullptr, true);
}

CUresult cuMemsetD8Async(CUdeviceptr to, unsigned char value, size_t count, CUstream stream) {
  return fill(to, 0, value, 1, count, 1, stream, false);
}

CUresult cuMemsetD16Async(CUdeviceptr to, unsigned short value, size_t count, CUstream stream) {
  return fill(to, 0, value, 2, count, 1, stream, false);
}

CUresult cuMemsetD32Async(CUdeviceptr to, unsigned value, size_t count, CUstream stream) {
  return fill(to, 0, value, 4, count, 1, stream, false);
}

CUresult cuMemsetD2D8Async(CUdeviceptr to, size_t pitch, unsigned char value, size_t width, size_t height,
                           CUstream stream) {
  return fill(to, pitch, value, 1, width, height, stream, false);
}

CUresult cuMemsetD2D16Async(CUdeviceptr to, size_t pitch, unsigned short value, size_t width, size_t height,
                            CUstream stream) {
  return fill(to, pitch, value, 2, width, height, stream, false);
}

CUresult cuMemsetD2D32Async(CUdeviceptr to, size_t pitch, unsigned value, size_t width, size_t height,
                            CUstream stream) {
  return fill(to, pitch, value, 4, width, height, stream, false);
}

}  // extern "C"
