// Texture and surface references of a module: linear memory, rows, arrays and levels, bound anew between launches, and
// what is refused. The PTX is written by hand, because nvcc makes no references any more.
// nvcc: -arch=compute_75 -code=compute_75 -lcuda -Wno-deprecated-declarations
#include <cuda.h>

#include <algorithm>
#include <vector>

#include "check.h"

static const char kPtx[] = R"(.version 7.0
.target sm_75
.address_size 64
.global .texref line;
.global .texref plane;
.global .surfref cells;
.global .align 4 .u32 number;

.visible .entry fetch(.param .u64 out)
{
  .reg .b32 %r<4>; .reg .b64 %rd<4>; .reg .b32 %v<4>;
  mov.u32 %r1, %tid.x;
  tex.1d.v4.u32.s32 {%v0, %v1, %v2, %v3}, [line, {%r1}];
  ld.param.u64 %rd1, [out]; mul.wide.u32 %rd2, %r1, 4; add.u64 %rd1, %rd1, %rd2;
  st.global.u32 [%rd1], %v0;
  ret;
}

.visible .entry sample(.param .u64 out, .param .f32 scale)
{
  .reg .b32 %r<4>; .reg .b64 %rd<4>; .reg .f32 %f<8>;
  mov.u32 %r1, %tid.x; mov.u32 %r2, %tid.y; mov.u32 %r3, %ntid.x;
  ld.param.f32 %f4, [scale];
  cvt.rn.f32.u32 %f5, %r1; mul.f32 %f5, %f5, %f4; cvt.rn.f32.u32 %f6, %r2; mul.f32 %f6, %f6, %f4;
  tex.2d.v4.f32.f32 {%f0, %f1, %f2, %f3}, [plane, {%f5, %f6}];
  mad.lo.u32 %r1, %r2, %r3, %r1;
  ld.param.u64 %rd1, [out]; mul.wide.u32 %rd2, %r1, 4; add.u64 %rd1, %rd1, %rd2;
  st.global.f32 [%rd1], %f0;
  ret;
}

.visible .entry fill()
{
  .reg .b32 %r<8>;
  mov.u32 %r1, %tid.x; mov.u32 %r2, %tid.y; mov.u32 %r3, %ntid.x;
  mad.lo.u32 %r4, %r2, %r3, %r1; add.u32 %r4, %r4, 1000;
  shl.b32 %r5, %r1, 2;
  sust.b.2d.b32.trap [cells, {%r5, %r2}], {%r4};
  ret;
}
)";

static CUmodule g_module;
static CUstream g_stream;

template <class... Arguments>
static void launch(const char* name, unsigned x, unsigned y, Arguments... arguments) {
  CUfunction function;
  CHECK_DRIVER(cuModuleGetFunction(&function, g_module, name));
  void* pointers[] = {&arguments..., nullptr};
  CHECK_DRIVER(cuLaunchKernel(function, 1, 1, 1, x, y, 1, 0, g_stream, pointers, nullptr));
}

template <class T>
static std::vector<T> read(CUdeviceptr from, size_t n) {
  std::vector<T> values(n);
  CHECK_DRIVER(cuStreamSynchronize(g_stream));
  CHECK_DRIVER(cuMemcpyDtoH(values.data(), from, n * sizeof(T)));
  return values;
}

