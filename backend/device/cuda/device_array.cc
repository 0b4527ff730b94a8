// Arrays, textures, surfaces.
#include <algorithm>
#include <iterator>

#include "backend/device/cuda/cuda_device.h"
#include "memory/base/log.h"

namespace bandsaw::cuda {
namespace {

constexpr uint32_t kLevelsMost = 32;
constexpr uint32_t kOnDemand = CUDA_ARRAY3D_SPARSE | CUDA_ARRAY3D_DEFERRED_MAPPING;

CUDA_ARRAY3D_DESCRIPTOR to_driver(const vgpu_array& asked) {
  CUDA_ARRAY3D_DESCRIPTOR made{};
  made.Width = asked.width;
  made.Height = asked.height;
  made.Depth = asked.depth;
  made.Format = static_cast<CUarray_format>(asked.format);
  made.NumChannels = asked.channels;
  made.Flags = asked.flags;
  return made;
}

// No format that this does not name has larger elements, channels and planes included.
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
      return 8;
  }
}

// The GPU keeps arrays in blocks of 64 bytes by 8 rows.
bool level_bytes(const vgpu_array& array, uint32_t level, uint64_t* bytes) {
  const auto at_level = [level](uint64_t size) { return std::max<uint64_t>(size >> level, 1); };
  const bool layered = (array.flags & (CUDA_ARRAY3D_LAYERED | CUDA_ARRAY3D_CUBEMAP)) != 0;
  uint64_t row = 0, rows = at_level(array.height);
  if (__builtin_mul_overflow(at_level(array.width), element_bytes(array), &row) || row > UINT64_MAX - 63) return false;
  if (array.height > 1) rows = rows > UINT64_MAX - 7 ? rows : (rows + 7) / 8 * 8;
  const uint64_t planes = layered ? std::max<uint64_t>(array.depth, 1) : at_level(array.depth);
  return !__builtin_mul_overflow((row + 63) / 64 * 64, rows, bytes) && !__builtin_mul_overflow(*bytes, planes, bytes);
}

bool array_bytes(const vgpu_array& array, uint64_t* bytes) {
  *bytes = 0;
  for (uint32_t level = 0; level < std::max(array.levels, 1u); ++level) {
    uint64_t more = 0;
    if (!level_bytes(array, level, &more) || __builtin_add_overflow(*bytes, more, bytes)) return false;
  }
  return *bytes <= INT64_MAX;
}

// The share first: memory that is not the guest's is not asked for.
CUresult reserve(const vgpu_array& asked, Charge* charge) {
  uint64_t bytes = 0;
  if ((asked.flags & kOnDemand) != 0) return CUDA_ERROR_NOT_SUPPORTED;
  if (asked.levels > kLevelsMost || !array_bytes(asked, &bytes)) return CUDA_ERROR_INVALID_VALUE;
  return charge->resize(bytes) ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY;
}

CUDA_RESOURCE_DESC to_driver(const vgpu_resource& asked, const std::shared_ptr<Object>& object) {
  CUDA_RESOURCE_DESC made{};
  made.resType = static_cast<CUresourcetype>(asked.type);
  const auto format = static_cast<CUarray_format>(asked.format);
  switch (made.resType) {
    case CU_RESOURCE_TYPE_ARRAY:
      made.res.array.hArray = static_cast<const CudaArray&>(*object).handle;
      break;
    case CU_RESOURCE_TYPE_MIPMAPPED_ARRAY:
      made.res.mipmap.hMipmappedArray = static_cast<const CudaMipmap&>(*object).handle;
      break;
    case CU_RESOURCE_TYPE_LINEAR:
      made.res.linear = {asked.address, format, asked.channels, asked.bytes};
      break;
    case CU_RESOURCE_TYPE_PITCH2D:
      made.res.pitch2D = {asked.address, format, asked.channels, asked.width, asked.height, asked.pitch};
      break;
  }
  return made;
}

