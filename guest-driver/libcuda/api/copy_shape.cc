// Two- and three-dimensional copies.
#include "guest-driver/libcuda/api/copy_shape.h"

#include "guest-driver/libcuda/api/handles.h"
#include "guest-driver/libcuda/api/stream.h"
#include "guest-driver/libcuda/core/log.h"

namespace bandsaw::libcuda {
namespace {

// One end of any of CUDA's copy structures.
struct AskedEnd {
  CUmemorytype type{};
  uint64_t host = 0, device = 0, array = 0;
  size_t pitch = 0, height = 0, x = 0, y = 0, z = 0;
};

CUresult end_of(const AskedEnd& asked, const vgpu_copy& copy, vgpu_copy_end* end, Side* side) {
  switch (asked.type) {
    case CU_MEMORYTYPE_HOST:
      *side = Side::kHost;
      end->address = asked.host;
      break;
    case CU_MEMORYTYPE_DEVICE:
      *side = Side::kDevice;
      end->address = asked.device;
      break;
    case CU_MEMORYTYPE_UNIFIED:
      *side = Side::kUnified;
      end->address = asked.device;
      break;
    case CU_MEMORYTYPE_ARRAY:
      *side = Side::kArray;
      end->kind = VGPU_MEMORY_ARRAY;
      end->address = asked.array;
      end->x_bytes = asked.x;
      end->y = asked.y;
      end->z = asked.z;
      return asked.array ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
    default:
      return CUDA_ERROR_INVALID_VALUE;
  }
  uint64_t row = 0, rows = 0;
  if (__builtin_add_overflow(asked.x, copy.width_bytes, &row) || __builtin_add_overflow(asked.y, copy.height, &rows)) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  // Zero means "as the copy is", which CUDA allows where nothing follows in that dimension.
  end->pitch = asked.pitch ? asked.pitch : row;
  end->height = asked.height ? asked.height : rows;
  end->x_bytes = asked.x;
  end->y = asked.y;
  end->z = asked.z;
  if (end->pitch < row || (copy.depth > 1 && end->height < rows)) return CUDA_ERROR_INVALID_VALUE;
  const auto most = static_cast<uint64_t>(device_attribute(CU_DEVICE_ATTRIBUTE_MAX_PITCH));
  return most && end->pitch > most && rows > 1 ? CUDA_ERROR_INVALID_VALUE : CUDA_SUCCESS;
}

CUresult shape_ends(const AskedEnd& destination, const AskedEnd& source, ShapedCopy* shaped) {
  vgpu_copy& copy = shaped->copy;
  const CUresult result = end_of(destination, copy, &copy.destination, &shaped->destination);
  return result != CUDA_SUCCESS ? result : end_of(source, copy, &copy.source, &shaped->source);
}

template <typename T>
AskedEnd destination_of(const T& asked) {
  AskedEnd end;
  end.type = asked.dstMemoryType;
  end.host = reinterpret_cast<uint64_t>(asked.dstHost);
  end.device = asked.dstDevice;
  end.array = to_wire(asked.dstArray);
  end.pitch = asked.dstPitch;
  end.x = asked.dstXInBytes;
  end.y = asked.dstY;
  return end;
}

template <typename T>
AskedEnd source_of(const T& asked) {
  AskedEnd end;
  end.type = asked.srcMemoryType;
  end.host = reinterpret_cast<uint64_t>(asked.srcHost);
  end.device = asked.srcDevice;
  end.array = to_wire(asked.srcArray);
  end.pitch = asked.srcPitch;
  end.x = asked.srcXInBytes;
  end.y = asked.srcY;
  return end;
}

CUresult shape_of(const CUDA_MEMCPY2D& asked, ShapedCopy* shaped) {
  shaped->copy.width_bytes = asked.WidthInBytes;
  shaped->copy.height = asked.Height;
  shaped->copy.depth = 1;
  return shape_ends(destination_of(asked), source_of(asked), shaped);
}

// CUDA_MEMCPY3D or CUDA_MEMCPY3D_PEER.
template <typename T>
CUresult shape_3d(const T& asked, ShapedCopy* shaped) {
  if (asked.srcLOD || asked.dstLOD) return CUDA_ERROR_INVALID_VALUE;
  shaped->copy.width_bytes = asked.WidthInBytes;
  shaped->copy.height = asked.Height;
  shaped->copy.depth = asked.Depth;
  if (!asked.WidthInBytes || !asked.Height || !asked.Depth) return CUDA_SUCCESS;  // nothing is looked at
  AskedEnd destination = destination_of(asked), source = source_of(asked);
  destination.height = asked.dstHeight;
  destination.z = asked.dstZ;
  source.height = asked.srcHeight;
  source.z = asked.srcZ;
  return shape_ends(destination, source, shaped);
}

template <typename T>
CUresult run(const T* asked, CUresult (*shape)(const T&, ShapedCopy*), CUstream stream, bool wait,
             const char* entry = __builtin_FUNCTION()) {
  Call call(entry);
  if (!require_context(call, stream)) return call.status();
  if (!asked) return CUDA_ERROR_INVALID_VALUE;
  uint64_t on = 0;
  CUresult result = check_work_stream(call, stream, &on);
  if (result != CUDA_SUCCESS) return result;
  ShapedCopy shaped;
  result = shape(*asked, &shaped);
  if (result != CUDA_SUCCESS) return result;
  return transfer(call, shaped.copy, shaped.destination, shaped.source, on, wait);
}

CUresult shape_peer(const CUDA_MEMCPY3D_PEER& asked, ShapedCopy* shaped) {
  if (!from_program(asked.srcContext) || !from_program(asked.dstContext)) return CUDA_ERROR_INVALID_CONTEXT;
  return shape_3d(asked, shaped);
}

CUresult shape_operand(const CUmemcpy3DOperand& operand, AskedEnd* end) {
  if (operand.type == CU_MEMCPY_OPERAND_TYPE_ARRAY) {
    log_unsupported("copies of CUDA arrays");
    return CUDA_ERROR_NOT_SUPPORTED;
  }
  if (operand.type != CU_MEMCPY_OPERAND_TYPE_POINTER) return CUDA_ERROR_INVALID_VALUE;
  end->type = CU_MEMORYTYPE_UNIFIED;
  end->device = operand.op.ptr.ptr;
  end->pitch = operand.op.ptr.rowLength;
  end->height = operand.op.ptr.layerHeight;
  return CUDA_SUCCESS;
}

CUresult shape_operation(const CUDA_MEMCPY3D_BATCH_OP& asked, ShapedCopy* shaped) {
  shaped->copy.width_bytes = asked.extent.width;
  shaped->copy.height = asked.extent.height;
  shaped->copy.depth = asked.extent.depth;
  AskedEnd destination, source;
  CUresult result = shape_operand(asked.dst, &destination);
  if (result == CUDA_SUCCESS) result = shape_operand(asked.src, &source);
  return result == CUDA_SUCCESS ? shape_ends(destination, source, shaped) : result;
}

}  // namespace

CUresult shape_of(const CUDA_MEMCPY3D& asked, ShapedCopy* shaped) {
  if (asked.reserved0 || asked.reserved1) return CUDA_ERROR_INVALID_VALUE;
  return shape_3d(asked, shaped);
}

}  // namespace bandsaw::libcuda

