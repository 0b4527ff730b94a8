// Texture and surface references: variables of a module that a program binds to memory or an array, before there were
// texture objects. All that a program sets is kept here; the device hears of it when something is bound.
#include <algorithm>
#include <iterator>
#include <map>
#include <memory>
#include <mutex>
#include <utility>

#include "guest-driver/libcuda/api/array.h"
#include "guest-driver/libcuda/api/function.h"
#include "guest-driver/libcuda/api/handles.h"
#include "guest-driver/libcuda/api/library.h"
#include "guest-driver/libcuda/api/texture.h"
#include "guest-driver/libcuda/core/call.h"
#include "guest-driver/libcuda/core/device.h"
#include "guest-driver/libcuda/wire_client.h"

namespace bandsaw::libcuda {
namespace {

struct ModuleReference {
  uint64_t module = 0, context = 0;  // 0: made by the program, and of no module
  bool surface = false;
  std::string name;
  bool has_resource = false;
  CUDA_RESOURCE_DESC resource{};
  CUDA_TEXTURE_DESC sampler{};
  CUarray_format format = CU_AD_FORMAT_FLOAT;
  int channels = 1;
  uint64_t bound = 0;  // the texture or surface that the device made of it
};

// All references of the process. A handle is the reference's address.
class ModuleReferences {
 public:
  static ModuleReferences& get() {
    static ModuleReferences& all = *[] {
      on_context_ended([](Context* context) { get().forget_context(context->handle); });
      return new ModuleReferences;
    }();
    return all;
  }
  std::mutex mutex;  // guards the references too

  ModuleReference* add(ModuleReference made) {
    auto kept = std::make_unique<ModuleReference>(std::move(made));
    ModuleReference* const at = kept.get();
    known_[at] = std::move(kept);
    return at;
  }
  ModuleReference* find(const void* handle, bool surface) {
    const auto found = known_.find(handle);
    return found != known_.end() && found->second->surface == surface ? found->second.get() : nullptr;
  }
  ModuleReference* of_module(uint64_t module, const char* name, bool surface) {
    for (const auto& [handle, reference] : known_)
      if (reference->module == module && reference->surface == surface && reference->name == name)
        return reference.get();
    return nullptr;
  }
  void remove(const void* handle) { known_.erase(handle); }
  void forget(uint64_t module) {
    std::erase_if(known_, [module](const auto& entry) { return entry.second->module == module; });
  }

