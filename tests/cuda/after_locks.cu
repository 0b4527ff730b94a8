// Lanes that leave a loop one after another, since they take a lock in turn, come together behind it.
// nvcc: -arch=sm_80
#include "check.h"

struct Out {
  unsigned ballot[32], sum[32], tile[32], peers[32];
  int neighbour[32];
};

__device__ void meet(Out* out) {
  __shared__ int values[32];
  const unsigned t = threadIdx.x;
  out->ballot[t] = __ballot_sync(~0u, t & 1);
  out->sum[t] = __reduce_add_sync(~0u, t);
  out->tile[t] = __ballot_sync(0xfu << (t & 28), t & 1);
  out->peers[t] = __match_any_sync(~0u, t / 8);
  values[t] = t;
  __syncwarp();
  out->neighbour[t] = values[(t + 1) % 32];
}

__global__ void while_not_done(int* lock, int* count, Out* out) {
  for (bool done = false; !done;) {
    if (atomicCAS(lock, 0, 1) == 0) {
      ++*count;
      __threadfence();
      atomicExch(lock, 0);
      done = true;
    }
  }
  meet(out);
}

// The lock is given back behind the loop.
__global__ void until_taken(int* lock, int* count, Out* out) {
  while (atomicCAS(lock, 0, 1) != 0) {
  }
  __threadfence();
  ++*static_cast<volatile int*>(count);
  __threadfence();
  atomicExch(lock, 0);
  meet(out);
}

__global__ void return_inside(int* lock, int* count, Out* out) {
  while (true) {
    if (atomicCAS(lock, 0, 1) == 0) {
      ++*static_cast<volatile int*>(count);
      __threadfence();
      atomicExch(lock, 0);
      meet(out);
      return;
    }
  }
}

// As many rounds as its number says; nobody waits for anybody.
__global__ void rounds(int*, int* count, Out* out) {
  unsigned done = 0;
  do {
    atomicAdd(count, done == 0);
  } while (++done <= threadIdx.x);
  meet(out);
}

static void run(void (*kernel)(int*, int*, Out*)) {
  int* lock;
  Out* out;
  CHECK(cudaMallocManaged(&lock, 2 * sizeof(int)));
  CHECK(cudaMallocManaged(&out, sizeof(Out)));
  lock[0] = lock[1] = 0;
  kernel<<<1, 32>>>(lock, lock + 1, out);
  CHECK(cudaDeviceSynchronize());
  EXPECT_EQ(lock[1], 32);
  for (unsigned t = 0; t < 32; ++t) {
    EXPECT_EQ(out->ballot[t], 0xaaaaaaaau);
    EXPECT_EQ(out->sum[t], 31u * 32 / 2);
    EXPECT_EQ(out->tile[t], 0xau << (t & 28));
    EXPECT_EQ(out->peers[t], 0xffu << (t & 24));
    EXPECT_EQ(out->neighbour[t], static_cast<int>((t + 1) % 32));
  }
  CHECK(cudaFree(out));
  CHECK(cudaFree(lock));
}

int main() {
  run(while_not_done);
  run(until_taken);
  run(return_inside);
  run(rounds);
  return passed();
}
