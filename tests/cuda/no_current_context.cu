// Work on a stream that the program made, from a thread that has no context current: the stream has one. Streams that
// nobody made mean nothing there.
// nvcc: -lcuda
#include <cstdio>

#include "check.h"

__global__ void add(int* value, int what) { *value += what; }

static void CUDA_CB told(void* what) { *static_cast<int*>(what) = 1; }

int main() {
  CHECK(cudaFree(nullptr));
  CUfunction function = nullptr;
  CHECK(cudaGetFuncBySymbol(&function, reinterpret_cast<const void*>(add)));
  CUcontext context = nullptr, none = nullptr;
  CHECK_DRIVER(cuCtxGetCurrent(&context));
  CUstream stream = nullptr, other = nullptr;
  CHECK_DRIVER(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
  CHECK_DRIVER(cuStreamCreate(&other, CU_STREAM_NON_BLOCKING));
  CUevent event = nullptr;
  CHECK_DRIVER(cuEventCreate(&event, CU_EVENT_DEFAULT));
  CUdeviceptr value = 0;
  CHECK_DRIVER(cuMemAlloc(&value, sizeof(int)));
  int* result = nullptr;
  CHECK_DRIVER(cuMemAllocHost(reinterpret_cast<void**>(&result), sizeof(int)));

  CHECK_DRIVER(cuCtxSetCurrent(nullptr));
  CHECK_DRIVER(cuCtxGetCurrent(&none));
  EXPECT(none == nullptr);
  int what = 41, called = 0;
  void* arguments[] = {&value, &what};
  CHECK_DRIVER(cuMemsetD32Async(value, 1, 1, stream));
  CHECK_DRIVER(cuLaunchKernel(function, 1, 1, 1, 1, 1, 1, 0, stream, arguments, nullptr));
  CHECK_DRIVER(cuEventRecord(event, stream));
  CHECK_DRIVER(cuStreamWaitEvent(other, event, 0));
  CHECK_DRIVER(cuMemcpyDtoHAsync(result, value, sizeof(int), other));
  CHECK_DRIVER(cuLaunchHostFunc(other, told, &called));
  CHECK_DRIVER(cuStreamSynchronize(other));
  EXPECT(*result == 42 && called == 1);
  CHECK_DRIVER(cuEventSynchronize(event));
  CHECK_DRIVER(cuStreamQuery(stream));
  CUcontext of_stream = nullptr;
  CHECK_DRIVER(cuStreamGetCtx(stream, &of_stream));
  EXPECT(of_stream == context);

  EXPECT_CODE(CUDA_ERROR_INVALID_CONTEXT, cuStreamSynchronize(nullptr));
  EXPECT_CODE(CUDA_ERROR_INVALID_CONTEXT, cuEventRecord(event, nullptr));
  EXPECT_CODE(CUDA_ERROR_INVALID_CONTEXT, cuMemsetD32Async(value, 1, 1, nullptr));
  EXPECT_CODE(CUDA_ERROR_INVALID_CONTEXT, cuLaunchKernel(function, 1, 1, 1, 1, 1, 1, 0, nullptr, arguments, nullptr));
  CHECK_DRIVER(cuCtxGetCurrent(&none));
  EXPECT(none == nullptr);
  std::printf("the stream's context did\n");
}
