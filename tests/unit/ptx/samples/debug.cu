// Compiled twice: debug.ptx with -G, lines.ptx with -lineinfo (inlined places).
__device__ __forceinline__ float inner(float x, int n) {
  float y = x * 2;
  if (n > 2) y += 1;
  return y;
}
__global__ void debug(float* p, int n) {
  __shared__ float s[4];
  s[threadIdx.x & 3] = p[threadIdx.x];
  __syncthreads();
  p[threadIdx.x] = inner(s[0], n);
}
