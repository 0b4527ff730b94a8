// The few functions of cuBLAS that the tenants call, found at run time: a machine may have the library only as a part
// of PyTorch, without headers. Names and numbers are those of cublas_api.h and library_types.h.
#pragma once

#include <cuda_runtime.h>
#include <dlfcn.h>

#include <cstdio>
#include <cstdlib>
#include <string>

namespace progress {

class Blas {
 public:
  // `library`: a path or a name for the loader. Ends the program with a message if it cannot be used.
  Blas(const std::string& library, cudaStream_t stream) {
    void* const opened = dlopen(library.c_str(), RTLD_NOW);
    if (!opened) fail(dlerror());
    find(opened, "cublasCreate_v2", &create_);
    find(opened, "cublasSetStream_v2", &set_stream_);
    find(opened, "cublasSgemm_v2", &sgemm_);
    find(opened, "cublasGemmEx", &gemm_ex_);
    check("cublasCreate", create_(&handle_));
    check("cublasSetStream", set_stream_(handle_, stream));
  }

  // c = a * b of square matrices of `n` floats a side.
  void sgemm(int n, const float* a, const float* b, float* c) const {
    const float one = 1, zero = 0;
    check("cublasSgemm", sgemm_(handle_, kPlain, kPlain, n, n, n, &one, a, n, b, n, &zero, c, n));
  }

  // c (rows x columns) = a (rows x depth) * b (depth x columns), in bf16 with float sums, by columns.
  void bf16(int rows, int columns, int depth, const void* a, const void* b, void* c) const {
    const float one = 1, zero = 0;
    check("cublasGemmEx", gemm_ex_(handle_, kPlain, kPlain, rows, columns, depth, &one, a, kBf16, rows, b, kBf16, depth,
                                   &zero, c, kBf16, rows, kFloatSums, kDefaultAlgorithm));
  }

 private:
  static constexpr int kPlain = 0;              // CUBLAS_OP_N
  static constexpr int kBf16 = 14;              // CUDA_R_16BF
  static constexpr int kFloatSums = 68;         // CUBLAS_COMPUTE_32F
  static constexpr int kDefaultAlgorithm = -1;  // CUBLAS_GEMM_DEFAULT

  [[noreturn]] static void fail(const char* what) {
    std::fprintf(stderr, "cuBLAS: %s\n", what);
    std::exit(3);
  }
  static void check(const char* what, int status) {
    if (status == 0) return;
    std::fprintf(stderr, "%s: status %d\n", what, status);
    std::exit(3);
  }
  template <typename Function>
  static void find(void* library, const char* name, Function** function) {
    *function = reinterpret_cast<Function*>(dlsym(library, name));
    if (!*function) fail(name);
  }

  int (*create_)(void**) = nullptr;
  int (*set_stream_)(void*, cudaStream_t) = nullptr;
  int (*sgemm_)(void*, int, int, int, int, int, const float*, const float*, int, const float*, int, const float*,
                float*, int) = nullptr;
  int (*gemm_ex_)(void*, int, int, int, int, int, const void*, const void*, int, int, const void*, int, int,
                  const void*, void*, int, int, int, int) = nullptr;
  void* handle_ = nullptr;
};

}  // namespace progress
