// The approximate functions, 32 lanes at a time. Built with -O3 -ffast-math, so that the loops become calls of glibc's
// vector mathematics (a few units in the last place, as the GPU's own approximations). NaN and infinities go through
// the library as they are.
#include <math.h>

#include "backend/device/soft/codegen/runtime.h"

#define BANDSAW_VECTORS __attribute__((target_clones("avx512f", "avx2", "default")))

namespace bandsaw::soft {
extern "C" {
BANDSAW_VECTORS void bsw_sin_f32(const float* a, float* out) {
  for (int l = 0; l < kWarpLanes; ++l) out[l] = ::sinf(a[l]);
}
BANDSAW_VECTORS void bsw_cos_f32(const float* a, float* out) {
  for (int l = 0; l < kWarpLanes; ++l) out[l] = ::cosf(a[l]);
}
BANDSAW_VECTORS void bsw_lg2_f32(const float* a, float* out) {
  for (int l = 0; l < kWarpLanes; ++l) out[l] = ::log2f(a[l]);
}
BANDSAW_VECTORS void bsw_ex2_f32(const float* a, float* out) {
  for (int l = 0; l < kWarpLanes; ++l) out[l] = ::exp2f(a[l]);
}
BANDSAW_VECTORS void bsw_tanh_f32(const float* a, float* out) {
  for (int l = 0; l < kWarpLanes; ++l) out[l] = ::tanhf(a[l]);
}
}

void add_maths_symbols(SymbolTable* table) {
  auto add = [&](const char* name, void (*f)(const float*, float*)) {
    table->push_back({name, reinterpret_cast<void*>(f)});
  };
  add("bsw_sin_f32", bsw_sin_f32);
  add("bsw_cos_f32", bsw_cos_f32);
  add("bsw_lg2_f32", bsw_lg2_f32);
  add("bsw_ex2_f32", bsw_ex2_f32);
  add("bsw_tanh_f32", bsw_tanh_f32);
}

}  // namespace bandsaw::soft