CUDA_TEXTURE_DESC to_driver(const vgpu_sampler& asked) {
  CUDA_TEXTURE_DESC made{};
  for (int i = 0; i < 3; ++i) made.addressMode[i] = static_cast<CUaddress_mode>(asked.address_mode[i]);
  made.filterMode = static_cast<CUfilter_mode>(asked.filter_mode);
  made.flags = asked.flags;
  made.maxAnisotropy = asked.max_anisotropy;
  made.mipmapFilterMode = static_cast<CUfilter_mode>(asked.mipmap_filter_mode);
  made.mipmapLevelBias = asked.mipmap_level_bias;
  made.minMipmapLevelClamp = asked.min_level;
  made.maxMipmapLevelClamp = asked.max_level;
  std::copy(std::begin(asked.border_color), std::end(asked.border_color), made.borderColor);
  return made;
}

CUDA_RESOURCE_VIEW_DESC to_driver(const vgpu_view& asked) {
  CUDA_RESOURCE_VIEW_DESC made{};
  made.format = static_cast<CUresourceViewFormat>(asked.format);
  made.width = asked.width;
  made.height = asked.height;
  made.depth = asked.depth;
  made.firstMipmapLevel = asked.first_level;
  made.lastMipmapLevel = asked.last_level;
  made.firstLayer = asked.first_layer;
  made.lastLayer = asked.last_layer;
  return made;
}

}  // namespace

CUresult CudaArray::destroy() {
  if (parent_ || !alive_.exchange(false) || !context->owner().alive) return CUDA_SUCCESS;
  if (const CUresult result = make_current(*driver_, context->owner())) return result;
  const CUresult result = driver_->cuArrayDestroy(handle);
  if (result == CUDA_SUCCESS) charge_.give_back();
  return result;
}

CUresult CudaMipmap::destroy() {
  if (!alive_.exchange(false) || !context->owner().alive) return CUDA_SUCCESS;
  if (const CUresult result = make_current(*driver_, context->owner())) return result;
  const CUresult result = driver_->cuMipmappedArrayDestroy(handle);
  if (result == CUDA_SUCCESS) charge_.give_back();
  return result;
}

CUresult CudaDevice::enter_array(const CudaArrayRef& array, ArrayRef* out, vgpu_array* made) {
  CUDA_ARRAY3D_DESCRIPTOR is{};
  if (const CUresult result = check(driver_->cuArray3DGetDescriptor(&is, array->handle))) return result;
  *made = {is.Width, is.Height, is.Depth, static_cast<uint32_t>(is.Format), is.NumChannels, is.Flags, 0};
  {
    std::lock_guard lock(arrays_mutex_);
    if (arrays_.size() >= arrays_most_) {
      std::erase_if(arrays_, [](const auto& entry) { return entry.second.expired(); });
      arrays_most_ = 2 * arrays_.size() + 64;
    }
    arrays_[array->handle] = array;
  }
  *out = array;
  return CUDA_SUCCESS;
}

CUresult CudaDevice::array_create(const ContextRef& context, const vgpu_array& asked, ArrayRef* array,
                                  vgpu_array* made) {
  if (const CUresult result = enter(as(context))) return result;
  if (asked.levels != 0) return CUDA_ERROR_INVALID_VALUE;
  Charge charge(host_);
  if (const CUresult result = with_room([&] { return reserve(asked, &charge); })) return result;
  const CUDA_ARRAY3D_DESCRIPTOR wanted = to_driver(asked);
  CUarray handle = nullptr;
  if (const CUresult result = check(driver_->cuArray3DCreate(&handle, &wanted))) return result;
  const auto created = std::make_shared<CudaArray>(driver_, handle, as(context), std::move(charge));
  is_only_here(created, "an array on a GPU");
  return enter_array(created, array, made);
}

CUresult CudaDevice::array_plane(const ArrayRef& array, uint32_t plane, ArrayRef* part, vgpu_array* made) {
  const CudaArray& whole = as(array);
  if (const CUresult result = enter(whole.context)) return result;
  CUarray handle = nullptr;
  if (const CUresult result = check(driver_->cuArrayGetPlane(&handle, whole.handle, plane))) return result;
  return enter_array(std::make_shared<CudaArray>(driver_, handle, whole.context, array), part, made);
}

void CudaDevice::array_destroy(const ArrayRef& array, Done done) {
  if (as(array).is_part()) return finished(CUDA_ERROR_INVALID_HANDLE, done);
  when_idle(as(array).context, [array] { return as(array).destroy(); }, std::move(done));
}