 private:
  void forget_context(uint64_t context) {
    std::lock_guard lock(mutex);
    std::erase_if(known_, [context](const auto& entry) { return entry.second->context == context; });
  }
  std::map<const void*, std::unique_ptr<ModuleReference>> known_;
};

// Tells the device what the reference reads from now on. Launches before it read what was bound then: they end first.
CUresult bind_reference(Call& call, ModuleReference* reference) {
  if (!reference->has_resource || !reference->module) return CUDA_SUCCESS;
  const uint64_t old = reference->bound;
  if (old)
    if (const CUresult result = wire::settle(call)) return result;
  uint64_t made = 0;
  if (reference->surface) {
    const uint64_t array = to_wire(reference->resource.res.array.hArray);
    if (const CUresult result = wire::surface_bind(call, reference->module, array, reference->name, &made))
      return result;
    reference->bound = made;
    return old ? wire::surface_destroy(call, old) : CUDA_SUCCESS;
  }
  vgpu_texture asked{};
  if (const CUresult result = wire_resource(reference->resource, &asked.resource)) return result;
  asked.sampler = wire_sampler(reference->sampler);
  if (const CUresult result = wire::texture_bind(call, reference->module, asked, reference->name, &made)) return result;
  reference->bound = made;
  return old ? wire::texture_destroy(call, old) : CUDA_SUCCESS;
}

// Nothing is bound any more: a launch that reads the reference fails.
void unbind_reference(Call& call, ModuleReference* reference) {
  reference->has_resource = false;
  const uint64_t old = std::exchange(reference->bound, 0);
  if (!old) return;
  if (reference->surface)
    wire::surface_destroy(call, old);
  else
    wire::texture_destroy(call, old);
}

// Changes a reference and binds it anew. A resource that cannot be bound leaves it as it was. How it is read may be
// changed at any time, also when what was bound has been freed: then nothing is bound.
template <class Change>
CUresult change_reference(const void* handle, bool surface, Change&& apply, bool of_resource = false) {
  Call call;
  if (!call.require_context()) return call.status();
  std::lock_guard lock(ModuleReferences::get().mutex);
  ModuleReference* const reference = ModuleReferences::get().find(handle, surface);
  if (!reference) return CUDA_ERROR_INVALID_VALUE;
  ModuleReference next = *reference;
  if (const CUresult result = apply(&next)) return result;
  const CUresult result = bind_reference(call, &next);
  if (result != CUDA_SUCCESS && of_resource) return result;
  if (result != CUDA_SUCCESS) unbind_reference(call, &next);
  *reference = next;
  return CUDA_SUCCESS;
}

template <class Read>
CUresult read_reference(const void* handle, bool complete, Read&& read, bool surface = false) {
  Call call;
  if (!call.require_context()) return call.status();
  std::lock_guard lock(ModuleReferences::get().mutex);
  const ModuleReference* const reference = ModuleReferences::get().find(handle, surface);
  return reference && complete ? read(*reference) : CUDA_ERROR_INVALID_VALUE;
}

CUresult find_reference(CUmodule handle, const char* name, bool surface, void** out) {
  Call call;
  if (!call.require_context()) return call.status();
  if (!out || !name) return CUDA_ERROR_INVALID_VALUE;
  const CodeRecord* const module = find_module(to_wire(handle));
  // A library's module may be of several contexts at once; only machine code of toolkits before 12 has references
  // there.
  if (!module) return find_library(to_wire(handle)) ? CUDA_ERROR_NOT_FOUND : CUDA_ERROR_INVALID_HANDLE;
  std::lock_guard lock(ModuleReferences::get().mutex);
  ModuleReference* reference = ModuleReferences::get().of_module(module->handle, name, surface);
  if (!reference) {
    if (const CUresult result = wire::reference_find(call, module->handle, surface, name)) return result;
    ModuleReference made;
    made.module = module->handle;
    made.context = module->context;
    made.surface = surface;
    made.name = name;
    reference = ModuleReferences::get().add(std::move(made));
  }
  *out = reference;
  return CUDA_SUCCESS;
}

void use_resource(ModuleReference* reference, const CUDA_RESOURCE_DESC& resource) {
  reference->resource = resource;
  reference->has_resource = true;
}

void use_array(ModuleReference* reference, CUarray array) {
  CUDA_RESOURCE_DESC resource{};
  resource.resType = CU_RESOURCE_TYPE_ARRAY;
  resource.res.array.hArray = array;
  use_resource(reference, resource);
}

CUresult set_filter(CUtexref reference, CUfilter_mode CUDA_TEXTURE_DESC::* which, CUfilter_mode mode) {
  return change_reference(reference, false, [&](ModuleReference* next) {
    if (mode != CU_TR_FILTER_MODE_POINT && mode != CU_TR_FILTER_MODE_LINEAR) return CUDA_ERROR_INVALID_VALUE;
    next->sampler.*which = mode;
    return CUDA_SUCCESS;
  });
}

CUresult set_rows(CUtexref reference, const CUDA_ARRAY_DESCRIPTOR* rows, CUdeviceptr address, size_t pitch) {
  return change_reference(
      reference, false,
      [&](ModuleReference* next) {
        if (!rows) return CUDA_ERROR_INVALID_VALUE;
        next->format = rows->Format;
        next->channels = static_cast<int>(rows->NumChannels);
        CUDA_RESOURCE_DESC resource{};
        resource.resType = CU_RESOURCE_TYPE_PITCH2D;
        resource.res.pitch2D = {address, rows->Format, rows->NumChannels, rows->Width, rows->Height, pitch};
        use_resource(next, resource);
        return CUDA_SUCCESS;
      },
      true);
}

}  // namespace

void forget_references(uint64_t module) {
  std::lock_guard lock(ModuleReferences::get().mutex);
  ModuleReferences::get().forget(module);
}

}  // namespace bandsaw::libcuda

