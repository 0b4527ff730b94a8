// nvcc: -lcuda
// Modules from PTX text: functions, their attributes and parameters, globals, launches in both forms of parameters.
#include <cstring>
#include <string>

#include "check.h"

static const char* kPtx = R"(
.version 8.0
.target sm_75
.address_size 64
.global .align 4 .u32 counter = 5;
.visible .entry scale(.param .u64 data, .param .u32 count, .param .f32 factor)
{
  .reg .pred %p;
  .reg .b32 %r<6>;
  .reg .f32 %f<4>;
  .reg .b64 %d<5>;
  ld.param.u64 %d1, [data];
  ld.param.u32 %r1, [count];
  ld.param.f32 %f1, [factor];
  mov.u32 %r2, %ctaid.x;
  mov.u32 %r3, %ntid.x;
  mov.u32 %r4, %tid.x;
  mad.lo.s32 %r5, %r2, %r3, %r4;
  setp.ge.u32 %p, %r5, %r1;
  @%p bra done;
  cvta.to.global.u64 %d2, %d1;
  mul.wide.u32 %d3, %r5, 4;
  add.s64 %d4, %d2, %d3;
  ld.global.f32 %f2, [%d4];
  mul.f32 %f3, %f2, %f1;
  st.global.f32 [%d4], %f3;
done:
  ret;
}
)";

int main() {
  CHECK_DRIVER(cuInit(0));
  CUdevice device;
  CUcontext context;
  CHECK_DRIVER(cuDeviceGet(&device, 0));
  CHECK_DRIVER(cuCtxCreate(&context, nullptr, 0, device));
  CUmodule module;
  CHECK_DRIVER(cuModuleLoadData(&module, kPtx));
  CUfunction function, missing;
  CHECK_DRIVER(cuModuleGetFunction(&function, module, "scale"));
  EXPECT_CODE(CUDA_ERROR_NOT_FOUND, cuModuleGetFunction(&missing, module, "no_such"));
  int threads = 0;
  CHECK_DRIVER(cuFuncGetAttribute(&threads, CU_FUNC_ATTRIBUTE_MAX_THREADS_PER_BLOCK, function));
  EXPECT(threads > 0 && threads <= 1024);
  size_t offset, size;
  CHECK_DRIVER(cuFuncGetParamInfo(function, 2, &offset, &size));
  EXPECT_EQ(offset, 12u);
  EXPECT_EQ(size, 4u);
  EXPECT_CODE(CUDA_ERROR_INVALID_VALUE, cuFuncGetParamInfo(function, 3, &offset, &size));

  CUdeviceptr counter;
  CHECK_DRIVER(cuModuleGetGlobal(&counter, &size, module, "counter"));
  EXPECT_EQ(size, 4u);
  unsigned value = 0;
  CHECK_DRIVER(cuMemcpyDtoH(&value, counter, 4));
  EXPECT_EQ(value, 5u);

  constexpr unsigned kCount = 1000;
  float data[kCount];
  for (unsigned i = 0; i < kCount; ++i) data[i] = i;
  CUdeviceptr memory;
  CHECK_DRIVER(cuMemAlloc(&memory, sizeof(data)));
  CHECK_DRIVER(cuMemcpyHtoD(memory, data, sizeof(data)));
  unsigned count = kCount;
  float factor = 2;
  void* parameters[] = {&memory, &count, &factor};
  CHECK_DRIVER(cuLaunchKernel(function, 8, 1, 1, 128, 1, 1, 0, nullptr, parameters, nullptr));
  struct {
    CUdeviceptr data;
    unsigned count;
    float factor;
  } packed{memory, kCount, 0.5f};
  size_t packed_size = sizeof(packed);
  void* extra[] = {CU_LAUNCH_PARAM_BUFFER_POINTER, &packed, CU_LAUNCH_PARAM_BUFFER_SIZE, &packed_size,
                   CU_LAUNCH_PARAM_END};
  CHECK_DRIVER(cuLaunchKernel(function, 4, 1, 1, 256, 1, 1, 0, nullptr, nullptr, extra));
  CHECK_DRIVER(cuLaunchKernel(function, 8, 1, 1, 128, 1, 1, 0, nullptr, parameters, nullptr));
  CHECK_DRIVER(cuMemcpyDtoH(data, memory, sizeof(data)));
  for (unsigned i = 0; i < kCount; ++i) EXPECT_EQ(data[i], 2.0f * i);

  char log[512] = "";
  CUjit_option options[] = {CU_JIT_ERROR_LOG_BUFFER, CU_JIT_ERROR_LOG_BUFFER_SIZE_BYTES};
  void* values[] = {log, reinterpret_cast<void*>(sizeof(log))};
  CUmodule broken;
  const std::string bad = std::string(kPtx).replace(std::string(kPtx).find("mul.f32"), 7, "mul.q99");
  EXPECT_CODE(CUDA_ERROR_INVALID_PTX, cuModuleLoadDataEx(&broken, bad.c_str(), 2, options, values));
  EXPECT(std::strlen(log) > 0);
  EXPECT(cuModuleLoadData(&broken, "this is no module") != CUDA_SUCCESS);
  CHECK_DRIVER(cuModuleUnload(module));
  CHECK_DRIVER(cuCtxDestroy(context));
  return passed();
}
