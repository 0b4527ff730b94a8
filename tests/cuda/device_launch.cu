// nvcc: -rdc=true -lcudadevrt
// Kernels that launch kernels: order in a block's stream and in streams of the grid's own, tail launches, launches to
// be forgotten, recursion, questions about the device, and that the host waits for all of it.
#include "check.h"
#include "parts.cuh"

__global__ void append(int* log, int value) {
  const int at = atomicAdd(&log[0], 1);
  log[1 + at] = value;
}

__global__ void fill(int* data, int base, int step) {
  data[blockIdx.x * blockDim.x + threadIdx.x] = base + step * static_cast<int>(blockIdx.x * blockDim.x + threadIdx.x);
}

__global__ void one_stream(int* log, int count) {
  for (int i = 0; i < count; ++i) append<<<1, 1>>>(log, i);
}

static int* zeros(int count) {
  int* data = nullptr;
  CHECK(cudaMalloc(&data, count * sizeof(int)));
  CHECK(cudaMemset(data, 0, count * sizeof(int)));
  return data;
}

static void get(int* to, const int* from, int count) {
  CHECK(cudaDeviceSynchronize());
  CHECK(cudaMemcpy(to, from, count * sizeof(int), cudaMemcpyDeviceToHost));
}

static void in_order() {
  int* const log = zeros(101);
  int got[101];
  one_stream<<<1, 1>>>(log, 100);
  get(got, log, 101);
  EXPECT_EQ(got[0], 100);
  for (int i = 0; i < 100; ++i) EXPECT_EQ(got[1 + i], i);
}

__global__ void many(int* data) { fill<<<2, 32>>>(data + 64 * (blockIdx.x * blockDim.x + threadIdx.x), 5, 1); }

static void many_parents() {
  constexpr int kParents = 4 * 40;
  int* const data = zeros(kParents * 64);
  static int got[kParents * 64];
  many<<<4, 40>>>(data);
  get(got, data, kParents * 64);
  for (int i = 0; i < kParents * 64; ++i) EXPECT_EQ(got[i], 5 + i % 64);
}

__global__ void tails(int* log) {
  append<<<1, 1, 0, cudaStreamTailLaunch>>>(log, 100);
  append<<<1, 1, 0, cudaStreamTailLaunch>>>(log, 101);
  append<<<1, 1, 0, cudaStreamFireAndForget>>>(log, 1);
  append<<<1, 1>>>(log, 2);
}

__global__ void nested(int* log) {
  tails<<<1, 1>>>(log);
  append<<<1, 1>>>(log, 200);
  append<<<1, 1, 0, cudaStreamTailLaunch>>>(log, 300);
}

static void tail_launches() {
  int* const log = zeros(8);
  int got[8];
  nested<<<1, 1>>>(log);
  append<<<1, 1>>>(log, 400);  // behind all of that in the host's stream
  get(got, log, 8);
  EXPECT_EQ(got[0], 7);
  EXPECT_EQ(got[1] + got[2], 3);
  const int after[] = {100, 101, 200, 300, 400};
  for (int i = 0; i < 5; ++i) EXPECT_EQ(got[3 + i], after[i]);
}

// Each takes the place of its parent, and is as deep.
__global__ void next(int* log, int left, int* errors) {
  if (left > 0) next<<<1, 1, 0, cudaStreamTailLaunch>>>(log, left - 1, errors);
  *errors += cudaGetLastError() != cudaSuccess;
  if (left == 0) append<<<1, 1>>>(log, 500);
}

__global__ void tails_and_more(int* log, int left, int* errors) {
  next<<<1, 1>>>(log, left, errors);
  append<<<1, 1>>>(log, 501);
}

static void chains_of_tail_launches() {
  int *const log = zeros(4), *const errors = zeros(1);
  int got[4], wrong = 0;
  tails_and_more<<<1, 1>>>(log, 1000, errors);
  append<<<1, 1>>>(log, 502);
  get(got, log, 4);
  get(&wrong, errors, 1);
  EXPECT_EQ(wrong, 0);
  EXPECT_EQ(got[0], 3);
  for (int i = 0; i < 3; ++i) EXPECT_EQ(got[1 + i], 500 + i);
}

