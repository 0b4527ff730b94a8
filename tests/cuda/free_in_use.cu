// Memory that is freed while kernels use it, on all kinds of streams: freeing waits for them.
// nvcc: -lcuda
#include <chrono>
#include <thread>

#include "check.h"

__global__ void add_when_told(const volatile int* go, int* values, int count, int* sum) {
  while (*go == 0) {
  }
  for (int i = 0; i < count; ++i) values[i] += 1;
  *sum = values[count - 1];
}

constexpr int kCount = 1 << 20;  // more than a slab of small blocks

struct Use {
  int *go, *sum, *values;

  Use() {
    CHECK(cudaHostAlloc(&go, 2 * sizeof(int), cudaHostAllocMapped));
    sum = go + 1;
    go[0] = sum[0] = 0;
    CHECK(cudaMalloc(&values, kCount * sizeof(int)));
    CHECK(cudaMemset(values, 0, kCount * sizeof(int)));
    CHECK(cudaDeviceSynchronize());
  }
  void begin(cudaStream_t stream) {
    add_when_told<<<1, 1, 0, stream>>>(go, values, kCount, sum);
    CHECK(cudaGetLastError());
  }
  void free_and_check() {
    std::thread teller([this] {
      std::this_thread::sleep_for(std::chrono::milliseconds(30));
      *const_cast<volatile int*>(go) = 1;
    });
    CHECK(cudaFree(values));
    EXPECT_EQ(*const_cast<volatile int*>(sum), 1);
    teller.join();
  }
  ~Use() {
    CHECK(cudaDeviceSynchronize());
    CHECK(cudaFreeHost(go));
  }
};

static void on_the_legacy_stream() {
  Use use;
  use.begin(nullptr);
  use.free_and_check();
}

static void on_a_stream_that_has_gone(unsigned flags) {
  Use use;
  cudaStream_t stream;
  CHECK(cudaStreamCreateWithFlags(&stream, flags));
  use.begin(stream);
  CHECK(cudaStreamDestroy(stream));
  use.free_and_check();
}

// In the relaxed mode a thread may free while it captures.
static void beside_a_capture(unsigned flags, bool on_legacy, bool destroy) {
  Use use;
  cudaStream_t stream, captures;
  CHECK(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
  CHECK(cudaStreamCreateWithFlags(&captures, flags));
  use.begin(on_legacy ? nullptr : stream);
  if (destroy) CHECK(cudaStreamDestroy(stream));
  CHECK(cudaStreamBeginCapture(captures, cudaStreamCaptureModeRelaxed));
  use.free_and_check();
  use.begin(captures);  // never launched
  cudaGraph_t graph;
  CHECK(cudaStreamEndCapture(captures, &graph));
  CHECK(cudaGraphDestroy(graph));
  CHECK(cudaStreamDestroy(captures));
  if (!destroy) CHECK(cudaStreamDestroy(stream));
}

static void in_another_context() {
  CUcontext context, before;
  CHECK_DRIVER(cuCtxGetCurrent(&before));
  CHECK_DRIVER(cuCtxCreate(&context, nullptr, 0, 0));
  {
    Use use;
    use.begin(nullptr);
    use.free_and_check();
  }
  CHECK_DRIVER(cuCtxDestroy(context));
  CHECK_DRIVER(cuCtxSetCurrent(before));
}

int main() {
  on_the_legacy_stream();
  for (const unsigned flags : {cudaStreamDefault, cudaStreamNonBlocking}) {
    on_a_stream_that_has_gone(flags);
    for (const bool destroy : {false, true}) beside_a_capture(flags, false, destroy);
    beside_a_capture(flags, true, false);
  }
  in_another_context();
  return passed();
}
