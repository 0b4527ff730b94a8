// nvcc: -lcuda
// Green contexts: parts of the SMs, which share the primary context's memory and code.
#include <set>
#include <vector>

#include "check.h"

__device__ int variable;

__global__ void add(int* data, int count, int amount) {
  const int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < count) data[i] += amount + variable;
}

// Says on which SM each block runs, after enough work for all SMs to get some.
__global__ void where(unsigned* sms, int rounds) {
  unsigned value = blockIdx.x, sm;
  for (int i = 0; i < rounds; i++) value = value * 1664525u + 1013904223u;
  asm volatile("mov.u32 %0, %%smid;" : "=r"(sm));
  if (threadIdx.x == 0) sms[blockIdx.x] = value == 1 ? 0xffffffffu : sm;
}

// How many SMs the blocks of one launch on this stream were on.
size_t sms_used(CUstream stream) {
  constexpr int kBlocks = 2048;
  unsigned* sms = nullptr;
  CHECK(cudaMalloc(&sms, kBlocks * sizeof(unsigned)));
  where<<<kBlocks, 64, 0, stream>>>(sms, 2000);
  CHECK(cudaGetLastError());
  CHECK_DRIVER(cuStreamSynchronize(stream));
  std::vector<unsigned> host(kBlocks);
  CHECK(cudaMemcpy(host.data(), sms, kBlocks * sizeof(unsigned), cudaMemcpyDeviceToHost));
  CHECK(cudaFree(sms));
  return std::set<unsigned>(host.begin(), host.end()).size();
}

// The runtime of CUDA 13.1 and later has one handle for a green context and its CUcontext, and asks the driver by a
// private table whether a context is green and whose part it is.
static void seen_by_the_runtime(CUgreenCtx green, CUcontext context, CUcontext primary) {
  const CUuuid checks = {{0x26, 0x3e, static_cast<char>(0x88), 0x60, 0x7c, static_cast<char>(0xd2), 0x61, 0x43,
                          static_cast<char>(0x92), static_cast<char>(0xf6), static_cast<char>(0xbb),
                          static_cast<char>(0xd5), 0x00, 0x6d, static_cast<char>(0xfa), 0x7e}};
  using Check = CUresult (*)(CUcontext, unsigned*, CUcontext*);
  const void* table = nullptr;
  CHECK_DRIVER(cuGetExportTable(&table, &checks));
  const Check check = static_cast<const Check*>(table)[2];
  unsigned is_green = 7;
  CUcontext of = nullptr;
  CHECK_DRIVER(check(context, &is_green, &of));
  EXPECT(is_green == 1 && of == primary);
  CHECK_DRIVER(check(primary, &is_green, &of));
  EXPECT_EQ(is_green, 0u);
  EXPECT(static_cast<void*>(green) == static_cast<void*>(context));
}

// Also where these are no whole number of the groups that the driver splits by.
static void runs_on_all_of(CUdevResource sms) {
  CUdevResourceDesc description;
  CUgreenCtx green;
  CUstream stream;
  CHECK_DRIVER(cuDevResourceGenerateDesc(&description, &sms, 1));
  CHECK_DRIVER(cuGreenCtxCreate(&green, description, 0, CU_GREEN_CTX_DEFAULT_STREAM));
  CHECK_DRIVER(cuGreenCtxStreamCreate(&stream, green, CU_STREAM_NON_BLOCKING, 0));
  EXPECT(sms_used(stream) <= sms.sm.smCount);
  CHECK_DRIVER(cuStreamDestroy(stream));
  CHECK_DRIVER(cuGreenCtxDestroy(green));
}

