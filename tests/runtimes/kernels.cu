// Device code of the runtime tests. It is compiled once, to PTX in a fatbin, and every runtime registers it by hand:
// wheels before CUDA 13 bring no nvcc.
extern "C" {

__constant__ int factor;
__device__ int offsets[16];
__managed__ int counted = 7;

__global__ void scale(int* out, int n) {
  const int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) out[i] = i * factor + offsets[i % 16];
}

__global__ void add_one(int* data, int n) {
  const int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) data[i] += 1;
}

__global__ void count() { atomicAdd(&counted, 1); }

__global__ void sum_shared(int* out) {
  extern __shared__ int values[];
  values[threadIdx.x] = threadIdx.x;
  __syncthreads();
  if (threadIdx.x != 0) return;
  int sum = 0;
  for (int i = 0; i < blockDim.x; i++) sum += values[i];
  *out = sum;
}
}