// Two launches in a row read what was bound at each.
static void check_linear(CUdeviceptr out) {
  CUtexref line, again;
  CHECK_DRIVER(cuModuleGetTexRef(&line, g_module, "line"));
  CHECK_DRIVER(cuModuleGetTexRef(&again, g_module, "line"));
  EXPECT(line == again);
  std::vector<unsigned> numbers(256);
  for (unsigned i = 0; i < 256; ++i) numbers[i] = i * i + 5;
  CUdeviceptr data;
  CHECK_DRIVER(cuMemAlloc(&data, 1024));
  CHECK_DRIVER(cuMemcpyHtoD(data, numbers.data(), 1024));
  CHECK_DRIVER(cuTexRefSetFormat(line, CU_AD_FORMAT_UNSIGNED_INT32, 1));
  CHECK_DRIVER(cuTexRefSetFlags(line, CU_TRSF_READ_AS_INTEGER));
  size_t offset = 1;
  CHECK_DRIVER(cuTexRefSetAddress(&offset, line, data, 1024));
  EXPECT_EQ(offset, size_t{0});
  launch("fetch", 64, 1, out);
  CHECK_DRIVER(cuTexRefSetAddress(&offset, line, data + 512, 512));
  launch("fetch", 64, 1, out + 256);
  const auto got = read<unsigned>(out, 128);
  for (unsigned i = 0; i < 128; ++i) EXPECT_EQ(got[i], numbers[i < 64 ? i : 128 + i - 64]);
  EXPECT_CODE(CUDA_ERROR_INVALID_VALUE, cuTexRefSetAddress(nullptr, line, data + 4, 256));
  CHECK_DRIVER(cuTexRefSetAddress(&offset, line, data + 516, 256));
  EXPECT_EQ(offset, size_t{4});
  CUdeviceptr bound = 0;
  CHECK_DRIVER(cuTexRefGetAddress(&bound, line));
  EXPECT(bound == data + 512);
  CUarray array;
  EXPECT_CODE(CUDA_ERROR_INVALID_VALUE, cuTexRefGetArray(&array, line));
  CHECK_DRIVER(cuMemFree(data));
}

static void check_rows(CUdeviceptr out) {
  CUtexref plane;
  CHECK_DRIVER(cuModuleGetTexRef(&plane, g_module, "plane"));
  CUdeviceptr data;
  size_t pitch;
  CHECK_DRIVER(cuMemAllocPitch(&data, &pitch, 32, 8, 4));
  std::vector<float> rows(pitch / 4 * 8);
  for (unsigned y = 0; y < 8; ++y)
    for (unsigned x = 0; x < 8; ++x) rows[y * pitch / 4 + x] = float(y * 10 + x);
  CHECK_DRIVER(cuMemcpyHtoD(data, rows.data(), pitch * 8));
  CUDA_ARRAY_DESCRIPTOR about{8, 8, CU_AD_FORMAT_FLOAT, 1};
  for (int axis = 0; axis < 2; ++axis) CHECK_DRIVER(cuTexRefSetAddressMode(plane, axis, CU_TR_ADDRESS_MODE_CLAMP));
  CHECK_DRIVER(cuTexRefSetFilterMode(plane, CU_TR_FILTER_MODE_POINT));
  CHECK_DRIVER(cuTexRefSetAddress2D(plane, &about, data, pitch));
  launch("sample", 12, 12, out, 1.0f);
  const auto got = read<float>(out, 144);
  for (int y = 0; y < 12; ++y)
    for (int x = 0; x < 12; ++x) EXPECT_EQ(got[y * 12 + x], float(std::min(y, 7) * 10 + std::min(x, 7)));
  CHECK_DRIVER(cuMemFree(data));
}

