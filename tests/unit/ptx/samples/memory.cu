// Shared and constant memory, atomics, local arrays, structures with pointers in initial values, managed variables.
#include <cuda/atomic>

struct Node {
  const int* data;
  char tag;
  double weight;
  const Node* next;
};
__device__ int numbers[4] = {1, -2, 3, 4};
__device__ int* third = &numbers[2];
__device__ Node last = {&numbers[3], 'x', 0.25, nullptr};
__constant__ Node nodes[2] = {{numbers, 'a', 1.5, &last}, {&numbers[2], 'b', -2.5, &last}};
__managed__ unsigned counter = 7;
__device__ __align__(1) char bytes_and_pointer[3] = "ab";
extern __shared__ float dynamic[];

__global__ void __launch_bounds__(256, 2) memory(float* __restrict__ out, const float4* __restrict__ in, int n) {
  __shared__ float tile[16][17];
  __shared__ int hits;
  int x = threadIdx.x % 16, y = threadIdx.x / 16, i = blockIdx.x * blockDim.x + threadIdx.x;
  if (threadIdx.x == 0) hits = 0;
  __syncthreads();
  float4 v = __ldg(&in[i]);
  tile[y][x] = v.x + v.y * v.z - v.w;
  dynamic[threadIdx.x] = tile[x][y];
  float local[8];
  for (int k = 0; k < 8; ++k) local[k] = k * v.x;
  if (i < n) {
    atomicAdd(&hits, 1);
    atomicCAS(&counter, 7u, 8u);
    atomicMax(reinterpret_cast<unsigned long long*>(out), 12ull);
    atomicExch(&numbers[0], hits);
    cuda::atomic_ref<int, cuda::thread_scope_device> r(numbers[1]);
    r.fetch_add(1, cuda::memory_order_acq_rel);
  }
  int any = __syncthreads_or(i < n);
  unsigned ballot = __ballot_sync(~0u, any);
  int up = __shfl_up_sync(~0u, hits, 1);
  bool all;
  __match_all_sync(~0u, up, reinterpret_cast<int*>(&up) ? &any : nullptr);
  all = __all_sync(~0u, any);
  __threadfence();
  out[i] = local[n & 7] + dynamic[255 - threadIdx.x] + ballot + up + all + nodes[n & 1].weight + *nodes[n & 1].next->data;
}
