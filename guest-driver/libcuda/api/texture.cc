// Texture and surface objects. The program holds the number that kernels take, which is the device's own. This file
// finds the object's handle on the wire by that number, and what the object was made from.
#include "guest-driver/libcuda/api/texture.h"

#include <algorithm>
#include <iterator>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <set>

#include "guest-driver/libcuda/api/array.h"
#include "guest-driver/libcuda/api/handles.h"
#include "guest-driver/libcuda/core/call.h"
#include "guest-driver/libcuda/core/device.h"
#include "guest-driver/libcuda/wire_client.h"

namespace bandsaw::libcuda {
namespace {

struct TextureRecord {
  uint64_t handle = 0;
  CUDA_RESOURCE_DESC resource{};
  CUDA_TEXTURE_DESC sampler{};
  std::optional<CUDA_RESOURCE_VIEW_DESC> view;
};

struct SurfaceRecord {
  uint64_t handle = 0;
  CUDA_RESOURCE_DESC resource{};
};

// Destroyed ones that are remembered, of a process.
constexpr size_t kGoneMost = 1 << 16;

// By the context's handle and the number; each context counts its own. Thread-safe.
template <typename T>
class NumberTable {
 public:
  using Key = std::pair<uint64_t, uint64_t>;

  static NumberTable& get() {
    static NumberTable& table = *[] {
      on_context_ended([](Context* context) { get().forget_context(context->handle); });
      return new NumberTable;
    }();
    return table;
  }

  void put(Key key, T record) {
    std::lock_guard lock(mutex_);
    gone_.erase(key);
    records_[key] = std::move(record);
  }

  bool find(Key key, T* record) {
    std::lock_guard lock(mutex_);
    const auto found = records_.find(key);
    if (found == records_.end()) return false;
    *record = found->second;
    return true;
  }

  // Removes the entry and returns it: of two threads that destroy the same object only one gets it.
  bool take(Key key, T* record) {
    std::lock_guard lock(mutex_);
    auto found = records_.extract(key);
    if (found.empty()) return false;
    *record = std::move(found.mapped());
    if (gone_.size() >= kGoneMost) gone_.erase(gone_.begin());
    gone_.insert(key);
    return true;
  }

  bool is_gone(Key key) {
    std::lock_guard lock(mutex_);
    return gone_.contains(key);
  }

 private:
  void forget_context(uint64_t context) {
    std::lock_guard lock(mutex_);
    std::erase_if(records_, [context](const auto& entry) { return entry.first.first == context; });
    std::erase_if(gone_, [context](const Key& key) { return key.first == context; });
  }

