// Functions of NVIDIA's compiler libraries that this library stands in for, so that they give PTX.
#pragma once

#include <atomic>
#include <cstddef>
#include <span>
#include <string_view>

namespace bandsaw::ptx_preload {

// The function `name` of the library that has the function `code`.
void* symbol_beside(const void* code, const char* name);
// The function `name` of the loaded library whose file name begins so; nullptr if there is none.
void* symbol_of_loaded(std::string_view library, const char* name);

// A function of a compiler library, and what a program gets in its place. The library may be loaded at any time.
struct Hook {
  std::string_view library;  // how its file name begins
  std::string_view name;
  void* ours;
  std::atomic<void*> real{nullptr};  // of the first library of that kind; another one is left as it is

  Hook(std::string_view of, std::string_view called, void* function) : library(of), name(called), ours(function) {}

  // The library's own; nullptr while it is not loaded.
  template <typename Function>
  Function* as() {
    void* nothing = nullptr;
    if (!real) real.compare_exchange_strong(nothing, symbol_of_loaded(library, name.data()));
    return reinterpret_cast<Function*>(real.load(std::memory_order_acquire));
  }
};

// The function `name` of the same type in the library that has `function`; nullptr if there is none.
template <typename Function>
Function* beside(Function* function, const char* name) {
  return reinterpret_cast<Function*>(symbol_beside(reinterpret_cast<const void*>(function), name));
}

std::span<Hook> nvrtc_hooks();
std::span<Hook> nvjitlink_hooks();

}  // namespace bandsaw::ptx_preload
