// Arrays, mipmapped arrays, textures and surfaces on an NVIDIA GPU. Their memory counts against the virtual GPU's share
// by what their elements take: the driver does not tell what it takes itself.
#pragma once

#include <map>
#include <memory>
#include <mutex>

#include "backend/device/cuda/charge.h"
#include "backend/device/cuda/objects.h"

namespace bandsaw::cuda {

class CudaArray final : public Array {
 public:
  CudaArray(DriverRef driver, CUarray array, CudaContextRef in_context, Charge charge)
      : handle(array), context(std::move(in_context)), charge_(std::move(charge)), driver_(std::move(driver)) {}
  // A level or plane, which lives in `parent`.
  CudaArray(DriverRef driver, CUarray array, CudaContextRef in_context, std::shared_ptr<Object> parent)
      : handle(array), context(std::move(in_context)), driver_(std::move(driver)), parent_(std::move(parent)) {}
  ~CudaArray() override { destroy(); }
  CUresult destroy();
  bool is_part() const { return parent_ != nullptr; }

  const CUarray handle;
  const CudaContextRef context;

 private:
  Charge charge_;
  const DriverRef driver_;
  const std::shared_ptr<Object> parent_;
  std::atomic<bool> alive_{true};
};
using CudaArrayRef = std::shared_ptr<CudaArray>;

class CudaMipmap final : public Mipmap {
 public:
  CudaMipmap(DriverRef driver, CUmipmappedArray mipmap, CudaContextRef in_context, Charge charge)
      : handle(mipmap), context(std::move(in_context)), charge_(std::move(charge)), driver_(std::move(driver)) {}
  ~CudaMipmap() override { destroy(); }
  CUresult destroy();

  const CUmipmappedArray handle;
  const CudaContextRef context;
  std::mutex mutex;
  std::map<uint32_t, std::weak_ptr<CudaArray>> levels;  // guarded by mutex

 private:
  Charge charge_;
  const DriverRef driver_;
  std::atomic<bool> alive_{true};
};

// A texture or a surface: what it reads stays alive with it.
template <typename Base, auto kDestroy>
class CudaView final : public Base {
 public:
  CudaView(DriverRef driver, unsigned long long view, CudaContextRef in_context, std::shared_ptr<Object> object)
      : handle(view), context(std::move(in_context)), driver_(std::move(driver)), object_(std::move(object)) {}
  ~CudaView() override { destroy(); }
  CUresult destroy() {
    if (!alive_.exchange(false) || !context->owner().alive) return CUDA_SUCCESS;
    if (const CUresult result = make_current(*driver_, context->owner())) return result;
    return (driver_.get()->*kDestroy)(handle);
  }

  const unsigned long long handle;  // CUtexObject or CUsurfObject
  const CudaContextRef context;

 private:
  const DriverRef driver_;
  const std::shared_ptr<Object> object_;
  std::atomic<bool> alive_{true};
};
using CudaTexture = CudaView<Texture, &Driver::cuTexObjectDestroy>;
using CudaSurface = CudaView<Surface, &Driver::cuSurfObjectDestroy>;

inline CudaArray& as(const ArrayRef& array) { return static_cast<CudaArray&>(*array); }
inline CudaMipmap& as(const MipmapRef& mipmap) { return static_cast<CudaMipmap&>(*mipmap); }
inline CudaTexture& as(const TextureRef& texture) { return static_cast<CudaTexture&>(*texture); }
inline CudaSurface& as(const SurfaceRef& surface) { return static_cast<CudaSurface&>(*surface); }

}  // namespace bandsaw::cuda
