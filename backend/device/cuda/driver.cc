#include "backend/device/cuda/driver.h"

#include <dlfcn.h>

#include <cstdlib>

#include "memory/base/log.h"

namespace bandsaw::cuda {
namespace {

// The symbol behind a name of <cuda.h>, after its version macros.
#define BANDSAW_SYMBOL_TEXT(name) #name
#define BANDSAW_SYMBOL(name) BANDSAW_SYMBOL_TEXT(name)

Result<void*> open_library() {
  const char* const chosen = std::getenv("BANDSAW_CUDA_DRIVER");
  const char* const name = chosen ? chosen : "libcuda.so.1";
  void* const library = dlopen(name, RTLD_NOW | RTLD_LOCAL);
  if (!library) {
    return Status::error(ENOENT,
                         "no CUDA driver: {}; install NVIDIA's driver, or name its libcuda.so.1 in "
                         "BANDSAW_CUDA_DRIVER",
                         dlerror());
  }
  return library;
}

}  // namespace

Result<std::shared_ptr<const Driver>> Driver::load() {
  auto library = open_library();
  if (!library.ok()) return library.status();
  auto driver = std::make_shared<Driver>();
  const char* missing = nullptr;
#define BANDSAW_CUDA_RESOLVE(name)                                                                       \
  driver->name = reinterpret_cast<decltype(driver->name)>(dlsym(library.value(), BANDSAW_SYMBOL(name))); \
  if (!driver->name) missing = BANDSAW_SYMBOL(name);
  BANDSAW_CUDA_DRIVER(BANDSAW_CUDA_RESOLVE)
#undef BANDSAW_CUDA_RESOLVE
#define BANDSAW_CUDA_RESOLVE_OLD(name) \
  driver->name = reinterpret_cast<decltype(driver->name)>(dlsym(library.value(), BANDSAW_SYMBOL(name)));
  BANDSAW_CUDA_OLD_DRIVER(BANDSAW_CUDA_RESOLVE_OLD)
#undef BANDSAW_CUDA_RESOLVE_OLD
  if (missing)
    return Status::error(ELIBBAD, "the CUDA driver has no {}; version 13.0 (580) or newer is needed", missing);
  if (const CUresult result = driver->cuInit(0); result != CUDA_SUCCESS) {
    return Status::error(
        ENODEV,
        "cuInit: {}; is a GPU there, may this user open /dev/nvidia*, and does it start with 'sandbox.mode' = \"off\"?",
        driver->describe(result));
  }
  return std::shared_ptr<const Driver>(std::move(driver));
}

std::string Driver::describe(CUresult error) const {
  const char *name = nullptr, *text = nullptr;
  cuGetErrorName(error, &name);
  cuGetErrorString(error, &text);
  return fmt::format("{} ({})", name ? name : std::to_string(error), text ? text : "unknown to the driver");
}

}  // namespace bandsaw::cuda
