// One-dimensional copies.
#include "guest-driver/libcuda/api/address_map.h"
#include "guest-driver/libcuda/api/stream.h"
#include "guest-driver/libcuda/api/transfer.h"

namespace bandsaw::libcuda {
namespace {

CUresult copy_sync(uint64_t destination, uint64_t source, size_t bytes, Side to, Side from,
                   const char* entry = __builtin_FUNCTION()) {
  Call call(entry);
  if (!call.require_context()) return call.status();
  uint64_t on = 0;
  const CUresult result = check_work_stream(nullptr, &on);
  return result != CUDA_SUCCESS ? result : transfer(call, linear_copy(destination, source, bytes), to, from, on, true);
}

CUresult copy_async(uint64_t destination, uint64_t source, size_t bytes, Side to, Side from, CUstream stream,
                    const char* entry = __builtin_FUNCTION()) {
  Call call(entry);
  if (!require_context(call, stream)) return call.status();
  uint64_t on = 0;
  const CUresult result = check_work_stream(call, stream, &on);
  return result != CUDA_SUCCESS ? result : transfer(call, linear_copy(destination, source, bytes), to, from, on, false);
}

// Whether the program may change the source once the call is back. Pageable memory has been read by then in any case.
bool reads_now(const CUmemcpyAttributes& attributes, CUdeviceptr source) {
  if (attributes.srcAccessOrder != CU_MEMCPY_SRC_ACCESS_ORDER_DURING_API_CALL) return false;
  const auto range = AddressMap::get().find(source);
  return range && !range->on_device();
}

CUresult wait_for(CUstream stream) {
  bool capturing = false;
  const CUresult result = is_capturing(wire_stream(stream), &capturing);
  return result != CUDA_SUCCESS || capturing ? result : cuStreamSynchronize(stream);
}

uint64_t address(const void* pointer) { return reinterpret_cast<uint64_t>(pointer); }

// Addresses say whose they are; the contexts still have to be contexts.
CUresult check_peers(CUcontext destination, CUcontext source) {
  return from_program(destination) && from_program(source) ? CUDA_SUCCESS : CUDA_ERROR_INVALID_CONTEXT;
}

}  // namespace
}  // namespace bandsaw::libcuda

using namespace bandsaw::libcuda;  // NOLINT: entry points below

extern "C" {

CUresult cuMemcpyHtoD_v2(CUdeviceptr destination, const void* source, size_t bytes) {
  return copy_sync(destination, address(source), bytes, Side::kDevice, Side::kHost);
}

CUresult cuMemcpyDtoH_v2(void* destination, CUdeviceptr source, size_t bytes) {
  return copy_sync(address(destination), source, bytes, Side::kHost, Side::kDevice);
}

CUresult cuMemcpyDtoD_v2(CUdeviceptr destination, CUdeviceptr source, size_t bytes) {
  return copy_sync(destination, source, bytes, Side::kDevice, Side::kDevice);
}

CUresult cuMemcpy(CUdeviceptr destination, CUdeviceptr source, size_t bytes) {
  return copy_sync(destination, source, bytes, Side::kUnified, Side::kUnified);
}

CUresult cuMemcpyHtoDAsync_v2(CUdeviceptr destination, const void* source, size_t bytes, CUstream stream) {
  return copy_async(destination, address(source), bytes, Side::kDevice, Side::kHost, stream);
}

CUresult cuMemcpyDtoHAsync_v2(void* destination, CUdeviceptr source, size_t bytes, CUstream stream) {
  return copy_async(address(destination), source, bytes, Side::kHost, Side::kDevice, stream);
}

CUresult cuMemcpyDtoDAsync_v2(CUdeviceptr destination, CUdeviceptr source, size_t bytes, CUstream stream) {
  return copy_async(destination, source, bytes, Side::kDevice, Side::kDevice, stream);
}

CUresult cuMemcpyAsync(CUdeviceptr destination, CUdeviceptr source, size_t bytes, CUstream stream) {
  return copy_async(destination, source, bytes, Side::kUnified, Side::kUnified, stream);
}

CUresult cuMemcpyPeer(CUdeviceptr destination, CUcontext to, CUdeviceptr source, CUcontext from, size_t bytes) {
  const CUresult result = check_peers(to, from);
  return result != CUDA_SUCCESS ? result : copy_sync(destination, source, bytes, Side::kUnified, Side::kUnified);
}

CUresult cuMemcpyPeerAsync(CUdeviceptr destination, CUcontext to, CUdeviceptr source, CUcontext from, size_t bytes,
                           CUstream stream) {
  const CUresult result = check_peers(to, from);
  return result != CUDA_SUCCESS ? result
                                : copy_async(destination, source, bytes, Side::kUnified, Side::kUnified, stream);
}

CUresult cuMemcpyBatchAsync_v2(CUdeviceptr* destinations, CUdeviceptr* sources, size_t* sizes, size_t count,
                               CUmemcpyAttributes* attributes, size_t* attribute_begins, size_t attribute_count,
                               CUstream stream) {
  Call call;
  if (!require_context(call, stream)) return call.status();
  if (!destinations || !sources || !sizes || !count || !attributes || !attribute_begins || !attribute_count ||
      attribute_count > count || attribute_begins[0] != 0) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  uint64_t on = 0;
  CUresult result = check_work_stream(call, stream, &on);
  if (result != CUDA_SUCCESS) return result;
  if (on == 0 || on == VGPU_STREAM_LEGACY) return CUDA_ERROR_INVALID_VALUE;  // CUDA refuses the legacy stream
  size_t attribute = 0;
  bool waits = false;
  for (size_t i = 0; i < count && result == CUDA_SUCCESS; ++i) {
    if (!sizes[i]) return CUDA_ERROR_INVALID_VALUE;
    while (attribute + 1 < attribute_count && attribute_begins[attribute + 1] <= i) ++attribute;
    waits = waits || reads_now(attributes[attribute], sources[i]);
    result = copy_async(destinations[i], sources[i], sizes[i], Side::kUnified, Side::kUnified, stream);
  }
  return result == CUDA_SUCCESS && waits ? wait_for(stream) : result;
}

CUresult cuMemcpyWithAttributesAsync(CUdeviceptr destination, CUdeviceptr source, size_t bytes,
                                     CUmemcpyAttributes* attributes, CUstream stream) {
  if (!attributes || attributes->srcAccessOrder == CU_MEMCPY_SRC_ACCESS_ORDER_INVALID ||
      attributes->srcAccessOrder > CU_MEMCPY_SRC_ACCESS_ORDER_ANY) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  const CUresult result = copy_async(destination, source, bytes, Side::kUnified, Side::kUnified, stream);
  return result == CUDA_SUCCESS && reads_now(*attributes, source) ? wait_for(stream) : result;
}

}  // extern "C"
