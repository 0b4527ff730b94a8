// Counts in device memory for as long as it is told to, with nothing but what can be saved as a whole: contexts, code,
// memory, streams, events, host functions. Arguments: MiB of a buffer, and perhaps what else it has: "graph", "pool",
// "array", "heap" or "managed". Prints "ready", then a line with its round for each round, until a line comes on stdin:
// then it compares every word and prints "ok". Ends with 0, 3 (a call failed) or 4 (a wrong word).
#include <cuda_runtime.h>
#include <poll.h>

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <thread>

static void check(cudaError_t error, const char* what) {
  if (error == cudaSuccess) return;
  std::printf("%s: %s\n", what, cudaGetErrorName(error));
  std::exit(3);
}

__device__ unsigned rounds_seen;
__constant__ unsigned seven = 0;

__global__ void fill(unsigned* words, size_t count) {
  for (size_t i = blockIdx.x * blockDim.x + threadIdx.x; i < count; i += gridDim.x * blockDim.x) words[i] = i * seven;
}

__global__ void add(unsigned* words, size_t count, unsigned by) {
  extern __shared__ unsigned bys[];
  bys[threadIdx.x] = by;
  for (size_t i = blockIdx.x * blockDim.x + threadIdx.x; i < count; i += gridDim.x * blockDim.x) {
    words[i] += bys[threadIdx.x];
  }
}

__global__ void see(unsigned* small) { *small = ++rounds_seen; }

__global__ void say(unsigned round) { printf("round %u\n", round); }

__global__ void compare(const unsigned* words, size_t count, unsigned sum, unsigned* wrong) {
  for (size_t i = blockIdx.x * blockDim.x + threadIdx.x; i < count; i += gridDim.x * blockDim.x) {
    if (words[i] != i * seven + sum) atomicAdd(wrong, 1u);
  }
}

static void CUDART_CB count_one(void* functions) { ++*static_cast<unsigned*>(functions); }

static bool told() {
  pollfd entry{0, POLLIN, 0};
  return poll(&entry, 1, 0) == 1;
}

__global__ void allocate(void** kept) { *kept = malloc(64); }

static void make(const char* extra) {
  cudaStream_t stream;
  check(cudaStreamCreate(&stream), "another stream");
  void* memory = nullptr;
  cudaGraph_t graph;
  cudaArray_t array;
  const cudaChannelFormatDesc format = cudaCreateChannelDesc<float>();
  if (!std::strcmp(extra, "graph")) check(cudaGraphCreate(&graph, 0), "graph");
  if (!std::strcmp(extra, "heap")) {
    check(cudaMalloc(&memory, sizeof(void*)), "a word");
    allocate<<<1, 1>>>(static_cast<void**>(memory));
    check(cudaDeviceSynchronize(), "heap");
  }
  if (!std::strcmp(extra, "pool")) check(cudaMallocAsync(&memory, 4096, stream), "pool");
  if (!std::strcmp(extra, "array")) check(cudaMallocArray(&array, &format, 64, 64), "array");
  if (!std::strcmp(extra, "managed")) check(cudaMallocManaged(&memory, 4096), "managed");
}

// Streams and memory come and go, so that handles and addresses are those of later ones.
static void come_and_go() {
  for (int i = 0; i < 40; ++i) {
    cudaStream_t stream;
    cudaEvent_t event;
    void* memory = nullptr;
    check(cudaStreamCreate(&stream), "a stream that goes");
    check(cudaEventCreate(&event), "an event that goes");
    check(cudaMalloc(&memory, 4096 << i % 5), "memory that goes");
    check(cudaEventDestroy(event), "its end");
    check(cudaStreamDestroy(stream), "its end");
    check(cudaFree(memory), "its end");
  }
}

int main(int argc, char** argv) {
  const size_t bytes = size_t(argc > 1 ? std::atoi(argv[1]) : 8) << 20, count = bytes / sizeof(unsigned);
  unsigned *words = nullptr, *small = nullptr;
  come_and_go();
  check(cudaMalloc(&words, bytes), "cudaMalloc");
  check(cudaMalloc(&small, sizeof(unsigned)), "cudaMalloc of a word");
  const unsigned factor = 7;
  check(cudaMemcpyToSymbol(seven, &factor, sizeof factor), "a constant");
  cudaStream_t streams[2];
  for (cudaStream_t& stream : streams) check(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking), "stream");
  cudaEvent_t event, first;
  check(cudaEventCreate(&first), "event");
  check(cudaEventCreate(&event), "event");
  come_and_go();
  constexpr size_t kShared = 72 << 10;  // more than a kernel has unasked
  check(cudaFuncSetAttribute(add, cudaFuncAttributeMaxDynamicSharedMemorySize, kShared), "shared memory");
  fill<<<8, 128>>>(words, count);
  check(cudaEventRecord(first, 0), "the first record");
  check(cudaDeviceSynchronize(), "the first words");
  if (argc > 2) make(argv[2]);
  std::printf("ready\n"), std::fflush(stdout);
  unsigned round = 0, seen = 0, functions = 0;
  float before = 0, since = 0;
  while (!told()) {
    ++round;
    add<<<8, 128, kShared, streams[0]>>>(words, count / 2, 1);
    add<<<8, 128, kShared, streams[1]>>>(words + count / 2, count - count / 2, 1);
    check(cudaEventRecord(event, streams[1]), "record");
    check(cudaStreamWaitEvent(streams[0], event, 0), "wait");
    see<<<1, 1, 0, streams[0]>>>(small);
    check(cudaMemcpyAsync(&seen, small, sizeof seen, cudaMemcpyDeviceToHost, streams[0]), "copy");
    check(cudaLaunchHostFunc(streams[0], count_one, &functions), "a host function");
    check(cudaStreamSynchronize(streams[0]), "a round");
    check(cudaEventElapsedTime(&since, first, event), "the time since the first record");
    if (seen != round) std::printf("round %u was seen as %u\n", round, seen), std::exit(4);
    if (functions != round) std::printf("%u host functions in round %u\n", functions, round), std::exit(4);
    if (since < before) std::printf("time went from %f to %f ms\n", before, since), std::exit(4);
    before = since;
    if (round % 16 == 0) {
      void* memory = nullptr;
      check(cudaMalloc(&memory, 1 << 16), "more memory");
      check(cudaFree(memory), "its end");
      std::thread([] { check(cudaStreamSynchronize(cudaStreamPerThread), "another thread"); }).join();
    }
    std::printf("%u\n", round), std::fflush(stdout);
  }
  check(cudaMemset(small, 0, sizeof(unsigned)), "a counter");
  compare<<<8, 128>>>(words, count, round, small);
  say<<<1, 1>>>(round);
  check(cudaMemcpy(&seen, small, sizeof seen, cudaMemcpyDeviceToHost), "the comparison");
  check(cudaDeviceSynchronize(), "the last words");
  std::fflush(stdout);
  if (seen) std::printf("%u words are wrong\n", seen), std::exit(4);
  std::printf("ok\n");
}
