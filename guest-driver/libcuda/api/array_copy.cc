// One-dimensional copies from and to arrays.
#include "guest-driver/libcuda/api/handles.h"
#include "guest-driver/libcuda/api/stream.h"
#include "guest-driver/libcuda/api/transfer.h"

namespace bandsaw::libcuda {
namespace {

struct ArrayCopyEnd {
  uint64_t address = 0;  // or an array's handle
  Side side{};
  size_t offset = 0;  // in an array, in bytes
};

ArrayCopyEnd at(CUarray array, size_t offset) { return {to_wire(array), Side::kArray, offset}; }
ArrayCopyEnd at(CUdeviceptr address) { return {address, Side::kDevice}; }
ArrayCopyEnd at(const void* host) { return {reinterpret_cast<uint64_t>(host), Side::kHost}; }

CUresult run(const ArrayCopyEnd& to, const ArrayCopyEnd& from, size_t bytes, CUstream stream, bool wait,
             const char* entry = __builtin_FUNCTION()) {
  Call call(entry);
  if (!require_context(call, stream)) return call.status();
  uint64_t on = 0;
  const CUresult result = check_work_stream(call, stream, &on);
  if (result != CUDA_SUCCESS) return result;
  vgpu_copy copy = linear_copy(to.address, from.address, bytes);
  if (to.side == Side::kArray) copy.destination.kind = VGPU_MEMORY_ARRAY;
  if (from.side == Side::kArray) copy.source.kind = VGPU_MEMORY_ARRAY;
  copy.destination.x_bytes = to.offset;
  copy.source.x_bytes = from.offset;
  return transfer(call, copy, to.side, from.side, on, wait);
}

}  // namespace
}  // namespace bandsaw::libcuda

using namespace bandsaw::libcuda;  // NOLINT: entry points below

extern "C" {

CUresult cuMemcpyDtoA_v2(CUarray to, size_t offset, CUdeviceptr from, size_t bytes) {
  return run(at(to, offset), at(from), bytes, nullptr, true);
}

CUresult cuMemcpyAtoD_v2(CUdeviceptr to, CUarray from, size_t offset, size_t bytes) {
  return run(at(to), at(from, offset), bytes, nullptr, true);
}

CUresult cuMemcpyHtoA_v2(CUarray to, size_t offset, const void* from, size_t bytes) {
  return run(at(to, offset), at(from), bytes, nullptr, true);
}

CUresult cuMemcpyAtoH_v2(void* to, CUarray from, size_t offset, size_t bytes) {
  return run(at(to), at(from, offset), bytes, nullptr, true);
}

CUresult cuMemcpyAtoA_v2(CUarray to, size_t to_offset, CUarray from, size_t from_offset, size_t bytes) {
  return run(at(to, to_offset), at(from, from_offset), bytes, nullptr, true);
}

CUresult cuMemcpyHtoAAsync_v2(CUarray to, size_t offset, const void* from, size_t bytes, CUstream stream) {
  return run(at(to, offset), at(from), bytes, stream, false);
}

CUresult cuMemcpyAtoHAsync_v2(void* to, CUarray from, size_t offset, size_t bytes, CUstream stream) {
  return run(at(to), at(from, offset), bytes, stream, false);
}

}  // extern "C"
