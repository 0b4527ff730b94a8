// Arrays, textures, surfaces.
#include "backend/device/given.h"
#include "backend/device/soft/array.h"
#include "backend/device/soft/soft_device.h"
#include "guest-driver/uapi/vgpu_control.h"
#include "memory/base/log.h"

namespace bandsaw::soft {
namespace {

// A texture or a surface: kernels that were queued before it is destroyed still find it. What it reads lives as long.
template <typename Base>
class SoftHandle final : public Base {
 public:
  SoftHandle(SoftContextRef in, uint64_t number_, std::shared_ptr<Object> of)
      : context(std::move(in)), number(number_), object_(std::move(of)) {}
  ~SoftHandle() override { remove(); }
  void remove() { context->textures.remove(number); }  // later calls do nothing
  const SoftContextRef context;
  const uint64_t number;

 private:
  const std::shared_ptr<Object> object_;
};
using SoftTexture = SoftHandle<Texture>;
using SoftSurface = SoftHandle<Surface>;

CUresult refused(const char* what, CUresult result, const std::string& why) {
  log::error("{}: {}", what, why);
  return result;
}

}  // namespace

CUresult SoftDevice::array_memory(const vgpu_array& asked, std::shared_ptr<ArrayMemory>* memory) {
  ArrayLayout layout;
  std::string why;
  if (const CUresult result = lay_out(asked, &layout, &why)) return refused("array", result, why);
  return with_room([&] { return ArrayMemory::make(memory_, layout, memory); });
}

CUresult SoftDevice::array_create(const ContextRef& context, const vgpu_array& asked, ArrayRef* array,
                                  vgpu_array* made) {
  if (const CUresult error = scheduler_.error()) return error;
  if (asked.levels != 0) return CUDA_ERROR_INVALID_VALUE;
  ArrayMemoryRef memory;
  if (const CUresult result = array_memory(asked, &memory)) return result;
  *made = asked;
  *array = std::make_shared<SoftArray>(as(context), std::move(memory), 0, false, asked);
  return CUDA_SUCCESS;
}

CUresult SoftDevice::array_plane(const ArrayRef&, uint32_t, ArrayRef*, vgpu_array*) {
  return refused("array", CUDA_ERROR_INVALID_VALUE, "only formats of several planes have planes");
}

void SoftDevice::array_destroy(const ArrayRef& array, Done done) {
  if (const CUresult error = scheduler_.error()) return done(error);
  if (as(array).is_part) return done(CUDA_ERROR_INVALID_HANDLE);
  free_when_idle({as(array).context}, [memory = as(array).memory] { return memory->release(); }, std::move(done));
}

CUresult SoftDevice::mipmap_create(const ContextRef& context, const vgpu_array& asked, MipmapRef* mipmap) {
  if (const CUresult error = scheduler_.error()) return error;
  if (asked.levels == 0) return CUDA_ERROR_INVALID_VALUE;
  ArrayMemoryRef memory;
  if (const CUresult result = array_memory(asked, &memory)) return result;
  *mipmap = std::make_shared<SoftMipmap>(as(context), std::move(memory), asked);
  return CUDA_SUCCESS;
}

CUresult SoftDevice::mipmap_level(const MipmapRef& mipmap, uint32_t level, ArrayRef* array, vgpu_array* made) {
  if (const CUresult error = scheduler_.error()) return error;
  const SoftMipmap& whole = as(mipmap);
  if (level >= whole.is.levels) return CUDA_ERROR_INVALID_VALUE;
  *made = level_of(whole.is, level);
  *array = std::make_shared<SoftArray>(whole.context, whole.memory, level, true, *made);
  return CUDA_SUCCESS;
}

void SoftDevice::mipmap_destroy(const MipmapRef& mipmap, Done done) {
  if (const CUresult error = scheduler_.error()) return done(error);
  free_when_idle({as(mipmap).context}, [memory = as(mipmap).memory] { return memory->release(); }, std::move(done));
}

// Linear memory must be the guest's all along its length; kernels' accesses to host memory are checked one by one.
CUresult SoftDevice::linear_state(const vgpu_resource& resource, TextureState* state, std::string* why) {
  TexelFormat format;
  if (const CUresult result = texel_format(resource.format, resource.channels, &format)) {
    *why = "format";
    return result;
  }
  set_texels(format, state);
  const bool rows = resource.type == CU_RESOURCE_TYPE_PITCH2D;
  const uint64_t texel = format.bytes(), row = rows ? resource.width * texel : resource.bytes / texel * texel;
  *why = "the size or the pitch";
  if (rows && (resource.width == 0 || resource.width > kArrayWidth2d || resource.height == 0 ||
               resource.height > kArrayHeight2d || resource.pitch < row || resource.pitch % texel ||
               resource.pitch > kLinearPitch)) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  if (!rows && (row == 0 || row / texel > kLinearTexels)) return CUDA_ERROR_INVALID_VALUE;
  const uint64_t bytes = rows ? resource.pitch * (resource.height - 1) + row : row;
  void* pointer = nullptr;
  *why = "the address: not aligned, or not device memory";
  if (resource.address % texel || resolve(resource.address, bytes, &pointer)) return CUDA_ERROR_INVALID_VALUE;
  TextureLevel& level = state->levels[0];
  level.base = resource.address;
  level.width = static_cast<uint32_t>(row / texel);
  level.height = rows ? static_cast<uint32_t>(resource.height) : 1;
  level.pitch = rows ? resource.pitch : row;
  level.plane = bytes;
  state->linear_memory = !rows;
  state->in_window = resource.address - config_.window_base < VGPU_WINDOW_BYTES;
  return CUDA_SUCCESS;
}

CUresult SoftDevice::array_state(const vgpu_texture& asked, const std::shared_ptr<Object>& object, TextureState* state,
                                 std::string* why) {
  const bool mipmapped = asked.resource.type == CU_RESOURCE_TYPE_MIPMAPPED_ARRAY;
  const ArrayMemory* memory = nullptr;
  if (mipmapped) {
    const auto& mipmap = static_cast<const SoftMipmap&>(*object);
    memory = mipmap.memory.get();
    set_levels(memory->layout, 0, mipmap.is.levels - 1, mipmap.is.flags, state);
    state->mipmapped = 1;
  } else {
    const auto& array = static_cast<const SoftArray&>(*object);
    memory = array.memory.get();
    set_levels(memory->layout, array.level, array.level, array.is.flags, state);
  }
  *why = "the array was destroyed";
  if (!memory->alive()) return CUDA_ERROR_INVALID_HANDLE;
  TexelFormat format = memory->layout.format;
  if (asked.view.present) {
    if (const CUresult result = set_view(asked.view, memory->layout.format, state, &format, why)) return result;
  }
  set_texels(format, state);
  return CUDA_SUCCESS;
}

CUresult SoftDevice::enter_texture(SoftContext& context, const TextureState& state, uint64_t* handle) {
  const auto add = [&]() -> CUresult {
    std::lock_guard lock(context.textures_mutex);
    Given* const given = Given::current();
    const uint64_t before = given && given->again() ? given->value() : 0;
    const uint64_t more = context.textures.growth(before);
    if (more && !context.textures_share.resize(context.textures_share.bytes() + more)) return CUDA_ERROR_OUT_OF_MEMORY;
    *handle = before != 0 ? context.textures.add_at(before, state) : context.textures.add(state);
    if (given) given->set_value(*handle);
    return *handle ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY;
  };
  return with_room(add);
}

CUresult SoftDevice::texture_create(const ContextRef& context, const vgpu_texture& asked,
                                    const std::shared_ptr<Object>& object, TextureRef* texture, uint64_t* value) {
  if (const CUresult error = scheduler_.error()) return error;
  TextureState state;
  std::string why;
  CUresult result = object               ? array_state(asked, object, &state, &why)
                    : asked.view.present ? CUDA_ERROR_INVALID_VALUE
                                         : linear_state(asked.resource, &state, &why);
  if (result == CUDA_SUCCESS) result = set_sampler(asked.sampler, &state, &why);
  if (result != CUDA_SUCCESS) return refused("texture", result, why.empty() ? "linear memory has no views" : why);
  if ((result = enter_texture(*as(context), state, value))) return result;
  *texture = std::make_shared<SoftTexture>(as(context), *value, object);
  return CUDA_SUCCESS;
}

CUresult SoftDevice::texture_destroy(const TextureRef& texture) {
  if (const CUresult error = scheduler_.error()) return error;
  const auto gone = std::static_pointer_cast<SoftTexture>(texture);
  free_when_idle({gone->context}, [gone] { return gone->remove(), CUDA_SUCCESS; }, [](CUresult) {});
  return CUDA_SUCCESS;
}

CUresult SoftDevice::texture_linear_width(uint32_t format, uint32_t channels, uint64_t* elements) {
  TexelFormat found;
  if (const CUresult result = texel_format(format, channels, &found)) return result;
  *elements = kLinearTexels;
  return CUDA_SUCCESS;
}

// Arrays without CUDA_ARRAY3D_SURFACE_LDST are taken too, as a GPU's driver does.
CUresult SoftDevice::surface_create(const ContextRef& context, const ArrayRef& array, SurfaceRef* surface,
                                    uint64_t* value) {
  if (const CUresult error = scheduler_.error()) return error;
  const SoftArray& of = as(array);
  if (!of.memory->alive()) return CUDA_ERROR_INVALID_HANDLE;
  TextureState state;
  set_levels(of.memory->layout, of.level, of.level, of.is.flags, &state);
  set_texels(of.memory->layout.format, &state);
  state.surface = 1;
  if (const CUresult result = enter_texture(*as(context), state, value)) return result;
  *surface = std::make_shared<SoftSurface>(as(context), *value, array);
  return CUDA_SUCCESS;
}

CUresult SoftDevice::surface_destroy(const SurfaceRef& surface) {
  if (const CUresult error = scheduler_.error()) return error;
  const auto gone = std::static_pointer_cast<SoftSurface>(surface);
  free_when_idle({gone->context}, [gone] { return gone->remove(), CUDA_SUCCESS; }, [](CUresult) {});
  return CUDA_SUCCESS;
}

}  // namespace bandsaw::soft
