// nvcc: -lcuda
// Events of a whole context; the L2 cache's persisting lines; which green context a stream is of.
#include <chrono>
#include <thread>

#include "check.h"

__global__ void wait_then_add(volatile int* gate, int* out) {
  while (*gate == 0) {
  }
  *out += 1;
}

int main() {
  CHECK(cudaFree(nullptr));
  CUcontext context;
  CHECK_DRIVER(cuCtxGetCurrent(&context));
  volatile int* gate = nullptr;
  CHECK(cudaMallocHost(const_cast<int**>(&gate), sizeof(int)));
  *gate = 0;
  int* sum = nullptr;
  CHECK(cudaMalloc(&sum, 2 * sizeof(int)));
  CHECK(cudaMemset(sum, 0, 2 * sizeof(int)));
  CUstream blocking, apart, later;
  CHECK_DRIVER(cuStreamCreate(&blocking, CU_STREAM_DEFAULT));
  CHECK_DRIVER(cuStreamCreate(&apart, CU_STREAM_NON_BLOCKING));
  CUevent event, after;
  CHECK_DRIVER(cuEventCreate(&event, CU_EVENT_DISABLE_TIMING));
  CHECK_DRIVER(cuEventCreate(&after, CU_EVENT_DISABLE_TIMING));

  wait_then_add<<<1, 1, 0, apart>>>(gate, sum);
  CHECK(cudaGetLastError());
  CHECK_DRIVER(cuCtxRecordEvent(context, event));
  std::this_thread::sleep_for(std::chrono::milliseconds(20));
  EXPECT_CODE(CUDA_ERROR_NOT_READY, cuEventQuery(event));

  // All streams of the context wait for it, also one that is made afterwards.
  CHECK_DRIVER(cuCtxWaitEvent(context, event));
  CHECK_DRIVER(cuStreamCreate(&later, CU_STREAM_NON_BLOCKING));
  CHECK_DRIVER(cuMemsetD32Async(reinterpret_cast<CUdeviceptr>(sum + 1), 7, 1, later));
  CHECK_DRIVER(cuEventRecord(after, later));
  std::this_thread::sleep_for(std::chrono::milliseconds(20));
  EXPECT_CODE(CUDA_ERROR_NOT_READY, cuEventQuery(after));
  *gate = 1;
  CHECK_DRIVER(cuEventSynchronize(event));
  CHECK_DRIVER(cuEventSynchronize(after));
  int result[2];
  CHECK(cudaMemcpy(result, sum, sizeof(result), cudaMemcpyDeviceToHost));
  EXPECT_EQ(result[0], 1);
  EXPECT_EQ(result[1], 7);
  EXPECT_CODE(CUDA_ERROR_INVALID_HANDLE, cuCtxRecordEvent(context, nullptr));

  CHECK(cudaCtxResetPersistingL2Cache());
  CUgreenCtx green = reinterpret_cast<CUgreenCtx>(&context);
  CHECK_DRIVER(cuStreamGetGreenCtx(blocking, &green));
  EXPECT(green == nullptr);
  return passed();
}
