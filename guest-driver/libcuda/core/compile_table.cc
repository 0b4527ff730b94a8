#include "guest-driver/libcuda/core/compile_table.h"

#include <cuda.h>
#include <dlfcn.h>
#include <sys/stat.h>

#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <string>

#include "guest-driver/libcuda/core/compile_cache.h"
#include "guest-driver/libcuda/core/private_table.h"

namespace bandsaw::libcuda {
namespace {

// A key is what was compiled, how, and by which compiler.
using Key = std::string;

// Another compiler makes other code of the same. Its file tells it from others.
std::string compiler_at(const void* code) {
  Dl_info library{};
  struct stat is{};
  if (!dladdr(code, &library) || !library.dli_fname || stat(library.dli_fname, &is) < 0) return "";
  return std::string(library.dli_fname) + ' ' + std::to_string(is.st_size) + ' ' + std::to_string(is.st_mtime);
}

void add(Key* key, const void* part, uint64_t bytes) {
  key->append(reinterpret_cast<const char*>(&bytes), sizeof bytes);
  if (bytes) key->append(static_cast<const char*>(part), bytes);
}

// `kind`: what is made of the source (1: machine code, 2: PTX). `options`, `host`: texts.
CUresult create_key(Key** key, uint32_t kind, const void* source, uint32_t bytes, const char* options,
                    const char* host) {
  if (!key || (!source && bytes)) return CUDA_ERROR_INVALID_VALUE;
  *key = nullptr;
  const std::string compiler = compiler_at(__builtin_return_address(0));
  if (compiler.empty()) return CUDA_ERROR_NOT_FOUND;
  auto* const made = new Key;
  add(made, &kind, sizeof kind);
  add(made, compiler.data(), compiler.size());
  for (const char* text : {options, host}) add(made, text, text ? std::strlen(text) : 0);
  add(made, source, bytes);
  *key = made;
  return CUDA_SUCCESS;
}

CUresult destroy_key(Key* key) {
  delete key;
  return CUDA_SUCCESS;
}

// The caller gives `*code` back by release_code().
CUresult look_up_code(const Key* key, void*, void** code, uint32_t* bytes) {
  if (!key || !code || !bytes) return CUDA_ERROR_INVALID_VALUE;
  const auto found = CompileCache::of_this_program().find(*key);
  if (!found || found->empty()) return CUDA_ERROR_NOT_FOUND;
  void* const copy = std::malloc(found->size());
  if (!copy) return CUDA_ERROR_OUT_OF_MEMORY;
  std::memcpy(copy, found->data(), found->size());
  *code = copy;
  *bytes = static_cast<uint32_t>(found->size());
  return CUDA_SUCCESS;
}

CUresult keep_code(const Key* key, void*, const void* code, uint32_t bytes) {
  if (!key || !code) return CUDA_ERROR_INVALID_VALUE;
  CompileCache::of_this_program().keep(*key, {static_cast<const std::byte*>(code), bytes});
  return CUDA_SUCCESS;
}

CUresult release_code(void* code) {
  std::free(code);
  return CUDA_SUCCESS;
}

}  // namespace

void fill_compute_cache(std::span<const void*> slots) {
  slots[1] = slot_address(create_key);
  slots[2] = slot_address(destroy_key);
  slots[3] = slot_address(look_up_code);
  slots[4] = slot_address(keep_code);
  slots[6] = slot_address(release_code);
}

}  // namespace bandsaw::libcuda
