// Programs and Python packages find NVIDIA's compiler libraries with dlopen() and dlsym(). This dlsym(), which comes
// first because the library is preloaded, gives the functions of hooks.h where those are asked for.
#include <dlfcn.h>
#include <link.h>

#include <cctype>

#include "guest-driver/ptx_preload/hooks.h"

namespace bandsaw::ptx_preload {
namespace {

using Dlsym = void*(void*, const char*);

Dlsym* next_dlsym() {
  static Dlsym* const found = [] {
    void* next = dlvsym(RTLD_NEXT, "dlsym", "GLIBC_2.34");
    if (!next) next = dlvsym(RTLD_NEXT, "dlsym", "GLIBC_2.2.5");
    return reinterpret_cast<Dlsym*>(next);
  }();
  return found;
}

// nvJitLink's header asks for names with a version: __nvJitLinkCreate_13_0 -> nvJitLinkCreate.
std::string_view without_version(std::string_view name) {
  if (!name.starts_with("__nvJitLink")) return name;
  name.remove_prefix(2);
  for (int part = 0; part < 2; part++) {
    size_t end = name.size();
    while (end > 0 && std::isdigit(static_cast<unsigned char>(name[end - 1]))) end--;
    if (end == name.size() || end == 0 || name[end - 1] != '_') break;
    name = name.substr(0, end - 1);
  }
  return name;
}

// nullptr too if `symbol` is.
Hook* hook_of(const char* symbol) {
  if (!symbol || (symbol[0] != 'n' && symbol[0] != '_')) return nullptr;
  const std::string_view name = without_version(symbol);
  const auto hooks = name.starts_with("nvrtc")       ? nvrtc_hooks()
                     : name.starts_with("nvJitLink") ? nvjitlink_hooks()
                                                     : std::span<Hook>();
  for (Hook& hook : hooks) {
    if (hook.name == name) return &hook;
  }
  return nullptr;
}

const void* library_of(const void* code) {
  Dl_info info;
  return code && dladdr(code, &info) ? info.dli_fbase : nullptr;
}

void* hooked(Hook* hook, void* handle, const char* name) {
  void* found = next_dlsym()(handle, name);
  if (found == hook->ours) {  // in the global scope we come first
    found = symbol_of_loaded(hook->library, name);
    if (!found)
      return next_dlsym()(handle, "function of a library that is not loaded");  // so that dlerror() has a text
  }
  if (!found) return nullptr;
  void* first = nullptr;
  if (hook->real.compare_exchange_strong(first, found)) return hook->ours;
  return library_of(first) == library_of(found) ? hook->ours : found;
}

}  // namespace

void* symbol_beside(const void* code, const char* name) {
  Dl_info info;
  if (!code || !dladdr(code, &info) || !info.dli_fname) return nullptr;
  void* const library = dlopen(info.dli_fname, RTLD_LAZY | RTLD_NOLOAD);
  if (!library) return nullptr;
  void* const found = next_dlsym()(library, name);
  dlclose(library);  // the program's own reference keeps it
  return found;
}

void* symbol_of_loaded(std::string_view library, const char* name) {
  struct Search {
    std::string_view library;
    const char* name;
    void* found;
  } search{library, name, nullptr};
  dl_iterate_phdr(
      [](dl_phdr_info* info, size_t, void* data) {
        auto& wanted = *static_cast<Search*>(data);
        std::string_view file = info->dlpi_name;
        file.remove_prefix(file.find_last_of('/') + 1);
        if (!file.starts_with(wanted.library)) return 0;
        void* const handle = dlopen(info->dlpi_name, RTLD_LAZY | RTLD_NOLOAD);
        if (!handle) return 0;
        wanted.found = next_dlsym()(handle, wanted.name);
        dlclose(handle);  // whoever loaded it keeps it
        return wanted.found ? 1 : 0;
      },
      &search);
  return search.found;
}

}  // namespace bandsaw::ptx_preload

// Not for us: a jump, so that dlsym() sees its caller, which RTLD_NEXT and RTLD_DEFAULT depend on.
extern "C" __attribute__((visibility("default"), optimize("O2"))) void* dlsym(void* handle, const char* name) noexcept {
  using namespace bandsaw::ptx_preload;
  if (Hook* const hook = hook_of(name)) return hooked(hook, handle, name);
  return next_dlsym()(handle, name);
}
