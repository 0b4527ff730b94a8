// NVIDIA's NVML, found at run time: neither it nor its header is needed to build.
#pragma once

#include <dlfcn.h>

#include <cstdlib>

namespace bandsaw::runner {

// Stays loaded until the process ends. For one thread.
class NvmlLibrary {
 public:
  // Null, or what is wrong.
  const char* open() {
    unsetenv("BANDSAW_VGPU");  // our own library, if it is found first, must not ask the session that may ask us
    library_ = dlopen("libnvidia-ml.so.1", RTLD_NOW);
    if (!library_) return dlerror();
    const auto init = function<int (*)()>("nvmlInit_v2");
    if (!init) return "it lacks functions";
    return init() == 0 ? nullptr : "it finds no driver";
  }

  // Null: this version has no such function.
  template <typename F>
  F function(const char* name) const {
    return reinterpret_cast<F>(dlsym(library_, name));
  }

 private:
  void* library_ = nullptr;
};

}  // namespace bandsaw::runner
