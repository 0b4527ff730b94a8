// Work on a stream that the program made, from a thread that has no context current: the stream has one. Streams that
// nobody made mean nothing there.
// nvcc: -lcuda
#include <cstdio>

#include "check.h"

__global__ void add(int* value, int what) { *value += what; }

static void CUDA_CB told(void* what) { *static_cast<int*>(what) = 1; }

struct Work {
  CUfunction function = nullptr;
  CUstream stream = nullptr, other = nullptr;
  CUevent event = nullptr;
  CUdeviceptr value = 0;
  int* result = nullptr;
};

static void run(Work& work) {
  int what = 41, called = 0;
  void* arguments[] = {&work.value, &what};
  CHECK_DRIVER(cuMemsetD32Async(work.value, 1, 1, work.stream));
  CHECK_DRIVER(cuLaunchKernel(work.function, 1, 1, 1, 1, 1, 1, 0, work.stream, arguments, nullptr));
  CHECK_DRIVER(cuEventRecord(work.event, work.stream));
  CHECK_DRIVER(cuStreamWaitEvent(work.other, work.event, 0));
  CHECK_DRIVER(cuMemcpyDtoHAsync(work.result, work.value, sizeof(int), work.other));
  CHECK_DRIVER(cuLaunchHostFunc(work.other, told, &called));
  CHECK_DRIVER(cuStreamSynchronize(work.other));
  EXPECT(*work.result == 42 && called == 1);
  CHECK_DRIVER(cuEventSynchronize(work.event));
  CHECK_DRIVER(cuStreamQuery(work.stream));
}

int main() {
  CHECK(cudaFree(nullptr));
  Work work;
  CHECK(cudaGetFuncBySymbol(&work.function, reinterpret_cast<const void*>(add)));
  CUcontext context = nullptr, none = nullptr;
  CHECK_DRIVER(cuCtxGetCurrent(&context));
  CUstream captured = nullptr;
  for (CUstream* const stream : {&work.stream, &work.other, &captured})
    CHECK_DRIVER(cuStreamCreate(stream, CU_STREAM_NON_BLOCKING));
  CHECK_DRIVER(cuEventCreate(&work.event, CU_EVENT_DEFAULT));
  CHECK_DRIVER(cuMemAlloc(&work.value, sizeof(int)));
  CHECK_DRIVER(cuMemAllocHost(reinterpret_cast<void**>(&work.result), sizeof(int)));

  CHECK_DRIVER(cuCtxSetCurrent(nullptr));
  CHECK_DRIVER(cuCtxGetCurrent(&none));
  EXPECT(none == nullptr);
  run(work);
  CUcontext of_stream = nullptr;
  CHECK_DRIVER(cuStreamGetCtx(work.stream, &of_stream));
  EXPECT(of_stream == context);

  EXPECT_CODE(CUDA_ERROR_INVALID_CONTEXT, cuStreamSynchronize(nullptr));
  EXPECT_CODE(CUDA_ERROR_INVALID_CONTEXT, cuEventRecord(work.event, nullptr));
  EXPECT_CODE(CUDA_ERROR_INVALID_CONTEXT, cuMemsetD32Async(work.value, 1, 1, nullptr));
  int what = 1;
  void* arguments[] = {&work.value, &what};
  EXPECT_CODE(CUDA_ERROR_INVALID_CONTEXT,
              cuLaunchKernel(work.function, 1, 1, 1, 1, 1, 1, 0, nullptr, arguments, nullptr));
  CHECK_DRIVER(cuCtxGetCurrent(&none));
  EXPECT(none == nullptr);

  // The same while another stream is captured.
  CHECK_DRIVER(cuCtxSetCurrent(context));
  CHECK_DRIVER(cuStreamBeginCapture(captured, CU_STREAM_CAPTURE_MODE_RELAXED));
  CHECK_DRIVER(cuCtxSetCurrent(nullptr));
  run(work);
  CHECK_DRIVER(cuCtxSetCurrent(context));
  CUgraph graph = nullptr;
  CHECK_DRIVER(cuStreamEndCapture(captured, &graph));
  CHECK_DRIVER(cuGraphDestroy(graph));
  std::printf("the stream's context did\n");
}
