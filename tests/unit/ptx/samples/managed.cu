// Managed variables of every kind, and what points at them.
struct Item {
  int a[4];
  double d;
  Item* next;
};
struct __attribute__((packed)) Packed {
  char c;
  int* p;
};
typedef int (*Unary)(int);
__device__ int twice(int a) { return a * 2; }
__device__ int dev = 3;

__managed__ int counter = 7;
static __managed__ int priv = 8;
__managed__ Item one = {{1, 2, 3, 4}, 2.5, nullptr};
__managed__ Item two = {{5, 6, 7, 8}, 3.5, nullptr};
__managed__ int* to_dev = &dev;
__managed__ __align__(1) char text[3] = "ab";
__managed__ Packed packed = {'x', &dev};
__managed__ Unary function = twice;
__managed__ int big[1000];

__noinline__ __device__ int use(const int* p) { return *p; }

__global__ void change(int* out, int choice) {
  const int i = threadIdx.x;
  atomicAdd(&counter, 1);
  out[i] = use(&big[i]) + one.a[2] + *to_dev + function(3) + two.a[i & 3] + priv;
  if (choice > i)
    big[choice] = 5;
  else
    two.a[1] = text[1] + *packed.p;
}