CUresult CudaDevice::mipmap_create(const ContextRef& context, const vgpu_array& asked, MipmapRef* mipmap) {
  if (const CUresult result = enter(as(context))) return result;
  if (asked.levels == 0) return CUDA_ERROR_INVALID_VALUE;
  Charge charge(host_);
  if (const CUresult result = with_room([&] { return reserve(asked, &charge); })) return result;
  const CUDA_ARRAY3D_DESCRIPTOR wanted = to_driver(asked);
  CUmipmappedArray handle = nullptr;
  if (const CUresult result = check(driver_->cuMipmappedArrayCreate(&handle, &wanted, asked.levels))) return result;
  *mipmap = std::make_shared<CudaMipmap>(driver_, handle, as(context), std::move(charge));
  is_only_here(*mipmap, "a mipmapped array on a GPU");
  return CUDA_SUCCESS;
}

CUresult CudaDevice::mipmap_level(const MipmapRef& mipmap, uint32_t level, ArrayRef* array, vgpu_array* made) {
  CudaMipmap& whole = as(mipmap);
  if (const CUresult result = enter(whole.context)) return result;
  std::lock_guard lock(whole.mutex);
  if (const CudaArrayRef known = whole.levels[level].lock()) return enter_array(known, array, made);
  CUarray handle = nullptr;
  const CUresult result = check(driver_->cuMipmappedArrayGetLevel(&handle, whole.handle, level));
  if (result != CUDA_SUCCESS) {
    whole.levels.erase(level);
    return result;
  }
  const auto part = std::make_shared<CudaArray>(driver_, handle, whole.context, mipmap);
  whole.levels[level] = part;
  return enter_array(part, array, made);
}

void CudaDevice::mipmap_destroy(const MipmapRef& mipmap, Done done) {
  when_idle(as(mipmap).context, [mipmap] { return as(mipmap).destroy(); }, std::move(done));
}

ArrayRef CudaDevice::known_array(CUarray handle) {
  std::lock_guard lock(arrays_mutex_);
  const auto known = arrays_.find(handle);
  return known != arrays_.end() ? known->second.lock() : nullptr;
}

CUresult CudaDevice::texture_create(const ContextRef& context, const vgpu_texture& asked,
                                    const std::shared_ptr<Object>& object, TextureRef* texture, uint64_t* value) {
  if (const CUresult result = enter(as(context))) return result;
  const CUDA_RESOURCE_DESC resource = to_driver(asked.resource, object);
  const CUDA_TEXTURE_DESC sampler = to_driver(asked.sampler);
  const CUDA_RESOURCE_VIEW_DESC view = to_driver(asked.view);
  CUtexObject handle = 0;
  const CUresult result =
      check(driver_->cuTexObjectCreate(&handle, &resource, &sampler, asked.view.present ? &view : nullptr));
  if (result != CUDA_SUCCESS) return result;
  *texture = std::make_shared<CudaTexture>(driver_, handle, as(context), object);
  is_only_here(*texture, "a texture on a GPU");
  *value = handle;
  return CUDA_SUCCESS;
}

CUresult CudaDevice::texture_destroy(const TextureRef& texture) {
  if (const CUresult result = enter(as(texture).context)) return result;
  return check(as(texture).destroy());
}

CUresult CudaDevice::texture_linear_width(uint32_t format, uint32_t channels, uint64_t* elements) {
  size_t most = 0;
  const CUresult result =
      check(driver_->cuDeviceGetTexture1DLinearMaxWidth(&most, static_cast<CUarray_format>(format), channels, device_));
  *elements = most;
  return result;
}

CUresult CudaDevice::surface_create(const ContextRef& context, const ArrayRef& array, SurfaceRef* surface,
                                    uint64_t* value) {
  if (const CUresult result = enter(as(context))) return result;
  CUDA_RESOURCE_DESC resource{};
  resource.resType = CU_RESOURCE_TYPE_ARRAY;
  resource.res.array.hArray = as(array).handle;
  CUsurfObject handle = 0;
  if (const CUresult result = check(driver_->cuSurfObjectCreate(&handle, &resource))) return result;
  *surface = std::make_shared<CudaSurface>(driver_, handle, as(context), array);
  is_only_here(*surface, "a surface on a GPU");
  *value = handle;
  return CUDA_SUCCESS;
}

CUresult CudaDevice::surface_destroy(const SurfaceRef& surface) {
  if (const CUresult result = enter(as(surface).context)) return result;
  return check(as(surface).destroy());
}

}  // namespace bandsaw::cuda
