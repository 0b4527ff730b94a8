// nvcc: -lcuda
// Launches that cannot be are refused with CUDA's code by the launch itself, and leave no mark.
#include "bad_input.cuh"

static const char* kPtx = R"(
.version 8.0
.target sm_75
.address_size 64
.extern .shared .align 16 .b8 dynamic[];
.visible .entry fill(.param .u64 data, .param .u32 value)
{
  .shared .align 4 .b8 fixed[1024];
  .reg .b32 %r<4>;
  .reg .b64 %d<4>;
  ld.param.u64 %d1, [data];
  ld.param.u32 %r1, [value];
  mov.u32 %r2, %tid.x;
  st.shared.u32 [fixed], %r1;
  mul.wide.u32 %d2, %r2, 4;
  add.s64 %d3, %d1, %d2;
  st.global.u32 [%d3], %r1;
  ret;
}
.visible .entry narrow() .maxntid 64, 1, 1 { ret; }
)";

struct Shape {
  unsigned grid[3], block[3], shared;
};

static CUresult launch(CUfunction function, const Shape& shape, CUdeviceptr data, unsigned value) {
  void* parameters[] = {&data, &value};
  return cuLaunchKernel(function, shape.grid[0], shape.grid[1], shape.grid[2], shape.block[0], shape.block[1],
                        shape.block[2], shape.shared, nullptr, parameters, nullptr);
}

static void dimensions(CUfunction function, CUdeviceptr data) {
  const Shape shapes[] = {
      {{0, 1, 1}, {32, 1, 1}, 0},          {{1, 0, 1}, {32, 1, 1}, 0},    {{1, 1, 0}, {32, 1, 1}, 0},
      {{1, 1, 1}, {0, 1, 1}, 0},           {{1, 1, 1}, {1, 0, 1}, 0},     {{1, 1, 1}, {1, 1, 0}, 0},
      {{1, 1, 1}, {1025, 1, 1}, 0},        {{1, 1, 1}, {1, 1025, 1}, 0},  {{1, 1, 1}, {1, 1, 65}, 0},
      {{1, 1, 1}, {64, 32, 1}, 0},         {{1, 1, 1}, {~0u, 1, 1}, 0},   {{1, 1, 1}, {65536, 65536, 1}, 0},
      {{0x80000000u, 1, 1}, {1, 1, 1}, 0}, {{1, 65536, 1}, {1, 1, 1}, 0}, {{1, 1, 65536}, {1, 1, 1}, 0},
      {{~0u, ~0u, ~0u}, {1, 1, 1}, 0},
  };
  for (const Shape& shape : shapes) EXPECT_CODE(CUDA_ERROR_INVALID_VALUE, launch(function, shape, data, 1));
}

static void shared_memory(CUfunction function, CUdeviceptr data) {
  for (const unsigned bytes : {49152u, 65536u, 1u << 20, ~0u}) {  // 1 KiB is taken
    EXPECT_CODE(CUDA_ERROR_INVALID_VALUE, launch(function, {{1, 1, 1}, {32, 1, 1}, bytes}, data, 1));
  }
  int most = 0;
  CHECK_DRIVER(cuDeviceGetAttribute(&most, CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN, 0));
  constexpr auto kDynamic = CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES;
  EXPECT_CODE(CUDA_ERROR_INVALID_VALUE, cuFuncSetAttribute(function, kDynamic, most));
  EXPECT_CODE(CUDA_ERROR_INVALID_VALUE, cuFuncSetAttribute(function, kDynamic, -1));
  CHECK_DRIVER(cuFuncSetAttribute(function, kDynamic, most - 1024));
  const auto large = static_cast<unsigned>(most - 1024);
  CHECK_DRIVER(launch(function, {{1, 1, 1}, {32, 1, 1}, large}, data, 1));
  EXPECT_CODE(CUDA_ERROR_INVALID_VALUE, launch(function, {{1, 1, 1}, {32, 1, 1}, large + 1}, data, 1));
}