  std::mutex mutex_;
  std::map<Key, T> records_;
  std::set<Key> gone_;
};
using Textures = NumberTable<TextureRecord>;
using Surfaces = NumberTable<SurfaceRecord>;

vgpu_view wire_view(const CUDA_RESOURCE_VIEW_DESC& asked) {
  vgpu_view view{};
  view.present = 1;
  view.format = asked.format;
  view.width = asked.width;
  view.height = asked.height;
  view.depth = asked.depth;
  view.first_level = asked.firstMipmapLevel;
  view.last_level = asked.lastMipmapLevel;
  view.first_layer = asked.firstLayer;
  view.last_layer = asked.lastLayer;
  return view;
}

template <typename Table, typename Record, typename Out, typename Read>
CUresult answer(uint64_t number, Out* out, Record record, Read read) {
  Call call;
  if (!call.require_context()) return call.status();
  if (!out) return CUDA_ERROR_INVALID_VALUE;
  return Table::get().find({call.context(), number}, &record) ? read(record, out) : CUDA_ERROR_INVALID_VALUE;
}

// COLMAP destroys each of its textures twice and asks for errors afterwards, so a driver that refuses would end it.
template <typename Table>
CUresult not_there(typename Table::Key key) {
  return Table::get().is_gone(key) ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

}  // namespace

CUresult wire_resource(const CUDA_RESOURCE_DESC& asked, vgpu_resource* resource) {
  if (asked.flags) return CUDA_ERROR_INVALID_VALUE;
  resource->type = asked.resType;
  switch (asked.resType) {
    case CU_RESOURCE_TYPE_ARRAY:
      resource->object = to_wire(asked.res.array.hArray);
      return arrays().find(resource->object) ? CUDA_SUCCESS : CUDA_ERROR_INVALID_HANDLE;
    case CU_RESOURCE_TYPE_MIPMAPPED_ARRAY:
      resource->object = to_wire(asked.res.mipmap.hMipmappedArray);
      return mipmaps().find(resource->object) ? CUDA_SUCCESS : CUDA_ERROR_INVALID_HANDLE;
    case CU_RESOURCE_TYPE_LINEAR:
      resource->address = asked.res.linear.devPtr;
      resource->format = asked.res.linear.format;
      resource->channels = asked.res.linear.numChannels;
      resource->bytes = asked.res.linear.sizeInBytes;
      return CUDA_SUCCESS;
    case CU_RESOURCE_TYPE_PITCH2D:
      resource->address = asked.res.pitch2D.devPtr;
      resource->format = asked.res.pitch2D.format;
      resource->channels = asked.res.pitch2D.numChannels;
      resource->width = asked.res.pitch2D.width;
      resource->height = asked.res.pitch2D.height;
      resource->pitch = asked.res.pitch2D.pitchInBytes;
      return CUDA_SUCCESS;
    default:
      return CUDA_ERROR_INVALID_VALUE;
  }
}

vgpu_sampler wire_sampler(const CUDA_TEXTURE_DESC& asked) {
  vgpu_sampler sampler{};
  std::copy(std::begin(asked.addressMode), std::end(asked.addressMode), sampler.address_mode);
  sampler.filter_mode = asked.filterMode;
  sampler.flags = asked.flags;
  sampler.max_anisotropy = asked.maxAnisotropy;
  sampler.mipmap_filter_mode = asked.mipmapFilterMode;
  sampler.mipmap_level_bias = asked.mipmapLevelBias;
  sampler.min_level = asked.minMipmapLevelClamp;
  sampler.max_level = asked.maxMipmapLevelClamp;
  std::copy(std::begin(asked.borderColor), std::end(asked.borderColor), sampler.border_color);
  return sampler;
}

}  // namespace bandsaw::libcuda

using namespace bandsaw::libcuda;  // NOLINT: entry points below
namespace wire = bandsaw::wire;

extern "C" {

CUresult cuTexObjectCreate(CUtexObject* texture, const CUDA_RESOURCE_DESC* resource, const CUDA_TEXTURE_DESC* sampler,
                           const CUDA_RESOURCE_VIEW_DESC* view) {
  Call call;
  if (!call.require_context()) return call.status();
  if (!texture || !resource || !sampler) return CUDA_ERROR_INVALID_VALUE;
  vgpu_texture asked{};
  CUresult result = wire_resource(*resource, &asked.resource);
  if (result != CUDA_SUCCESS) return result;
  asked.sampler = wire_sampler(*sampler);
  if (view) asked.view = wire_view(*view);
  TextureRecord record{0, *resource, *sampler, std::nullopt};
  if (view) record.view = *view;
  uint64_t number = 0;
  result = wire::texture_create(call, asked, &record.handle, &number);
  if (result != CUDA_SUCCESS) return result;
  Textures::get().put({call.context(), number}, std::move(record));
  *texture = number;
  return CUDA_SUCCESS;
}

CUresult cuTexObjectDestroy(CUtexObject texture) {
  Call call;
  if (!call.require_context()) return call.status();
  TextureRecord record;
  if (Textures::get().take({call.context(), texture}, &record)) return wire::texture_destroy(call, record.handle);
  return not_there<Textures>({call.context(), texture});
}

CUresult cuTexObjectGetResourceDesc(CUDA_RESOURCE_DESC* resource, CUtexObject texture) {
  return answer<Textures>(texture, resource, TextureRecord{}, [](const TextureRecord& record, CUDA_RESOURCE_DESC* out) {
    *out = record.resource;
    return CUDA_SUCCESS;
  });
}

CUresult cuTexObjectGetTextureDesc(CUDA_TEXTURE_DESC* sampler, CUtexObject texture) {
  return answer<Textures>(texture, sampler, TextureRecord{}, [](const TextureRecord& record, CUDA_TEXTURE_DESC* out) {
    *out = record.sampler;
    return CUDA_SUCCESS;
  });
}

CUresult cuTexObjectGetResourceViewDesc(CUDA_RESOURCE_VIEW_DESC* view, CUtexObject texture) {
  return answer<Textures>(texture, view, TextureRecord{},
                          [](const TextureRecord& record, CUDA_RESOURCE_VIEW_DESC* out) {
                            if (!record.view) return CUDA_ERROR_INVALID_VALUE;
                            *out = *record.view;
                            return CUDA_SUCCESS;
                          });
}

CUresult cuSurfObjectCreate(CUsurfObject* surface, const CUDA_RESOURCE_DESC* resource) {
  Call call;
  if (!call.require_context()) return call.status();
  if (!surface || !resource || resource->flags || resource->resType != CU_RESOURCE_TYPE_ARRAY) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  const CUarray array = resource->res.array.hArray;
  if (!arrays().find(array)) return CUDA_ERROR_INVALID_HANDLE;
  SurfaceRecord record{0, *resource};
  uint64_t number = 0;
  const CUresult result = wire::surface_create(call, to_wire(array), &record.handle, &number);
  if (result != CUDA_SUCCESS) return result;
  Surfaces::get().put({call.context(), number}, record);
  *surface = number;
  return CUDA_SUCCESS;
}

CUresult cuSurfObjectDestroy(CUsurfObject surface) {
  Call call;
  if (!call.require_context()) return call.status();
  SurfaceRecord record;
  if (Surfaces::get().take({call.context(), surface}, &record)) return wire::surface_destroy(call, record.handle);
  return not_there<Surfaces>({call.context(), surface});
}

CUresult cuSurfObjectGetResourceDesc(CUDA_RESOURCE_DESC* resource, CUsurfObject surface) {
  return answer<Surfaces>(surface, resource, SurfaceRecord{}, [](const SurfaceRecord& record, CUDA_RESOURCE_DESC* out) {
    *out = record.resource;
    return CUDA_SUCCESS;
  });
}

CUresult cuDeviceGetTexture1DLinearMaxWidth(size_t* elements, CUarray_format format, unsigned channels,
                                            CUdevice device) {
  const CUresult known = check_device(device);
  if (known != CUDA_SUCCESS) return known;
  if (!elements) return CUDA_ERROR_INVALID_VALUE;
  Call call;
  uint64_t most = 0;
  const CUresult result = wire::texture_linear_width(call, format, channels, &most);
  if (result == CUDA_SUCCESS) *elements = most;
  return result;
}

}  // extern "C"
