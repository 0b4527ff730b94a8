// A copy by a tensor map whose rows would begin between two chunks of 16 bytes ends the process's context.
// nvcc: -arch=compute_90a -code=compute_90a -lcuda
#include <cuda.h>

#include "check.h"

constexpr unsigned kWidth = 64, kBox = 16;

__global__ void fetch(const __grid_constant__ CUtensorMap map, int x, int* out) {
  __shared__ __align__(128) int box[kBox];
  __shared__ __align__(8) unsigned long long bar;
  const auto at = static_cast<unsigned>(__cvta_generic_to_shared(box)),
             barrier = static_cast<unsigned>(__cvta_generic_to_shared(&bar));
  asm volatile("mbarrier.init.shared::cta.b64 [%0], 1;" ::"r"(barrier) : "memory");
  asm volatile("fence.proxy.async;" ::: "memory");
  asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(barrier), "n"(kBox * 4) : "memory");
  asm volatile(
      "cp.async.bulk.tensor.1d.shared::cluster.global.tile.mbarrier::complete_tx::bytes [%0], [%1, {%2}], [%3];" ::"r"(
          at),
      "l"(&map), "r"(x), "r"(barrier)
      : "memory");
  unsigned done = 0;
  while (!done)
    asm volatile("{.reg .pred p; mbarrier.try_wait.parity.shared::cta.b64 p, [%1], 0; selp.u32 %0, 1, 0, p;}"
                 : "=r"(done)
                 : "r"(barrier)
                 : "memory");
  for (unsigned i = 0; i < kBox; ++i) out[i] = box[i];
}

int main() {
  int *data = nullptr, *out = nullptr, from[kWidth], got[kBox];
  for (unsigned i = 0; i < kWidth; ++i) from[i] = static_cast<int>(i);
  CHECK(cudaMalloc(&data, sizeof from));
  CHECK(cudaMalloc(&out, sizeof got));
  CHECK(cudaMemcpy(data, from, sizeof from, cudaMemcpyHostToDevice));
  alignas(64) CUtensorMap map;
  const cuuint64_t width = kWidth, stride = kWidth * sizeof(int);
  const cuuint32_t box = kBox, step = 1;
  CHECK_DRIVER(cuTensorMapEncodeTiled(&map, CU_TENSOR_MAP_DATA_TYPE_INT32, 1, data, &width, &stride, &box, &step,
                                      CU_TENSOR_MAP_INTERLEAVE_NONE, CU_TENSOR_MAP_SWIZZLE_NONE,
                                      CU_TENSOR_MAP_L2_PROMOTION_NONE, CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE));
  fetch<<<1, 1>>>(map, 20, out);
  CHECK(cudaMemcpy(got, out, sizeof got, cudaMemcpyDeviceToHost));
  for (unsigned i = 0; i < kBox; ++i) EXPECT_EQ(got[i], static_cast<int>(20 + i));
  fetch<<<1, 1>>>(map, 21, out);
  EXPECT_CODE(cudaErrorIllegalInstruction, cudaDeviceSynchronize());
  EXPECT_CODE(cudaErrorIllegalInstruction, cudaFree(data));
  return passed();
}