static void parameters(CUfunction function, CUdeviceptr data) {
  struct {
    CUdeviceptr data;
    unsigned value;
    char more[4096];
  } packed{data, 7, {}};
  size_t bytes = 12;
  void* extra[] = {CU_LAUNCH_PARAM_BUFFER_POINTER, &packed, CU_LAUNCH_PARAM_BUFFER_SIZE, &bytes, CU_LAUNCH_PARAM_END};
  const auto run = [&](void** list, void** other) {
    return cuLaunchKernel(function, 1, 1, 1, 1, 1, 1, 0, nullptr, list, other);
  };
  CHECK_DRIVER(run(nullptr, extra));
  bytes = sizeof(packed);
  EXPECT_ONE_OF(run(nullptr, extra), CUDA_ERROR_INVALID_VALUE, CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES);
  bytes = ~size_t{0};
  EXPECT_ONE_OF(run(nullptr, extra), CUDA_ERROR_INVALID_VALUE, CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES);
  void* unknown[] = {reinterpret_cast<void*>(0x77), &packed, CU_LAUNCH_PARAM_END};
  EXPECT_CODE(CUDA_ERROR_INVALID_VALUE, run(nullptr, unknown));
  EXPECT_CODE(CUDA_ERROR_INVALID_VALUE, run(nullptr, nullptr));
  bytes = 12;
  void* list[] = {&packed.data, &packed.value};
  EXPECT_CODE(CUDA_ERROR_INVALID_VALUE, run(list, extra));
}

static void attributes(CUfunction function, CUdeviceptr data) {
  unsigned value = 1;
  void* parameters[] = {&data, &value};
  CUlaunchConfig config{};
  config.gridDimX = config.gridDimY = config.gridDimZ = 1;
  config.blockDimX = config.blockDimY = config.blockDimZ = 1;
  CUlaunchAttribute attribute{};
  config.attrs = &attribute;
  config.numAttrs = 1;
  attribute.id = static_cast<CUlaunchAttributeID>(12345);
  EXPECT_REFUSED(cuLaunchKernelEx(&config, function, parameters, nullptr));
  attribute.id = CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION;
  attribute.value.clusterDim = {3, 1, 1};  // does not divide the grid
  EXPECT_REFUSED(cuLaunchKernelEx(&config, function, parameters, nullptr));
  attribute.value.clusterDim = {1u << 20, 1, 1};
  EXPECT_REFUSED(cuLaunchKernelEx(&config, function, parameters, nullptr));
  attribute.value.clusterDim = {0, 1, 1};
  EXPECT_REFUSED(cuLaunchKernelEx(&config, function, parameters, nullptr));
  // More blocks than are resident at once cannot wait for each other.
  EXPECT_CODE(CUDA_ERROR_COOPERATIVE_LAUNCH_TOO_LARGE,
              cuLaunchCooperativeKernel(function, 1 << 20, 1, 1, 32, 1, 1, 0, nullptr, parameters));
}

int main() {
  CHECK(cudaFree(nullptr));
  CUmodule module;
  CUfunction function, narrow;
  CUdeviceptr data;
  CHECK_DRIVER(cuModuleLoadData(&module, kPtx));
  CHECK_DRIVER(cuModuleGetFunction(&function, module, "fill"));
  CHECK_DRIVER(cuModuleGetFunction(&narrow, module, "narrow"));
  CHECK_DRIVER(cuMemAlloc(&data, 4096));
  dimensions(function, data);
  shared_memory(function, data);
  parameters(function, data);
  attributes(function, data);
  EXPECT_CODE(CUDA_ERROR_INVALID_VALUE, cuLaunchKernel(narrow, 1, 1, 1, 128, 1, 1, 0, nullptr, nullptr, nullptr));
  CHECK_DRIVER(cuCtxSynchronize());
  CHECK_DRIVER(launch(function, {{1, 1, 1}, {1024, 1, 1}, 0}, data, 9));
  unsigned last = 0;
  CHECK_DRIVER(cuMemcpyDtoH(&last, data + 4092, 4));
  EXPECT_EQ(last, 9u);
  CHECK_DRIVER(cuModuleUnload(module));
  real_work();
  return passed();
}
