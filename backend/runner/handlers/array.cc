// Arrays, textures, surfaces.
#include "backend/runner/handlers/handlers.h"

namespace bandsaw::runner {

using wire::HandleKind;

CUresult Handlers::array_create(C call, const vgpu_array& asked, uint64_t* array, vgpu_array* made) {
  ArrayRef object;
  const CUresult result = device_.array_create(call.context, asked, &object, made);
  return result == CUDA_SUCCESS ? give(HandleKind::kArray, std::move(object), call.context.handle, array, true)
                                : result;
}

// First the handle, so that no new work comes; whoever loses a race for it has nothing to destroy.
void Handlers::array_destroy(C, R<Array> array, wire::Answer answer) {
  if (!table().remove(HandleKind::kArray, array.handle)) return answer(CUDA_ERROR_INVALID_HANDLE);
  device_.array_destroy(array, answer);
}

CUresult Handlers::array_plane(C, R<Array> array, uint32_t plane, uint64_t* plane_array, vgpu_array* made) {
  ArrayRef object;
  const CUresult result = device_.array_plane(array, plane, &object, made);
  return result == CUDA_SUCCESS ? give(HandleKind::kArray, std::move(object), array.handle, plane_array, true) : result;
}

CUresult Handlers::mipmap_create(C call, const vgpu_array& asked, uint64_t* mipmap) {
  MipmapRef object;
  const CUresult result = device_.mipmap_create(call.context, asked, &object);
  return result == CUDA_SUCCESS ? give(HandleKind::kMipmap, std::move(object), call.context.handle, mipmap) : result;
}

CUresult Handlers::mipmap_level(C, R<Mipmap> mipmap, uint32_t level, uint64_t* array, vgpu_array* made) {
  ArrayRef object;
  const CUresult result = device_.mipmap_level(mipmap, level, &object, made);
  return result == CUDA_SUCCESS ? give(HandleKind::kArray, std::move(object), mipmap.handle, array, true) : result;
}

void Handlers::mipmap_destroy(C, R<Mipmap> mipmap, wire::Answer answer) {
  if (!table().remove(HandleKind::kMipmap, mipmap.handle)) return answer(CUDA_ERROR_INVALID_HANDLE);
  device_.mipmap_destroy(mipmap, answer);
}

// The array or mipmapped array that a resource names; null for memory.
CUresult Handlers::resource_object(const vgpu_resource& resource, ObjectRef* object) {
  switch (resource.type) {
    case CU_RESOURCE_TYPE_ARRAY:
      *object = table().find(HandleKind::kArray, resource.object);
      break;
    case CU_RESOURCE_TYPE_MIPMAPPED_ARRAY:
      *object = table().find(HandleKind::kMipmap, resource.object);
      break;
    case CU_RESOURCE_TYPE_LINEAR:
    case CU_RESOURCE_TYPE_PITCH2D:
      return CUDA_SUCCESS;
    default:
      return CUDA_ERROR_INVALID_VALUE;
  }
  return *object ? CUDA_SUCCESS : CUDA_ERROR_INVALID_HANDLE;
}

CUresult Handlers::texture_create(C call, const vgpu_texture& asked, uint64_t* texture, uint64_t* value) {
  ObjectRef from;
  if (const CUresult result = resource_object(asked.resource, &from)) return result;
  TextureRef object;
  const CUresult result = device_.texture_create(call.context, asked, from, &object, value);
  return result == CUDA_SUCCESS ? give(HandleKind::kTexture, std::move(object), call.context.handle, texture) : result;
}

CUresult Handlers::texture_destroy(C, R<Texture> texture) {
  if (!table().remove(HandleKind::kTexture, texture.handle)) return CUDA_ERROR_INVALID_HANDLE;
  return device_.texture_destroy(texture);
}

CUresult Handlers::texture_linear_width(C, uint32_t format, uint32_t channels, uint64_t* elements) {
  return device_.texture_linear_width(format, channels, elements);
}

CUresult Handlers::surface_create(C call, R<Array> array, uint64_t* surface, uint64_t* value) {
  SurfaceRef object;
  const CUresult result = device_.surface_create(call.context, array, &object, value);
  return result == CUDA_SUCCESS ? give(HandleKind::kSurface, std::move(object), call.context.handle, surface) : result;
}

CUresult Handlers::surface_destroy(C, R<Surface> surface) {
  if (!table().remove(HandleKind::kSurface, surface.handle)) return CUDA_ERROR_INVALID_HANDLE;
  return device_.surface_destroy(surface);
}

CUresult Handlers::texture_bind(C call, R<Module> module, const vgpu_texture& asked, std::string_view name,
                                uint64_t* texture) {
  ObjectRef from;
  if (const CUresult result = resource_object(asked.resource, &from)) return result;
  TextureRef object;
  const CUresult result = device_.texture_bind(module, std::string(name), asked, from, &object);
  return result == CUDA_SUCCESS ? give(HandleKind::kTexture, std::move(object), call.context.handle, texture) : result;
}

CUresult Handlers::surface_bind(C call, R<Module> module, R<Array> array, std::string_view name, uint64_t* surface) {
  SurfaceRef object;
  const CUresult result = device_.surface_bind(module, std::string(name), array, &object);
  return result == CUDA_SUCCESS ? give(HandleKind::kSurface, std::move(object), call.context.handle, surface) : result;
}

CUresult Handlers::reference_find(C, R<Module> module, uint32_t surface, std::string_view name) {
  return device_.reference_find(module, std::string(name), surface != 0);
}

}  // namespace bandsaw::runner
