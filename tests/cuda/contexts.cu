// nvcc: -lcuda
// Primary and created contexts, and each thread's own stack of current contexts.
#include <thread>

#include "check.h"

static void primary_context(CUdevice device) {
  CUcontext context, again, current;
  unsigned flags;
  int active;
  CHECK_DRIVER(cuDevicePrimaryCtxGetState(device, &flags, &active));
  EXPECT_EQ(active, 0);
  CHECK_DRIVER(cuDevicePrimaryCtxRetain(&context, device));
  CHECK_DRIVER(cuDevicePrimaryCtxRetain(&again, device));
  EXPECT(context == again);
  CHECK_DRIVER(cuCtxGetCurrent(&current));
  EXPECT(current == nullptr);
  CHECK_DRIVER(cuDevicePrimaryCtxGetState(device, &flags, &active));
  EXPECT_EQ(active, 1);
  CHECK_DRIVER(cuDevicePrimaryCtxRelease(device));
  CHECK_DRIVER(cuDevicePrimaryCtxRelease(device));
  EXPECT_CODE(CUDA_ERROR_INVALID_CONTEXT, cuDevicePrimaryCtxRelease(device));
}

static void stack(CUdevice device) {
  CUcontext a, b, current, popped;
  CHECK_DRIVER(cuCtxCreate(&a, nullptr, 0, device));
  CHECK_DRIVER(cuCtxCreate(&b, nullptr, CU_CTX_SCHED_SPIN, device));
  CHECK_DRIVER(cuCtxGetCurrent(&current));
  EXPECT(current == b);
  CHECK_DRIVER(cuCtxPopCurrent(&popped));
  EXPECT(popped == b);
  CHECK_DRIVER(cuCtxGetCurrent(&current));
  EXPECT(current == a);
  CHECK_DRIVER(cuCtxPushCurrent(b));
  CHECK_DRIVER(cuCtxSetCurrent(a));  // replaces the top
  CHECK_DRIVER(cuCtxPopCurrent(&popped));
  EXPECT(popped == a);

  unsigned version = 0;
  CHECK_DRIVER(cuCtxGetApiVersion(a, &version));
  EXPECT(version >= 3010);
  unsigned long long id_a, id_b;
  CHECK_DRIVER(cuCtxGetId(a, &id_a));
  CHECK_DRIVER(cuCtxGetId(b, &id_b));
  EXPECT(id_a != id_b);
  CHECK_DRIVER(cuCtxPushCurrent(b));
  CUdevice of;
  CHECK_DRIVER(cuCtxGetDevice(&of));
  EXPECT_EQ(of, device);
  CUdeviceptr memory;
  CHECK_DRIVER(cuMemAlloc(&memory, 4096));
  CHECK_DRIVER(cuMemsetD32(memory, 7, 1024));
  CHECK_DRIVER(cuCtxSynchronize());
  unsigned word = 0;
  CHECK_DRIVER(cuMemcpyDtoH(&word, memory + 400, 4));
  EXPECT_EQ(word, 7u);

  std::thread([&] {
    CUcontext mine;
    CHECK_DRIVER(cuCtxGetCurrent(&mine));
    EXPECT(mine == nullptr);
    CUdeviceptr refused;
    EXPECT_CODE(CUDA_ERROR_INVALID_CONTEXT, cuMemAlloc(&refused, 16));
    CHECK_DRIVER(cuCtxSetCurrent(b));
    CHECK_DRIVER(cuMemsetD8(memory, 1, 16));
    CHECK_DRIVER(cuCtxSynchronize());
  }).join();

  CHECK_DRIVER(cuCtxDestroy(b));
  CHECK_DRIVER(cuCtxDestroy(a));
  EXPECT(cuCtxDestroy(a) != CUDA_SUCCESS);
}

int main() {
  CUdevice device;
  EXPECT_CODE(CUDA_ERROR_NOT_INITIALIZED, cuDeviceGet(&device, 0));
  CHECK_DRIVER(cuInit(0));
  EXPECT_CODE(CUDA_ERROR_INVALID_VALUE, cuInit(1));
  CHECK_DRIVER(cuDeviceGet(&device, 0));
  primary_context(device);
  stack(device);
  return passed();
}
