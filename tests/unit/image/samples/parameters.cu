// nvcc 13.0: `-fatbin -arch=sm_75 -o parameters.fatbin` (an ELF and packed PTX),
// `-cubin -arch=sm_90 -o parameters.cubin`.
struct Large {
  double values[700];
};
__device__ __noinline__ int helper(int x) { return x * 3; }
extern "C" __global__ void mixed(char c, double d, float3 f, short s, const int* p) { *const_cast<int*>(p) = c + d + f.y + helper(s); }
extern "C" __global__ void large(Large l, int i, int* out) { *out = l.values[i]; }
extern "C" __global__ void none() {}
