// Managed variables of every kind: arrays, a structure that two kernels use, pointers to device variables and to
// functions as initial values, private ones, oddly aligned ones; their addresses by every way there is.
// vm: yes
#include <cstring>

#include "check.h"

struct State {
  int rounds;
  double sum;
  int* where;
  State* next;
};

__device__ int device_value = 3;
__device__ int device_list[4] = {10, 20, 30, 40};
__device__ int twice(int a) { return 2 * a; }
typedef int (*Unary)(int);

__managed__ State state = {1, 2.5, nullptr, nullptr};
__managed__ State second;
__managed__ int grid[8][16];
__managed__ double table[3] = {0.5, -1.5, 1e300};
__managed__ int* to_device = &device_value;
__managed__ int* into_list = &device_list[2];
__managed__ Unary function = twice;
__managed__ __align__(256) char aligned[3] = "ab";
__managed__ unsigned long long counter;
static __managed__ short hidden = -7;
__managed__ int large[1 << 20];  // 4 MiB: blocks of it move
__device__ State* from_device;   // a managed variable's address, stored by a kernel

__global__ void begin() {
  state.where = &grid[3][5];
  state.next = &second;
  second.sum = table[1];
  from_device = &state;
}

__global__ void go_on(const int* input) {
  State* at = from_device;
  if (blockIdx.x == 0 && threadIdx.x == 0) {
    ++at->rounds;
    at->sum += at->next->sum;
    *at->where = *to_device + *into_list + function(hidden);
    if (aligned[1] == 'b')
      aligned[1] = 'c';
    else
      hidden = 0;
  }
  atomicAdd(&counter, 1ull);
  const int i = threadIdx.x % 16;
  if (threadIdx.x < 16 && blockIdx.x == 1) grid[7][i] = input[i] * state.rounds;
}

__global__ void sum_up(int add) {
  for (int i = threadIdx.x; i < 1 << 20; i += blockDim.x) large[i] += add + i;
}

static void move_large() {
  for (int i = 0; i < 1 << 20; ++i) large[i] = i;
  sum_up<<<1, 256>>>(7);
  CHECK(cudaDeviceSynchronize());
  for (int i = 0; i < 1 << 20; i += 1000) EXPECT_EQ(large[i], 2 * i + 7);
  large[5] = 0;  // one block comes and goes
  sum_up<<<1, 256>>>(1);
  CHECK(cudaDeviceSynchronize());
  EXPECT_EQ(large[5], 6);
  EXPECT_EQ(large[1 << 19], 3 * (1 << 19) + 8);
}

int main() {
  // Initial values are there before any kernel has run.
  EXPECT_EQ(state.rounds, 1);
  EXPECT_EQ(state.sum, 2.5);
  EXPECT_EQ(table[2], 1e300);
  EXPECT_EQ(hidden, -7);
  EXPECT_EQ(counter, 0);
  EXPECT(std::strcmp(aligned, "ab") == 0 && reinterpret_cast<size_t>(&aligned) % 256 == 0);
  for (const auto& row : grid)
    for (const int element : row) EXPECT_EQ(element, 0);
  state.rounds = 5;

  begin<<<1, 1>>>();
  CHECK(cudaDeviceSynchronize());
  EXPECT(state.where == &grid[3][5] && state.next == &second);
  EXPECT_EQ(second.sum, -1.5);

  go_on<<<4, 64>>>(&grid[0][0]);  // an input that the program may change until the launch
  CHECK(cudaDeviceSynchronize());
  EXPECT_EQ(state.rounds, 6);
  EXPECT_EQ(state.sum, 1.0);
  EXPECT_EQ(grid[3][5], 3 + 30 - 14);
  EXPECT_EQ(counter, 256);
  EXPECT(std::strcmp(aligned, "ac") == 0);

  for (int i = 0; i < 16; ++i) grid[1][i] = i;
  go_on<<<4, 64>>>(grid[1]);
  CHECK(cudaDeviceSynchronize());
  EXPECT_EQ(counter, 512);
  for (int i = 0; i < 16; ++i) EXPECT(grid[7][i] == 6 * i || grid[7][i] == 7 * i);  // before or after the other block

  void* address = nullptr;
  CHECK(cudaGetSymbolAddress(&address, grid));
  EXPECT(address == grid);
  size_t bytes = 0;
  CHECK(cudaGetSymbolSize(&bytes, state));
  EXPECT_EQ(bytes, sizeof(State));
  const double changed = 4.25;
  CHECK(cudaMemcpyToSymbol(table, &changed, sizeof changed, sizeof changed));
  CHECK(cudaDeviceSynchronize());
  EXPECT_EQ(table[1], 4.25);
  CHECK(cudaMemset(grid, 0xff, sizeof grid));
  CHECK(cudaDeviceSynchronize());
  EXPECT_EQ(grid[7][15], -1);
  cudaPointerAttributes attributes;
  CHECK(cudaPointerGetAttributes(&attributes, &counter));
  EXPECT(attributes.type == cudaMemoryTypeManaged && attributes.devicePointer == &counter);

  move_large();

  // Captured and replayed.
  cudaStream_t stream;
  cudaGraph_t graph;
  cudaGraphExec_t exec;
  CHECK(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
  counter = 0;
  CHECK(cudaStreamBeginCapture(stream, cudaStreamCaptureModeGlobal));
  go_on<<<2, 32, 0, stream>>>(grid[1]);
  CHECK(cudaStreamEndCapture(stream, &graph));
  CHECK(cudaGraphInstantiate(&exec, graph, 0));
  for (int i = 0; i < 3; ++i) CHECK(cudaGraphLaunch(exec, stream));
  CHECK(cudaStreamSynchronize(stream));
  EXPECT_EQ(counter, 3 * 64);
  return passed();
}
