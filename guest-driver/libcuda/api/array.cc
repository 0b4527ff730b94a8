// Arrays and mipmapped arrays.
#include "guest-driver/libcuda/api/array.h"

#include <algorithm>
#include <bit>
#include <memory>

#include "guest-driver/libcuda/api/handles.h"
#include "guest-driver/libcuda/api/stream.h"
#include "guest-driver/libcuda/core/call.h"
#include "guest-driver/libcuda/core/log.h"
#include "guest-driver/libcuda/wire_client.h"

namespace bandsaw::libcuda {
namespace {

void forget_array_state(Context* context) {
  const uint64_t gone = context->handle;
  arrays().remove_if([gone](const ArrayRecord& array) { return array.context == gone; });
  mipmaps().remove_if([gone](const MipmapRecord& mipmap) { return mipmap.context == gone; });
}

void forget_parts(uint64_t parent) {
  arrays().remove_if([parent](const ArrayRecord& array) { return array.parent == parent; });
}

// Bytes of an element; 0 for formats whose rows are not that simple.
uint64_t element_bytes(const vgpu_array& array) {
  switch (array.format) {
    case CU_AD_FORMAT_UNSIGNED_INT8:
    case CU_AD_FORMAT_SIGNED_INT8:
      return array.channels;
    case CU_AD_FORMAT_UNSIGNED_INT16:
    case CU_AD_FORMAT_SIGNED_INT16:
    case CU_AD_FORMAT_HALF:
      return uint64_t{2} * array.channels;
    case CU_AD_FORMAT_UNSIGNED_INT32:
    case CU_AD_FORMAT_SIGNED_INT32:
    case CU_AD_FORMAT_FLOAT:
      return uint64_t{4} * array.channels;
    default:
      return 0;
  }
}

bool inside(uint64_t from, uint64_t length, uint64_t size) { return length <= size && from <= size - length; }

// Arrays without memory of their own: the device's attributes say that there are none.
constexpr unsigned kMappedByProgram = CUDA_ARRAY3D_SPARSE | CUDA_ARRAY3D_DEFERRED_MAPPING;

// CUDA_ARRAY3D_DESCRIPTOR, of 64 or 32 bits.
template <typename T>
vgpu_array wire_array(const T& asked) {
  vgpu_array array{};
  array.width = asked.Width;
  array.height = asked.Height;
  array.depth = asked.Depth;
  array.format = asked.Format;
  array.channels = asked.NumChannels;
  array.flags = asked.Flags;
  return array;
}

template <typename T>
CUDA_ARRAY3D_DESCRIPTOR widen_2d(const T& asked) {
  CUDA_ARRAY3D_DESCRIPTOR wide{};
  wide.Width = asked.Width;
  wide.Height = asked.Height;
  wide.Format = asked.Format;
  wide.NumChannels = asked.NumChannels;
  return wide;
}

// A size that does not fit into a descriptor of 32 bits is given as the largest number that does.
template <typename T>
void describe_2d(const vgpu_array& array, T* out) {
  using Size = decltype(out->Width);
  out->Width = static_cast<Size>(std::min<uint64_t>(array.width, static_cast<Size>(-1)));
  out->Height = static_cast<Size>(std::min<uint64_t>(array.height, static_cast<Size>(-1)));
  out->Format = static_cast<CUarray_format>(array.format);
  out->NumChannels = array.channels;
}

template <typename T>
void describe_3d(const vgpu_array& array, T* out) {
  using Size = decltype(out->Depth);
  describe_2d(array, out);
  out->Depth = static_cast<Size>(std::min<uint64_t>(array.depth, static_cast<Size>(-1)));
  out->Flags = array.flags;
}

CUresult enter(std::unique_ptr<ArrayRecord> record, CUarray* array) {
  const uint64_t handle = record->handle;
  if (!arrays().insert(std::move(record))) return CUDA_ERROR_UNKNOWN;
  *array = from_wire<CUarray>(handle);
  return CUDA_SUCCESS;
}

template <typename T>
CUresult create(CUarray* array, const T* asked) {
  Call call;
  if (!call.require_context()) return call.status();
  if (!array || !asked) return CUDA_ERROR_INVALID_VALUE;
  if (asked->Flags & kMappedByProgram) return CUDA_ERROR_NOT_SUPPORTED;
  CUresult result = check_unsafe(call);
  if (result != CUDA_SUCCESS) return result;
  auto record = std::make_unique<ArrayRecord>();
  record->context = call.context();
  result = wire::array_create(call, wire_array(*asked), &record->handle, &record->is);
  return result == CUDA_SUCCESS ? enter(std::move(record), array) : result;
}

template <typename T>
CUresult create_2d(CUarray* array, const T* asked) {
  if (!asked) return create<CUDA_ARRAY3D_DESCRIPTOR>(array, nullptr);
  const CUDA_ARRAY3D_DESCRIPTOR wide = widen_2d(*asked);
  return create(array, &wide);
}

template <typename T>
CUresult describe(T* descriptor, CUarray array, void (*write)(const vgpu_array&, T*)) {
  const CUresult state = health();
  if (state != CUDA_SUCCESS) return state;
  if (!descriptor || !array) return CUDA_ERROR_INVALID_VALUE;
  const ArrayRecord* const record = arrays().find(array);
  if (!record) return CUDA_ERROR_INVALID_HANDLE;
  write(record->is, descriptor);
  return CUDA_SUCCESS;
}

// As many levels as the largest side can be halved, plus itself.
uint32_t clamp_levels(const vgpu_array& array, uint32_t asked) {
  const bool layered = (array.flags & (CUDA_ARRAY3D_LAYERED | CUDA_ARRAY3D_CUBEMAP)) != 0;
  const uint64_t side = std::max<uint64_t>({array.width, array.height, layered ? 0 : array.depth, 1});
  return std::clamp<uint32_t>(asked, 1, static_cast<uint32_t>(std::bit_width(side)));
}

// Waits for the context's work, as cuMemFree does.
template <typename Destroy>
CUresult destroy(Destroy destroy_it) {
  Call call;
  if (call.failed()) return call.status();
  CUresult result = check_unsafe(call);
  if (result == CUDA_SUCCESS) result = check_may_wait();
  return result == CUDA_SUCCESS ? destroy_it(call) : result;
}

}  // namespace

HandleTable<ArrayRecord>& arrays() {
  static HandleTable<ArrayRecord>& table = *[] {
    on_context_ended(forget_array_state);
    return new HandleTable<ArrayRecord>;
  }();
  return table;
}

HandleTable<MipmapRecord>& mipmaps() {
  static HandleTable<MipmapRecord>& table = *[] {
    on_context_ended(forget_array_state);
    return new HandleTable<MipmapRecord>;
  }();
  return table;
}

CUresult check_array_box(const vgpu_copy_end& end, const Extent& extent) {
  const ArrayRecord* const record = arrays().find(end.address);
  if (!record) return CUDA_ERROR_INVALID_HANDLE;
  const vgpu_array& array = record->is;
  const uint64_t element = element_bytes(array);
  if (!element) return CUDA_SUCCESS;  // the host decides
  const bool fits = inside(end.x_bytes, extent.width_bytes, array.width * element) &&
                    inside(end.y, extent.height, std::max<uint64_t>(array.height, 1)) &&
                    inside(end.z, extent.depth, std::max<uint64_t>(array.depth, 1));
  return fits ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

}  // namespace bandsaw::libcuda

using namespace bandsaw::libcuda;  // NOLINT: entry points below
namespace wire = bandsaw::wire;

extern "C" {

CUresult cuArrayCreate(CUarray* array, const CUDA_ARRAY_DESCRIPTOR_v1* asked) { return create_2d(array, asked); }

CUresult cuArrayCreate_v2(CUarray* array, const CUDA_ARRAY_DESCRIPTOR* asked) { return create_2d(array, asked); }

CUresult cuArray3DCreate(CUarray* array, const CUDA_ARRAY3D_DESCRIPTOR_v1* asked) { return create(array, asked); }

CUresult cuArray3DCreate_v2(CUarray* array, const CUDA_ARRAY3D_DESCRIPTOR* asked) { return create(array, asked); }

CUresult cuArrayGetDescriptor(CUDA_ARRAY_DESCRIPTOR_v1* descriptor, CUarray array) {
  return describe(descriptor, array, describe_2d<CUDA_ARRAY_DESCRIPTOR_v1>);
}

CUresult cuArrayGetDescriptor_v2(CUDA_ARRAY_DESCRIPTOR* descriptor, CUarray array) {
  return describe(descriptor, array, describe_2d<CUDA_ARRAY_DESCRIPTOR>);
}

CUresult cuArray3DGetDescriptor(CUDA_ARRAY3D_DESCRIPTOR_v1* descriptor, CUarray array) {
  return describe(descriptor, array, describe_3d<CUDA_ARRAY3D_DESCRIPTOR_v1>);
}

CUresult cuArray3DGetDescriptor_v2(CUDA_ARRAY3D_DESCRIPTOR* descriptor, CUarray array) {
  return describe(descriptor, array, describe_3d<CUDA_ARRAY3D_DESCRIPTOR>);
}

CUresult cuArrayDestroy(CUarray array) {
  return destroy([array](Call& call) -> CUresult {
    const ArrayRecord* const record = arrays().find(array);
    if (!record || record->parent) return CUDA_ERROR_INVALID_HANDLE;
    const CUresult result = wire::array_destroy(call, to_wire(array));
    arrays().remove(to_wire(array));
    forget_parts(to_wire(array));
    return result;
  });
}

CUresult cuArrayGetPlane(CUarray* plane_array, CUarray array, unsigned plane) {
  Call call;
  if (!call.require_context()) return call.status();
  if (!plane_array) return CUDA_ERROR_INVALID_VALUE;
  const ArrayRecord* const whole = arrays().find(array);
  if (!whole) return CUDA_ERROR_INVALID_HANDLE;
  auto record = std::make_unique<ArrayRecord>();
  record->context = whole->context;
  record->parent = whole->handle;
  const CUresult result = wire::array_plane(call, to_wire(array), plane, &record->handle, &record->is);
  return result == CUDA_SUCCESS ? enter(std::move(record), plane_array) : result;
}

CUresult cuMipmappedArrayCreate(CUmipmappedArray* mipmap, const CUDA_ARRAY3D_DESCRIPTOR* asked, unsigned levels) {
  Call call;
  if (!call.require_context()) return call.status();
  if (!mipmap || !asked) return CUDA_ERROR_INVALID_VALUE;
  CUresult result = check_unsafe(call);
  if (result != CUDA_SUCCESS) return result;
  vgpu_array array = wire_array(*asked);
  array.levels = clamp_levels(array, levels);
  auto record = std::make_unique<MipmapRecord>();
  record->context = call.context();
  result = wire::mipmap_create(call, array, &record->handle);
  if (result != CUDA_SUCCESS) return result;
  *mipmap = from_wire<CUmipmappedArray>(record->handle);
  return mipmaps().insert(std::move(record)) ? CUDA_SUCCESS : CUDA_ERROR_UNKNOWN;
}

CUresult cuMipmappedArrayGetLevel(CUarray* array, CUmipmappedArray mipmap, unsigned level) {
  Call call;
  if (!call.require_context()) return call.status();
  if (!array) return CUDA_ERROR_INVALID_VALUE;
  const MipmapRecord* const whole = mipmaps().find(mipmap);
  if (!whole) return CUDA_ERROR_INVALID_HANDLE;
  auto record = std::make_unique<ArrayRecord>();
  record->context = whole->context;
  record->parent = whole->handle;
  const CUresult result = wire::mipmap_level(call, to_wire(mipmap), level, &record->handle, &record->is);
  return result == CUDA_SUCCESS ? enter(std::move(record), array) : result;
}

CUresult cuMipmappedArrayDestroy(CUmipmappedArray mipmap) {
  return destroy([mipmap](Call& call) -> CUresult {
    if (!mipmaps().find(mipmap)) return CUDA_ERROR_INVALID_HANDLE;
    const CUresult result = wire::mipmap_destroy(call, to_wire(mipmap));
    mipmaps().remove(to_wire(mipmap));
    forget_parts(to_wire(mipmap));
    return result;
  });
}

}  // extern "C"