int main() {
  CHECK(cudaFree(nullptr));
  CUcontext primary;
  CHECK_DRIVER(cuCtxGetCurrent(&primary));
  CUdevResource all;
  CHECK_DRIVER(cuDeviceGetDevResource(0, &all, CU_DEV_RESOURCE_TYPE_SM));
  unsigned possible = 0;
  CHECK_DRIVER(cuDevSmResourceSplitByCount(nullptr, &possible, &all, nullptr, 0, 1));
  EXPECT(possible >= 1 && possible <= all.sm.smCount);
  unsigned count = possible < 2 ? possible : 2;
  CUdevResource groups[2], rest;
  CHECK_DRIVER(cuDevSmResourceSplitByCount(groups, &count, &all, &rest, 0, 1));
  unsigned sum = 0;
  for (unsigned i = 0; i < count; i++) sum += groups[i].sm.smCount;
  if (rest.type == CU_DEV_RESOURCE_TYPE_SM) sum += rest.sm.smCount;
  EXPECT_EQ(sum, all.sm.smCount);
  unsigned one = 1;
  CUdevResource whole;
  EXPECT(cuDevSmResourceSplitByCount(&whole, &one, &all, nullptr, 0, all.sm.smCount + 1) != CUDA_SUCCESS);

  constexpr int kCount = 1 << 16;
  int* data = nullptr;
  CHECK(cudaMalloc(&data, kCount * sizeof(int)));
  CHECK(cudaMemset(data, 0, kCount * sizeof(int)));
  const int three = 3;
  CHECK(cudaMemcpyToSymbol(variable, &three, sizeof(three)));
  CHECK(cudaDeviceSynchronize());

  CUgreenCtx green[2];
  CUstream streams[2];
  CUevent event;
  CHECK_DRIVER(cuEventCreate(&event, CU_EVENT_DISABLE_TIMING));
  for (unsigned i = 0; i < count; i++) {
    CUdevResourceDesc description;
    CHECK_DRIVER(cuDevResourceGenerateDesc(&description, &groups[i], 1));
    CHECK_DRIVER(cuGreenCtxCreate(&green[i], description, 0, CU_GREEN_CTX_DEFAULT_STREAM));
    CUdevResource mine;
    CHECK_DRIVER(cuGreenCtxGetDevResource(green[i], &mine, CU_DEV_RESOURCE_TYPE_SM));
    EXPECT_EQ(mine.sm.smCount, groups[i].sm.smCount);
    CHECK_DRIVER(cuGreenCtxStreamCreate(&streams[i], green[i], CU_STREAM_NON_BLOCKING, 0));
    CUgreenCtx of = nullptr;
    CHECK_DRIVER(cuStreamGetGreenCtx(streams[i], &of));
    EXPECT(of == green[i]);
    CUcontext context;
    CHECK_DRIVER(cuCtxFromGreenCtx(&context, green[i]));
    EXPECT(context && context != primary);
    seen_by_the_runtime(green[i], context, primary);
    CHECK_DRIVER(cuCtxGetDevResource(context, &mine, CU_DEV_RESOURCE_TYPE_SM));
    EXPECT_EQ(mine.sm.smCount, groups[i].sm.smCount);
    EXPECT(sms_used(streams[i]) <= groups[i].sm.smCount);
    add<<<kCount / 256, 256, 0, streams[i]>>>(data, kCount, 10);
    CHECK(cudaGetLastError());
    CHECK_DRIVER(cuGreenCtxRecordEvent(green[i], event));
    CHECK_DRIVER(cuEventSynchronize(event));
  }
  std::vector<int> host(kCount);
  CHECK(cudaMemcpy(host.data(), data, kCount * sizeof(int), cudaMemcpyDeviceToHost));
  for (int i = 0; i < kCount; i++) EXPECT_EQ(host[i], 13 * static_cast<int>(count));
  for (unsigned i = 0; i < count; i++) {
    CHECK_DRIVER(cuStreamDestroy(streams[i]));
    CHECK_DRIVER(cuGreenCtxDestroy(green[i]));
  }
  if (rest.type == CU_DEV_RESOURCE_TYPE_SM) runs_on_all_of(rest);
  runs_on_all_of(all);
  CUdevResourceDesc first;
  CHECK_DRIVER(cuDevResourceGenerateDesc(&first, &groups[0], 1));
  EXPECT_CODE(CUDA_ERROR_INVALID_VALUE, cuGreenCtxCreate(&green[0], first, 0, 2));
  CHECK_DRIVER(cuGreenCtxCreate(&green[0], first, 0, 0));  // as the runtime of CUDA 13.1 and later asks
  CHECK_DRIVER(cuGreenCtxDestroy(green[0]));
  CUgreenCtx none = green[0];
  CUstream plain;
  CHECK_DRIVER(cuStreamCreate(&plain, CU_STREAM_NON_BLOCKING));
  CHECK_DRIVER(cuStreamGetGreenCtx(plain, &none));
  EXPECT(none == nullptr);
  return passed();
}
