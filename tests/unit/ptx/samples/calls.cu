// Calls: direct, through a pointer, virtual, recursive, printf, assert, malloc; aliases; jump tables.
#include <cassert>
#include <cstdio>
#include <cstdlib>

struct Shape {
  __device__ virtual float area(int scale) const = 0;
  __device__ virtual ~Shape() {}
};
struct Square : Shape {
  float side = 2;
  __device__ float area(int scale) const override { return side * side * scale; }
};
struct Big {
  double a[5];
  char tag;
};
using Function = float (*)(float, int);
__device__ __noinline__ float twice(float x, int n) { return 2 * x + n; }
__device__ __noinline__ float thrice(float x, int n) { return 3 * x - n; }
__device__ Function table[2] = {twice, thrice};
__device__ __noinline__ Big big(Big in, int n) {
  in.a[n] += n;
  return in;
}
__device__ __noinline__ int fibonacci(int n) { return n < 2 ? n : fibonacci(n - 1) + fibonacci(n - 2); }
extern "C" __device__ __noinline__ void stop() { asm volatile("trap;"); }

__global__ void calls(float* out, int n, Big argument) {
  Square square;
  Shape* shape = n > 3 ? &square : static_cast<Shape*>(malloc(sizeof(Square)));
  out[0] = table[n & 1](out[1], n) + shape->area(n);
  Big result = big(argument, n);
  printf("%d %f %s\n", fibonacci(n), result.a[2], "text with \"quotes\"");
  assert(n != 5);
  switch (n) {
    case 0: out[2] = sinf(out[1]); break;
    case 1: out[2] = out[1] / 3; break;
    case 2: out[2] = sqrtf(out[1]); break;
    case 3: out[2] = fmaf(out[1], 2, 1); break;
    case 4: out[2] = powf(out[1], 3); break;
    case 5: out[2] = out[1]; break;
    case 6: stop(); break;
    default: free(shape);
  }
}