using namespace bandsaw::libcuda;  // NOLINT: entry points below

extern "C" {

CUresult cuMemcpy2D_v2(const CUDA_MEMCPY2D* copy) { return run(copy, shape_of, nullptr, true); }

CUresult cuMemcpy2DUnaligned_v2(const CUDA_MEMCPY2D* copy) { return run(copy, shape_of, nullptr, true); }

CUresult cuMemcpy2DAsync_v2(const CUDA_MEMCPY2D* copy, CUstream stream) { return run(copy, shape_of, stream, false); }

CUresult cuMemcpy3D_v2(const CUDA_MEMCPY3D* copy) { return run(copy, shape_of, nullptr, true); }

CUresult cuMemcpy3DAsync_v2(const CUDA_MEMCPY3D* copy, CUstream stream) { return run(copy, shape_of, stream, false); }

CUresult cuMemcpy3DPeer(const CUDA_MEMCPY3D_PEER* copy) { return run(copy, shape_peer, nullptr, true); }

CUresult cuMemcpy3DPeerAsync(const CUDA_MEMCPY3D_PEER* copy, CUstream stream) {
  return run(copy, shape_peer, stream, false);
}

CUresult cuMemcpy3DBatchAsync_v2(size_t count, CUDA_MEMCPY3D_BATCH_OP* operations, unsigned long long flags,
                                 CUstream stream) {
  Call call;
  if (!require_context(call, stream)) return call.status();
  if (!count || !operations || flags) return CUDA_ERROR_INVALID_VALUE;
  for (size_t i = 0; i < count; ++i) {
    const CUresult result = run(&operations[i], shape_operation, stream, false);
    if (result != CUDA_SUCCESS) return result;
  }
  return CUDA_SUCCESS;
}

CUresult cuMemcpy3DWithAttributesAsync(CUDA_MEMCPY3D_BATCH_OP* operation, unsigned long long flags, CUstream stream) {
  return cuMemcpy3DBatchAsync_v2(1, operation, flags, stream);
}

}  // extern "C"
