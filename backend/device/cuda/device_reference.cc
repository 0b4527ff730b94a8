// Texture and surface references: the driver's own, which it finds in a module by name. It takes what they are bound to
// at each launch.
#include <algorithm>
#include <iterator>

#include "backend/device/cuda/cuda_device.h"

namespace bandsaw::cuda {
namespace {

// The first error of several calls; those behind it are not made.
class Steps {
 public:
  template <class F>
  Steps& then(F&& call) {
    if (result_ == CUDA_SUCCESS) result_ = call();
    return *this;
  }
  CUresult result() const { return result_; }

 private:
  CUresult result_ = CUDA_SUCCESS;
};

CUresult set_sampler(const Driver& driver, CUtexref reference, const vgpu_sampler& asked) {
  Steps steps;
  for (int axis = 0; axis < 3; ++axis)
    steps.then([&] {
      return driver.cuTexRefSetAddressMode(reference, axis, static_cast<CUaddress_mode>(asked.address_mode[axis]));
    });
  float border[4];
  std::copy(std::begin(asked.border_color), std::end(asked.border_color), border);
  return steps
      .then([&] { return driver.cuTexRefSetFilterMode(reference, static_cast<CUfilter_mode>(asked.filter_mode)); })
      .then([&] { return driver.cuTexRefSetFlags(reference, asked.flags); })
      .then([&] { return driver.cuTexRefSetBorderColor(reference, border); })
      .then([&] {
        return asked.max_anisotropy ? driver.cuTexRefSetMaxAnisotropy(reference, asked.max_anisotropy) : CUDA_SUCCESS;
      })
      .result();
}

CUresult set_levels(const Driver& driver, CUtexref reference, const vgpu_sampler& asked) {
  return Steps()
      .then([&] {
        return driver.cuTexRefSetMipmapFilterMode(reference, static_cast<CUfilter_mode>(asked.mipmap_filter_mode));
      })
      .then([&] { return driver.cuTexRefSetMipmapLevelBias(reference, asked.mipmap_level_bias); })
      .then([&] { return driver.cuTexRefSetMipmapLevelClamp(reference, asked.min_level, asked.max_level); })
      .result();
}

CUresult set_resource(const Driver& driver, CUtexref reference, const vgpu_texture& asked,
                      const std::shared_ptr<Object>& object) {
  const vgpu_resource& from = asked.resource;
  const auto format = static_cast<CUarray_format>(from.format);
  const auto channels = static_cast<int>(from.channels);
  size_t offset = 0;
  switch (from.type) {
    case CU_RESOURCE_TYPE_ARRAY:
      return driver.cuTexRefSetArray(reference, static_cast<const CudaArray&>(*object).handle, CU_TRSA_OVERRIDE_FORMAT);
    case CU_RESOURCE_TYPE_MIPMAPPED_ARRAY:
      return Steps()
          .then([&] { return set_levels(driver, reference, asked.sampler); })
          .then([&] {
            return driver.cuTexRefSetMipmappedArray(reference, static_cast<const CudaMipmap&>(*object).handle,
                                                    CU_TRSA_OVERRIDE_FORMAT);
          })
          .result();
    case CU_RESOURCE_TYPE_LINEAR:
      return Steps()
          .then([&] { return driver.cuTexRefSetFormat(reference, format, channels); })
          .then([&] { return driver.cuTexRefSetAddress(&offset, reference, from.address, from.bytes); })
          .result();
    default: {
      CUDA_ARRAY_DESCRIPTOR rows{};
      rows.Width = from.width;
      rows.Height = from.height;
      rows.Format = format;
      rows.NumChannels = from.channels;
      return Steps()
          .then([&] { return driver.cuTexRefSetFormat(reference, format, channels); })
          .then([&] { return driver.cuTexRefSetAddress2D(reference, &rows, from.address, from.pitch); })
          .result();
    }
  }
}

bool has_references(const Driver& driver) {
#define BANDSAW_CUDA_HAS(name) driver.name&&
  return BANDSAW_CUDA_OLD_DRIVER(BANDSAW_CUDA_HAS) true;
#undef BANDSAW_CUDA_HAS
}

}  // namespace

CUresult CudaDevice::reference_find(const ModuleRef& module, const std::string& name, bool surface) {
  if (!has_references(*driver_)) return CUDA_ERROR_NOT_SUPPORTED;
  if (const CUresult result = enter(as(module).context)) return result;
  CUtexref texture_reference = nullptr;
  CUsurfref surface_reference = nullptr;
  return check(surface ? driver_->cuModuleGetSurfRef(&surface_reference, as(module).handle, name.c_str())
                       : driver_->cuModuleGetTexRef(&texture_reference, as(module).handle, name.c_str()));
}

// The object that is made beside it keeps the array, and refuses what the driver would find out at a launch.
CUresult CudaDevice::texture_bind(const ModuleRef& module, const std::string& name, const vgpu_texture& asked,
                                  const std::shared_ptr<Object>& object, TextureRef* texture) {
  if (!has_references(*driver_)) return CUDA_ERROR_NOT_SUPPORTED;
  if (const CUresult result = enter(as(module).context)) return result;
  CUtexref reference = nullptr;
  uint64_t value = 0;
  CUresult result = check(driver_->cuModuleGetTexRef(&reference, as(module).handle, name.c_str()));
  if (result != CUDA_SUCCESS) return result;
  result = texture_create(as(module).context, asked, object, texture, &value);
  if (result != CUDA_SUCCESS) return result;
  return check(Steps()
                   .then([&] { return set_sampler(*driver_, reference, asked.sampler); })
                   .then([&] { return set_resource(*driver_, reference, asked, object); })
                   .result());
}

CUresult CudaDevice::surface_bind(const ModuleRef& module, const std::string& name, const ArrayRef& array,
                                  SurfaceRef* surface) {
  if (!has_references(*driver_)) return CUDA_ERROR_NOT_SUPPORTED;
  if (const CUresult result = enter(as(module).context)) return result;
  CUsurfref reference = nullptr;
  uint64_t value = 0;
  CUresult result = check(driver_->cuModuleGetSurfRef(&reference, as(module).handle, name.c_str()));
  if (result != CUDA_SUCCESS) return result;
  result = surface_create(as(module).context, array, surface, &value);
  return result == CUDA_SUCCESS ? check(driver_->cuSurfRefSetArray(reference, as(array).handle, 0)) : result;
}

}  // namespace bandsaw::cuda
