// nvcc: -lcuda
// Libraries: kernels and globals of an image that belongs to no context.
#include <cstring>

#include "check.h"

static const char* kPtx = R"(
.version 8.0
.target sm_75
.address_size 64
.visible .global .align 8 .u64 total;
.visible .entry first(.param .u64 value) { .reg .b64 %d<2>; ld.param.u64 %d1, [value]; st.global.u64 [total], %d1; ret; }
.visible .entry second() { .reg .b64 %d<3>; ld.global.u64 %d1, [total]; add.u64 %d2, %d1, 1; st.global.u64 [total], %d2; ret; }
)";

int main() {
  CHECK_DRIVER(cuInit(0));
  CUlibrary library;
  CHECK_DRIVER(cuLibraryLoadData(&library, kPtx, nullptr, nullptr, 0, nullptr, nullptr, 0));
  unsigned count = 0;
  CHECK_DRIVER(cuLibraryGetKernelCount(&count, library));
  EXPECT_EQ(count, 2u);
  CUkernel kernels[2], first, second;
  CHECK_DRIVER(cuLibraryEnumerateKernels(kernels, 2, library));
  CHECK_DRIVER(cuLibraryGetKernel(&first, library, "first"));
  CHECK_DRIVER(cuLibraryGetKernel(&second, library, "second"));
  EXPECT_CODE(CUDA_ERROR_NOT_FOUND, cuLibraryGetKernel(&second, library, "third"));
  const char* name = nullptr;
  CHECK_DRIVER(cuKernelGetName(&name, first));
  EXPECT(std::strcmp(name, "first") == 0);
  EXPECT_CODE(CUDA_ERROR_INVALID_VALUE, cuKernelGetName(&name, nullptr));
  EXPECT_CODE(CUDA_ERROR_INVALID_VALUE, cuFuncGetName(&name, nullptr));
  size_t offset, size;

  CUdevice device;
  CHECK_DRIVER(cuDeviceGet(&device, 0));
  for (int round = 0; round < 2; ++round) {  // each context has a copy of the global
    CUcontext context;
    CHECK_DRIVER(cuCtxCreate(&context, nullptr, 0, device));
    CHECK_DRIVER(cuKernelGetParamInfo(first, 0, &offset, &size));
    EXPECT(offset == 0 && size == 8);
    CUfunction function;
    CHECK_DRIVER(cuKernelGetFunction(&function, first));
    unsigned long long value = 40 + round;
    void* parameters[] = {&value};
    CHECK_DRIVER(cuLaunchKernel(function, 1, 1, 1, 1, 1, 1, 0, nullptr, parameters, nullptr));
    CHECK_DRIVER(cuLibraryGetKernel(&second, library, "second"));
    CHECK_DRIVER(cuLaunchKernel(reinterpret_cast<CUfunction>(second), 1, 1, 1, 1, 1, 1, 0, nullptr, nullptr, nullptr));
    CUdeviceptr total;
    CHECK_DRIVER(cuLibraryGetGlobal(&total, &size, library, "total"));
    EXPECT_EQ(size, 8u);
    unsigned long long result = 0;
    CHECK_DRIVER(cuMemcpyDtoH(&result, total, 8));
    EXPECT_EQ(result, 41ull + round);
    CHECK_DRIVER(cuCtxDestroy(context));
  }
  CHECK_DRIVER(cuLibraryUnload(library));
  return passed();
}
