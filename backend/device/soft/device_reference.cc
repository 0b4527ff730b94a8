// Texture and surface references: variables of a module that hold the number of a texture or surface, as kernels take
// it.
#include <algorithm>

#include "backend/device/soft/soft_device.h"

namespace bandsaw::soft {

// The variable of such a reference, in the module's context.
CUresult SoftDevice::reference_cell(const ModuleRef& module, const std::string& name, bool surface, uint64_t** cell) {
  if (const CUresult error = scheduler_.error()) return error;
  const auto& of = static_cast<SoftModule&>(*module);
  if (!of.loaded) return CUDA_ERROR_INVALID_HANDLE;
  const auto wanted = surface ? Variable::Reference::kSurface : Variable::Reference::kTexture;
  const auto& variables = of.image->program().variables();
  const auto found = std::find_if(variables.begin(), variables.end(), [&](const Variable& variable) {
    return variable.name == name && variable.reference == wanted;
  });
  uint64_t address = 0, bytes = 0;
  if (found == variables.end()) return CUDA_ERROR_NOT_FOUND;
  if (const CUresult result = module_global(module, name, &address, &bytes)) return result;
  if (bytes < sizeof(uint64_t)) return CUDA_ERROR_NOT_FOUND;
  *cell = reinterpret_cast<uint64_t*>(address);
  return CUDA_SUCCESS;
}

CUresult SoftDevice::reference_find(const ModuleRef& module, const std::string& name, bool surface) {
  uint64_t* cell = nullptr;
  return reference_cell(module, name, surface, &cell);
}

CUresult SoftDevice::texture_bind(const ModuleRef& module, const std::string& name, const vgpu_texture& asked,
                                  const std::shared_ptr<Object>& object, TextureRef* texture) {
  uint64_t *cell = nullptr, value = 0;
  if (const CUresult result = reference_cell(module, name, false, &cell)) return result;
  const SoftContextRef context = static_cast<SoftModule&>(*module).context.lock();
  if (!context) return CUDA_ERROR_CONTEXT_IS_DESTROYED;
  if (const CUresult result = texture_create(context, asked, object, texture, &value)) return result;
  __atomic_store_n(cell, value, __ATOMIC_RELEASE);
  return CUDA_SUCCESS;
}

CUresult SoftDevice::surface_bind(const ModuleRef& module, const std::string& name, const ArrayRef& array,
                                  SurfaceRef* surface) {
  uint64_t *cell = nullptr, value = 0;
  if (const CUresult result = reference_cell(module, name, true, &cell)) return result;
  const SoftContextRef context = static_cast<SoftModule&>(*module).context.lock();
  if (!context) return CUDA_ERROR_CONTEXT_IS_DESTROYED;
  if (const CUresult result = surface_create(context, array, surface, &value)) return result;
  __atomic_store_n(cell, value, __ATOMIC_RELEASE);
  return CUDA_SUCCESS;
}

}  // namespace bandsaw::soft