__global__ void streams(int* log, int* errors) {
  cudaStream_t a, b;
  cudaEvent_t event;
  *errors += cudaStreamCreateWithFlags(&a, cudaStreamNonBlocking) != cudaSuccess;
  *errors += cudaStreamCreateWithFlags(&b, cudaStreamNonBlocking) != cudaSuccess;
  *errors += cudaEventCreateWithFlags(&event, cudaEventDisableTiming) != cudaSuccess;
  append<<<1, 1, 0, a>>>(log, 1);
  *errors += cudaEventRecord(event, a) != cudaSuccess;
  *errors += cudaStreamWaitEvent(b, event, 0) != cudaSuccess;
  append<<<1, 1, 0, b>>>(log, 2);
  *errors += cudaEventDestroy(event) != cudaSuccess;
  *errors += cudaStreamDestroy(a) != cudaSuccess;
  *errors += cudaStreamDestroy(b) != cudaSuccess;
  *errors += cudaGetLastError() != cudaSuccess;
}

static void streams_and_events() {
  int *const log = zeros(3), *const errors = zeros(1);
  int got[3], wrong = 0;
  streams<<<1, 1>>>(log, errors);
  get(got, log, 3);
  get(&wrong, errors, 1);
  EXPECT_EQ(wrong, 0);
  EXPECT_EQ(got[1], 1);
  EXPECT_EQ(got[2], 2);
}

__global__ void down(int* count, int depth) {
  atomicAdd(count, 1);
  if (depth > 0 && threadIdx.x < 2) down<<<1, 2>>>(count, depth - 1);
}

__global__ void chain(int* count, int depth) {
  ++*count;
  if (depth > 0) chain<<<1, 1>>>(count, depth - 1);
}

static void recursion() {
  int* const count = zeros(1);
  int got = 0;
  down<<<1, 2>>>(count, 8);
  get(&got, count, 1);
  EXPECT_EQ(got, 2 * 511);
  int* const levels = zeros(1);
  chain<<<1, 1>>>(levels, 24);  // as deep as there may be
  get(&got, levels, 1);
  EXPECT_EQ(got, 25);
}

__global__ void questions(int* data, int* errors) {
  int device = 7, warp = 0, blocks = 0;
  void* memory = nullptr;
  cudaFuncAttributes attributes;
  *errors += cudaGetDevice(&device) != cudaSuccess || device != 0;
  *errors += cudaDeviceGetAttribute(&warp, cudaDevAttrWarpSize, 0) != cudaSuccess || warp != 32;
  *errors += cudaMalloc(&memory, 100) != cudaSuccess || !memory;
  *errors += cudaFree(memory) != cudaSuccess;
  *errors += cudaFuncGetAttributes(&attributes, append) != cudaSuccess || attributes.maxThreadsPerBlock < 32;
  *errors += cudaOccupancyMaxActiveBlocksPerMultiprocessor(&blocks, append, 32, 0) != cudaSuccess || blocks < 1;
  append<<<1, 2000>>>(data, 1);  // too many threads
  const cudaError_t last = cudaGetLastError();
  *errors += last != cudaErrorInvalidConfiguration;
  const char wanted[] = "invalid configuration argument";
  const char* const text = cudaGetErrorString(last);
  for (int i = 0; i < int(sizeof wanted); ++i) *errors += text[i] != wanted[i];
  *errors += cudaGetErrorName(cudaSuccess)[4] != 'S';
}

static void device_questions() {
  int *const data = zeros(2), *const errors = zeros(1);
  int got = 7, wrong = 0;
  questions<<<1, 1>>>(data, errors);
  get(&got, data, 1);
  get(&wrong, errors, 1);
  EXPECT_EQ(wrong, 0);
  EXPECT_EQ(got, 0);
}

__global__ void store(int* to) { *to = 1; }
__global__ void parent_of_store(int* to) { store<<<1, 1>>>(to); }

static void faults() {
  parent_of_store<<<1, 1>>>(reinterpret_cast<int*>(16));
  EXPECT_CODE(cudaErrorIllegalAddress, cudaDeviceSynchronize());
}

int main() {
  return run_parts({
      {"order in a block", in_order},
      {"many parents", many_parents},
      {"tail launches", tail_launches},
      {"chains of tail launches", chains_of_tail_launches},
      {"streams and events", streams_and_events},
      {"recursion", recursion},
      {"questions", device_questions},
      {"faults", faults},
  });
}