using namespace bandsaw::libcuda;  // NOLINT: entry points below

extern "C" {

CUresult cuModuleGetTexRef(CUtexref* reference, CUmodule module, const char* name) {
  return find_reference(module, name, false, reinterpret_cast<void**>(reference));
}

CUresult cuModuleGetSurfRef(CUsurfref* reference, CUmodule module, const char* name) {
  return find_reference(module, name, true, reinterpret_cast<void**>(reference));
}

CUresult cuTexRefCreate(CUtexref* reference) {
  Call call;
  if (!call.require_context()) return call.status();
  if (!reference) return CUDA_ERROR_INVALID_VALUE;
  std::lock_guard lock(ModuleReferences::get().mutex);
  ModuleReference made;
  made.context = call.context();
  *reference = reinterpret_cast<CUtexref>(ModuleReferences::get().add(std::move(made)));
  return CUDA_SUCCESS;
}

CUresult cuTexRefDestroy(CUtexref reference) {
  Call call;
  if (!call.require_context()) return call.status();
  std::lock_guard lock(ModuleReferences::get().mutex);
  const ModuleReference* const known = ModuleReferences::get().find(reference, false);
  if (!known || known->module) return CUDA_ERROR_INVALID_VALUE;  // a module's goes with it
  ModuleReferences::get().remove(reference);
  return CUDA_SUCCESS;
}

CUresult cuTexRefSetArray(CUtexref reference, CUarray array, unsigned flags) {
  return change_reference(
      reference, false,
      [&](ModuleReference* next) {
        const auto known = arrays().find(array);
        if (!known) return CUDA_ERROR_INVALID_HANDLE;
        if (flags != CU_TRSA_OVERRIDE_FORMAT) return CUDA_ERROR_INVALID_VALUE;
        next->format = static_cast<CUarray_format>(known->is.format);
        next->channels = static_cast<int>(known->is.channels);
        use_array(next, array);
        return CUDA_SUCCESS;
      },
      true);
}

CUresult cuTexRefSetMipmappedArray(CUtexref reference, CUmipmappedArray array, unsigned flags) {
  return change_reference(
      reference, false,
      [&](ModuleReference* next) {
        if (!mipmaps().find(array)) return CUDA_ERROR_INVALID_HANDLE;
        if (flags != CU_TRSA_OVERRIDE_FORMAT) return CUDA_ERROR_INVALID_VALUE;
        CUDA_RESOURCE_DESC resource{};
        resource.resType = CU_RESOURCE_TYPE_MIPMAPPED_ARRAY;
        resource.res.mipmap.hMipmappedArray = array;
        use_resource(next, resource);
        return CUDA_SUCCESS;
      },
      true);
}

CUresult cuTexRefSetAddress_v2(size_t* offset, CUtexref reference, CUdeviceptr address, size_t bytes) {
  const auto align = static_cast<uint64_t>(device_attribute(CU_DEVICE_ATTRIBUTE_TEXTURE_ALIGNMENT));
  const uint64_t beyond = align ? address % align : 0;
  const CUresult result = change_reference(
      reference, false,
      [&](ModuleReference* next) {
        if (beyond && !offset) return CUDA_ERROR_INVALID_VALUE;
        CUDA_RESOURCE_DESC resource{};
        resource.resType = CU_RESOURCE_TYPE_LINEAR;
        resource.res.linear = {address - beyond, next->format, static_cast<unsigned>(next->channels), bytes + beyond};
        use_resource(next, resource);
        return CUDA_SUCCESS;
      },
      true);
  if (result == CUDA_SUCCESS && offset) *offset = beyond;
  return result;
}

CUresult cuTexRefSetAddress2D_v3(CUtexref reference, const CUDA_ARRAY_DESCRIPTOR* rows, CUdeviceptr address,
                                 size_t pitch) {
  return set_rows(reference, rows, address, pitch);
}

CUresult cuTexRefSetAddress2D_v2(CUtexref reference, const CUDA_ARRAY_DESCRIPTOR* rows, CUdeviceptr address,
                                 size_t pitch) {
  return set_rows(reference, rows, address, pitch);
}

// Of linear memory; arrays have a format of their own.
CUresult cuTexRefSetFormat(CUtexref reference, CUarray_format format, int channels) {
  return change_reference(reference, false, [&](ModuleReference* next) {
    if (channels != 1 && channels != 2 && channels != 4) return CUDA_ERROR_INVALID_VALUE;
    next->format = format;
    next->channels = channels;
    auto& linear = next->resource.res.linear;
    if (next->has_resource && next->resource.resType == CU_RESOURCE_TYPE_LINEAR) {
      linear.format = format;
      linear.numChannels = static_cast<unsigned>(channels);
    }
    return CUDA_SUCCESS;
  });
}

CUresult cuTexRefSetAddressMode(CUtexref reference, int axis, CUaddress_mode mode) {
  return change_reference(reference, false, [&](ModuleReference* next) {
    if (axis < 0 || axis > 2 || mode < CU_TR_ADDRESS_MODE_WRAP || mode > CU_TR_ADDRESS_MODE_BORDER)
      return CUDA_ERROR_INVALID_VALUE;
    next->sampler.addressMode[axis] = mode;
    return CUDA_SUCCESS;
  });
}

CUresult cuTexRefSetFilterMode(CUtexref reference, CUfilter_mode mode) {
  return set_filter(reference, &CUDA_TEXTURE_DESC::filterMode, mode);
}

CUresult cuTexRefSetMipmapFilterMode(CUtexref reference, CUfilter_mode mode) {
  return set_filter(reference, &CUDA_TEXTURE_DESC::mipmapFilterMode, mode);
}

CUresult cuTexRefSetMipmapLevelBias(CUtexref reference, float bias) {
  return change_reference(reference, false, [&](ModuleReference* next) {
    next->sampler.mipmapLevelBias = bias;
    return CUDA_SUCCESS;
  });
}

CUresult cuTexRefSetMipmapLevelClamp(CUtexref reference, float least, float most) {
  return change_reference(reference, false, [&](ModuleReference* next) {
    next->sampler.minMipmapLevelClamp = least;
    next->sampler.maxMipmapLevelClamp = most;
    return CUDA_SUCCESS;
  });
}

CUresult cuTexRefSetMaxAnisotropy(CUtexref reference, unsigned most) {
  return change_reference(reference, false, [&](ModuleReference* next) {
    next->sampler.maxAnisotropy = most;
    return CUDA_SUCCESS;
  });
}

CUresult cuTexRefSetBorderColor(CUtexref reference, float* color) {
  return change_reference(reference, false, [&](ModuleReference* next) {
    if (!color) return CUDA_ERROR_INVALID_VALUE;
    std::copy_n(color, std::size(next->sampler.borderColor), next->sampler.borderColor);
    return CUDA_SUCCESS;
  });
}

CUresult cuTexRefSetFlags(CUtexref reference, unsigned flags) {
  return change_reference(reference, false, [&](ModuleReference* next) {
    next->sampler.flags = flags;
    return CUDA_SUCCESS;
  });
}

CUresult cuTexRefGetAddress_v2(CUdeviceptr* address, CUtexref reference) {
  return read_reference(reference, address, [&](const ModuleReference& known) {
    const bool rows = known.resource.resType == CU_RESOURCE_TYPE_PITCH2D;
    if (!known.has_resource || (!rows && known.resource.resType != CU_RESOURCE_TYPE_LINEAR))
      return CUDA_ERROR_INVALID_VALUE;
    *address = rows ? known.resource.res.pitch2D.devPtr : known.resource.res.linear.devPtr;
    return CUDA_SUCCESS;
  });
}

CUresult cuTexRefGetArray(CUarray* array, CUtexref reference) {
  return read_reference(reference, array, [&](const ModuleReference& known) {
    if (!known.has_resource || known.resource.resType != CU_RESOURCE_TYPE_ARRAY) return CUDA_ERROR_INVALID_VALUE;
    *array = known.resource.res.array.hArray;
    return CUDA_SUCCESS;
  });
}

CUresult cuTexRefGetMipmappedArray(CUmipmappedArray* array, CUtexref reference) {
  return read_reference(reference, array, [&](const ModuleReference& known) {
    if (!known.has_resource || known.resource.resType != CU_RESOURCE_TYPE_MIPMAPPED_ARRAY)
      return CUDA_ERROR_INVALID_VALUE;
    *array = known.resource.res.mipmap.hMipmappedArray;
    return CUDA_SUCCESS;
  });
}

CUresult cuTexRefGetAddressMode(CUaddress_mode* mode, CUtexref reference, int axis) {
  return read_reference(reference, mode && axis >= 0 && axis < 3, [&](const ModuleReference& known) {
    *mode = known.sampler.addressMode[axis];
    return CUDA_SUCCESS;
  });
}

CUresult cuTexRefGetFilterMode(CUfilter_mode* mode, CUtexref reference) {
  return read_reference(reference, mode,
                        [&](const ModuleReference& known) { return *mode = known.sampler.filterMode, CUDA_SUCCESS; });
}

CUresult cuTexRefGetFormat(CUarray_format* format, int* channels, CUtexref reference) {
  return read_reference(reference, format || channels, [&](const ModuleReference& known) {
    if (format) *format = known.format;
    if (channels) *channels = known.channels;
    return CUDA_SUCCESS;
  });
}

CUresult cuTexRefGetMipmapFilterMode(CUfilter_mode* mode, CUtexref reference) {
  return read_reference(reference, mode, [&](const ModuleReference& known) {
    return *mode = known.sampler.mipmapFilterMode, CUDA_SUCCESS;
  });
}

CUresult cuTexRefGetMipmapLevelBias(float* bias, CUtexref reference) {
  return read_reference(reference, bias, [&](const ModuleReference& known) {
    return *bias = known.sampler.mipmapLevelBias, CUDA_SUCCESS;
  });
}

CUresult cuTexRefGetMipmapLevelClamp(float* least, float* most, CUtexref reference) {
  return read_reference(reference, least && most, [&](const ModuleReference& known) {
    *least = known.sampler.minMipmapLevelClamp;
    *most = known.sampler.maxMipmapLevelClamp;
    return CUDA_SUCCESS;
  });
}

CUresult cuTexRefGetMaxAnisotropy(int* most, CUtexref reference) {
  return read_reference(reference, most, [&](const ModuleReference& known) {
    *most = static_cast<int>(known.sampler.maxAnisotropy);
    return CUDA_SUCCESS;
  });
}

CUresult cuTexRefGetBorderColor(float* color, CUtexref reference) {
  return read_reference(reference, color, [&](const ModuleReference& known) {
    std::copy(std::begin(known.sampler.borderColor), std::end(known.sampler.borderColor), color);
    return CUDA_SUCCESS;
  });
}

CUresult cuTexRefGetFlags(unsigned* flags, CUtexref reference) {
  return read_reference(reference, flags,
                        [&](const ModuleReference& known) { return *flags = known.sampler.flags, CUDA_SUCCESS; });
}

// A kernel finds a module's reference by itself.
CUresult cuParamSetTexRef(CUfunction function, int unit, CUtexref reference) {
  if (!find_function(function)) return CUDA_ERROR_INVALID_HANDLE;
  if (unit != CU_PARAM_TR_DEFAULT) return CUDA_ERROR_INVALID_VALUE;
  return read_reference(reference, true, [](const ModuleReference&) { return CUDA_SUCCESS; });
}

CUresult cuSurfRefSetArray(CUsurfref reference, CUarray array, unsigned flags) {
  return change_reference(
      reference, true,
      [&](ModuleReference* next) {
        if (!arrays().find(array)) return CUDA_ERROR_INVALID_HANDLE;
        if (flags) return CUDA_ERROR_INVALID_VALUE;
        use_array(next, array);
        return CUDA_SUCCESS;
      },
      true);
}

CUresult cuSurfRefGetArray(CUarray* array, CUsurfref reference) {
  const auto read = [&](const ModuleReference& known) {
    if (!known.has_resource) return CUDA_ERROR_INVALID_VALUE;
    *array = known.resource.res.array.hArray;
    return CUDA_SUCCESS;
  };
  return read_reference(reference, array, read, true);
}

}  // extern "C"
