// A store by a tensor map that begins below 0 ends the process's context; one that goes past the end does not.
// nvcc: -arch=compute_90a -code=compute_90a -lcuda
#include <cuda.h>

#include "check.h"

constexpr unsigned kWidth = 32, kRows = 8, kBox = 4;

__global__ void send(const __grid_constant__ CUtensorMap map, int y) {
  __shared__ __align__(128) int box[kBox * kBox];
  for (int i = 0; i < int(kBox * kBox); ++i) box[i] = i + 1;
  const auto at = static_cast<unsigned>(__cvta_generic_to_shared(box));
  asm volatile("fence.proxy.async;" ::: "memory");
  asm volatile("cp.async.bulk.tensor.2d.global.shared::cta.tile.bulk_group [%0, {%1, %2}], [%3];" ::"l"(&map), "r"(0),
               "r"(y), "r"(at)
               : "memory");
  asm volatile("cp.async.bulk.commit_group;\ncp.async.bulk.wait_group 0;" ::: "memory");
}

int main() {
  int *data = nullptr, got[kWidth * kRows];
  CHECK(cudaMalloc(&data, sizeof got));
  CHECK(cudaMemset(data, 0, sizeof got));
  alignas(64) CUtensorMap map;
  const cuuint64_t dims[] = {kWidth, kRows}, stride = kWidth * sizeof(int);
  const cuuint32_t box[] = {kBox, kBox}, steps[] = {1, 1};
  CHECK_DRIVER(cuTensorMapEncodeTiled(&map, CU_TENSOR_MAP_DATA_TYPE_INT32, 2, data, dims, &stride, box, steps,
                                      CU_TENSOR_MAP_INTERLEAVE_NONE, CU_TENSOR_MAP_SWIZZLE_NONE,
                                      CU_TENSOR_MAP_L2_PROMOTION_NONE, CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE));
  send<<<1, 1>>>(map, kRows - 2);
  CHECK(cudaMemcpy(got, data, sizeof got, cudaMemcpyDeviceToHost));
  for (unsigned i = 0; i < kWidth * kRows; ++i) {
    const unsigned x = i % kWidth, y = i / kWidth;
    EXPECT_EQ(got[i], x < kBox && y >= kRows - 2 ? int((y - (kRows - 2)) * kBox + x + 1) : 0);
  }
  send<<<1, 1>>>(map, -1);
  EXPECT_CODE(cudaErrorIllegalInstruction, cudaDeviceSynchronize());
  EXPECT_CODE(cudaErrorIllegalInstruction, cudaFree(data));
  return passed();
}
