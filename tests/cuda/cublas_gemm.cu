// nvcc: -lcublas
// needs: libcublas
// cuBLAS asks the driver for much and then launches machine code. On a GPU the products are right; the software
// device has no PTX for these kernels and must say so by a clear error, after everything before it worked.
#include <cublas_v2.h>

#include <cstring>
#include <vector>

#include "check.h"

template <typename T, typename Gemm>
static bool product(cublasHandle_t handle, Gemm gemm, bool* software) {
  constexpr int kSize = 96;
  std::vector<T> a(kSize * kSize), b(kSize * kSize), c(kSize * kSize, -1);
  for (int i = 0; i < kSize * kSize; ++i) a[i] = static_cast<T>(i % 11 - 5), b[i] = static_cast<T>(i % 7 - 3);
  T *da, *db, *dc;
  CHECK(cudaMalloc(&da, a.size() * sizeof(T)));
  CHECK(cudaMalloc(&db, a.size() * sizeof(T)));
  CHECK(cudaMalloc(&dc, a.size() * sizeof(T)));
  EXPECT_CODE(CUBLAS_STATUS_SUCCESS, cublasSetMatrix(kSize, kSize, sizeof(T), a.data(), kSize, da, kSize));
  EXPECT_CODE(CUBLAS_STATUS_SUCCESS, cublasSetMatrix(kSize, kSize, sizeof(T), b.data(), kSize, db, kSize));
  const T one = 1, zero = 0;
  const cublasStatus_t status =
      gemm(handle, CUBLAS_OP_N, CUBLAS_OP_N, kSize, kSize, kSize, &one, da, kSize, db, kSize, &zero, dc, kSize);
  const cudaError_t error = cudaDeviceSynchronize();
  std::printf("status %d, error %s\n", status, cudaGetErrorName(error));
  if (*software) {
    EXPECT(status != CUBLAS_STATUS_SUCCESS || error != cudaSuccess);
    return true;
  }
  EXPECT_CODE(CUBLAS_STATUS_SUCCESS, status);
  EXPECT_CODE(CUBLAS_STATUS_SUCCESS, cublasGetMatrix(kSize, kSize, sizeof(T), dc, kSize, c.data(), kSize));
  for (int column = 0; column < kSize; ++column)
    for (int row = 0; row < kSize; ++row) {
      T wanted = 0;
      for (int k = 0; k < kSize; ++k) wanted += a[k * kSize + row] * b[column * kSize + k];
      EXPECT_EQ(c[column * kSize + row], wanted);
    }
  return true;
}

int main() {
  cudaDeviceProp prop;
  CHECK(cudaGetDeviceProperties(&prop, 0));
  bool software = std::strstr(prop.name, "software") != nullptr;
  cublasHandle_t handle;
  EXPECT_CODE(CUBLAS_STATUS_SUCCESS, cublasCreate(&handle));
  int version = 0;
  EXPECT_CODE(CUBLAS_STATUS_SUCCESS, cublasGetVersion(handle, &version));
  cudaStream_t stream;
  CHECK(cudaStreamCreate(&stream));
  EXPECT_CODE(CUBLAS_STATUS_SUCCESS, cublasSetStream(handle, stream));
  product<float>(handle, cublasSgemm, &software);
  product<double>(handle, cublasDgemm, &software);
  return passed();
}