static void check_arrays(CUdeviceptr out) {
  CUtexref plane;
  CUsurfref cells;
  CHECK_DRIVER(cuModuleGetTexRef(&plane, g_module, "plane"));
  CHECK_DRIVER(cuModuleGetSurfRef(&cells, g_module, "cells"));
  CUDA_ARRAY3D_DESCRIPTOR about{};
  about.Width = about.Height = 8;
  about.Format = CU_AD_FORMAT_FLOAT;
  about.NumChannels = 1;
  about.Flags = CUDA_ARRAY3D_SURFACE_LDST;
  CUarray array, seen;
  CHECK_DRIVER(cuArray3DCreate(&array, &about));
  CHECK_DRIVER(cuSurfRefSetArray(cells, array, 0));
  CHECK_DRIVER(cuSurfRefGetArray(&seen, cells));
  EXPECT(seen == array);
  launch("fill", 8, 8);
  CHECK_DRIVER(cuStreamSynchronize(g_stream));
  std::vector<unsigned> values(64);
  CUDA_MEMCPY2D back{};
  back.srcMemoryType = CU_MEMORYTYPE_ARRAY;
  back.srcArray = array;
  back.dstMemoryType = CU_MEMORYTYPE_HOST;
  back.dstHost = values.data();
  back.dstPitch = back.WidthInBytes = 32;
  back.Height = 8;
  CHECK_DRIVER(cuMemcpy2D(&back));
  for (unsigned i = 0; i < 64; ++i) EXPECT_EQ(values[i], 1000 + i);

  // The same array read with a border, by coordinates from 0 to 1.
  std::vector<float> reals(64);
  for (int i = 0; i < 64; ++i) reals[i] = float(i);
  CUDA_MEMCPY2D there{};
  there.srcMemoryType = CU_MEMORYTYPE_HOST;
  there.srcHost = reals.data();
  there.srcPitch = there.WidthInBytes = 32;
  there.Height = 8;
  there.dstMemoryType = CU_MEMORYTYPE_ARRAY;
  there.dstArray = array;
  CHECK_DRIVER(cuMemcpy2D(&there));
  float border[4] = {-3, 0, 0, 0}, colour[4] = {};
  CHECK_DRIVER(cuTexRefSetBorderColor(plane, border));
  for (int axis = 0; axis < 2; ++axis) CHECK_DRIVER(cuTexRefSetAddressMode(plane, axis, CU_TR_ADDRESS_MODE_BORDER));
  CHECK_DRIVER(cuTexRefSetFlags(plane, CU_TRSF_NORMALIZED_COORDINATES));
  CHECK_DRIVER(cuTexRefSetArray(plane, array, CU_TRSA_OVERRIDE_FORMAT));
  launch("sample", 10, 10, out, 0.125f);
  const auto got = read<float>(out, 100);
  for (int y = 0; y < 10; ++y)
    for (int x = 0; x < 10; ++x) EXPECT_EQ(got[y * 10 + x], x < 8 && y < 8 ? reals[y * 8 + x] : -3.0f);
  CHECK_DRIVER(cuTexRefGetArray(&seen, plane));
  EXPECT(seen == array);
  CHECK_DRIVER(cuTexRefGetBorderColor(colour, plane));
  EXPECT_EQ(colour[0], -3.0f);
  unsigned flags = 0;
  CHECK_DRIVER(cuTexRefGetFlags(&flags, plane));
  EXPECT_EQ(flags, unsigned{CU_TRSF_NORMALIZED_COORDINATES});
  CUaddress_mode mode;
  CHECK_DRIVER(cuTexRefGetAddressMode(&mode, plane, 1));
  EXPECT_EQ(mode, CU_TR_ADDRESS_MODE_BORDER);
  EXPECT_CODE(CUDA_ERROR_INVALID_VALUE, cuTexRefSetArray(plane, array, 0));
  CHECK_DRIVER(cuArrayDestroy(array));
}

static void check_refusals() {
  CUtexref texture = nullptr, made = nullptr;
  CUsurfref surface = nullptr;
  EXPECT_CODE(CUDA_ERROR_NOT_FOUND, cuModuleGetTexRef(&texture, g_module, "nowhere"));
  EXPECT_CODE(CUDA_ERROR_NOT_FOUND, cuModuleGetTexRef(&texture, g_module, "number"));
  EXPECT_CODE(CUDA_ERROR_NOT_FOUND, cuModuleGetSurfRef(&surface, g_module, "line"));
  CHECK_DRIVER(cuTexRefCreate(&made));
  CHECK_DRIVER(cuTexRefSetFilterMode(made, CU_TR_FILTER_MODE_LINEAR));
  CUfilter_mode filter;
  CHECK_DRIVER(cuTexRefGetFilterMode(&filter, made));
  EXPECT_EQ(filter, CU_TR_FILTER_MODE_LINEAR);
  CHECK_DRIVER(cuTexRefDestroy(made));
}

int main() {
  CHECK(cudaFree(nullptr));
  CHECK_DRIVER(cuModuleLoadData(&g_module, kPtx));
  CHECK_DRIVER(cuStreamCreate(&g_stream, CU_STREAM_DEFAULT));
  CUdeviceptr out;
  CHECK_DRIVER(cuMemAlloc(&out, 1024));
  check_linear(out);
  check_rows(out);
  check_arrays(out);
  check_refusals();
  CHECK_DRIVER(cuModuleUnload(g_module));
  return passed();
}
