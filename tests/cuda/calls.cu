// Calls: through pointers and tables, virtual functions, recursion, large switches.
#include <vector>

#include "check.h"

using Operation = int (*)(int, int);
__device__ __noinline__ int add(int a, int b) { return a + b; }
__device__ __noinline__ int subtract(int a, int b) { return a - b; }
__device__ __noinline__ int multiply(int a, int b) { return a * b; }
__device__ Operation table[3] = {add, subtract, multiply};

struct Shape {
  __device__ virtual int area() const = 0;
  __device__ virtual ~Shape() {}
};
struct Square : Shape {
  int side;
  __device__ explicit Square(int s) : side(s) {}
  __device__ int area() const override { return side * side; }
};
struct Strip : Shape {
  int length;
  __device__ explicit Strip(int l) : length(l) {}
  __device__ int area() const override { return length; }
};

__host__ __device__ __noinline__ int ackermann(int m, int n) {
  if (m == 0) return n + 1;
  if (n == 0) return ackermann(m - 1, 1);
  return ackermann(m - 1, ackermann(m, n - 1));
}

struct Big {
  int values[20];
};
__device__ __noinline__ Big transform(Big in, int by) {
  for (int& value : in.values) value *= by;
  return in;
}

__host__ __device__ __noinline__ int choose(int i) {
  switch (i % 17) {
    case 0:
      return i * 3;
    case 1:
      return i - 7;
    case 2:
      return i ^ 21;
    case 3:
      return ~i;
    case 4:
      return i << 2;
    case 5:
      return i / 3;
    case 6:
      return 1000 - i;
    case 7:
      return i * i;
    case 8:
      return i + 100;
    case 9:
      return -i;
    case 11:
      return i & 12;
    case 13:
      return i | 1024;
    default:
      return 4;
  }
}

__global__ void run(int* out, int n) {
  const int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i >= n) return;
  int* o = out + i * 6;
  o[0] = table[i % 3](i, 5);  // lanes of one warp call different functions
  if (i % 2) {
    Square square(i);
    const Shape* shape = &square;
    o[1] = shape->area();
  } else {
    Strip strip(i);
    const Shape* shape = &strip;
    o[1] = shape->area();
  }
  o[2] = ackermann(2, i % 4);
  Big big;
  for (int k = 0; k < 20; ++k) big.values[k] = k + i;
  const Big changed = transform(big, 3);
  o[3] = changed.values[i % 20];
  o[4] = choose(i);
  const Operation chosen = i % 5 == 0 ? multiply : add;
  o[5] = chosen(chosen(i, 2), 3);
}

int main() {
  constexpr int kCount = 500;
  int* device;
  CHECK(cudaDeviceSetLimit(cudaLimitStackSize, 8192));
  CHECK(cudaMalloc(&device, kCount * 6 * 4));
  run<<<(kCount + 63) / 64, 64>>>(device, kCount);
  std::vector<int> got(kCount * 6);
  CHECK(cudaMemcpy(got.data(), device, kCount * 6 * 4, cudaMemcpyDeviceToHost));
  for (int i = 0; i < kCount; ++i) {
    const int* o = &got[i * 6];
    EXPECT_EQ(o[0], i % 3 == 0 ? i + 5 : i % 3 == 1 ? i - 5 : i * 5);
    EXPECT_EQ(o[1], i % 2 ? i * i : i);
    EXPECT_EQ(o[2], ackermann(2, i % 4));
    EXPECT_EQ(o[3], (i % 20 + i) * 3);
    EXPECT_EQ(o[4], choose(i));
    EXPECT_EQ(o[5], i % 5 == 0 ? i * 6 : i + 5);
  }
  return passed();
}
