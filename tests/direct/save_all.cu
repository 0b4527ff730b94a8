// Counts in device memory for as long as it is told to, with nothing but what can be saved as a whole: contexts, code,
// memory, streams, events, host functions. Arguments: MiB of a buffer, and perhaps what else it has: "graph", "pool"
// and "array" count too; what make() knows cannot be saved. Prints "ready", then a line with its round for each round,
// until a line comes on stdin: then it compares every word and prints "ok". Ends with 0, 3 (a call failed) or 4 (a
// wrong word).
#include <cuda_runtime.h>
#include <poll.h>

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <memory>
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

static cudaMemPool_t make_pool() {
  cudaMemPool_t pool;
  cudaMemPoolProps props{};
  props.allocType = cudaMemAllocationTypePinned;
  props.location = {cudaMemLocationTypeDevice, 0};
  check(cudaMemPoolCreate(&pool, &props), "a pool");
  return pool;
}

__global__ void compare_all(const unsigned* words, size_t count, unsigned wanted, unsigned* wrong) {
  for (size_t i = threadIdx.x; i < count; i += blockDim.x) {
    if (words[i] != wanted && blockIdx.x == 0) atomicAdd(wrong, 1u);
  }
}

static void CUDART_CB count_one(void* functions) { ++*static_cast<unsigned*>(functions); }

static bool told() {
  pollfd entry{0, POLLIN, 0};
  return poll(&entry, 1, 0) == 1;
}

static cudaStream_t captured = nullptr;

// What is refused.
static void make(const char* extra) {
  cudaStream_t stream;
  check(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking), "another stream");
  void* memory = nullptr;
  if (!std::strcmp(extra, "gone")) {
    cudaMemPool_t own = make_pool();
    check(cudaMallocFromPoolAsync(&memory, 4096, own, stream), "memory");
    check(cudaMemPoolDestroy(own), "the end of a pool");
  }
  if (!std::strcmp(extra, "captured")) {
    check(cudaStreamBeginCapture(captured = stream, cudaStreamCaptureModeRelaxed), "capture");
  }
  if (!std::strcmp(extra, "texture")) {
    cudaResourceDesc from{};
    cudaTextureDesc how{};
    cudaTextureObject_t texture;
    check(cudaMalloc(&memory, 4096), "memory of a texture");
    from.resType = cudaResourceTypeLinear;
    from.res.linear.devPtr = memory;
    from.res.linear.desc = cudaCreateChannelDesc<float>();
    from.res.linear.sizeInBytes = 4096;
    check(cudaCreateTextureObject(&texture, &from, &how, nullptr), "a texture");
    check(cudaFree(memory), "the end of its memory");
  }
}

// A word that is not what the array has becomes wrong for good.
__global__ void through_array(cudaSurfaceObject_t surface, cudaTextureObject_t array, cudaTextureObject_t linear,
                              unsigned* words, unsigned count) {
  for (unsigned i = blockIdx.x * blockDim.x + threadIdx.x; i < count; i += gridDim.x * blockDim.x) {
    const unsigned was = tex2D<unsigned>(array, i, 0), word = tex1Dfetch<unsigned>(linear, int(i));
    surf2Dwrite(was + 1, surface, int(i * sizeof(unsigned)), 0);
    words[i] = was == word ? was + 1 : 0x80000000u;
  }
}

// Words that count the rounds, in some way that the program has beside its own.
class Extra {
 public:
  virtual ~Extra() = default;
  virtual void round(unsigned number) = 0;
  // Words, which are all to be this number.
  const unsigned* words = nullptr;
  size_t count = 5000;
};

// A block of a pool of its own that was a larger one before, from a stream that has gone. Others come and go.
class PoolWords : public Extra {
 public:
  PoolWords() {
    cudaStream_t stream;
    cudaMemPool_t own = make_pool();
    void *larger = nullptr, *memory = nullptr;
    check(cudaStreamCreate(&stream), "a stream of pools");
    check(cudaMallocFromPoolAsync(&larger, 6 * 4096, own, stream), "a larger block");
    check(cudaFreeAsync(larger, stream), "its end");
    check(cudaMallocFromPoolAsync(&memory, count * sizeof(unsigned), own, stream), "a block");
    check(cudaMemsetAsync(memory, 0, count * sizeof(unsigned), stream), "its words");
    check(cudaStreamSynchronize(stream), "a stream of pools");
    check(cudaStreamDestroy(stream), "its end");
    words = mine_ = static_cast<unsigned*>(memory);
    check(cudaMallocAsync(&other_, 100, 0), "another block");
  }
  void round(unsigned number) override {
    add<<<8, 128, 512>>>(mine_, count, 1);
    check(cudaFreeAsync(other_, 0), "the end of a block");
    check(cudaMallocAsync(&other_, 4096 << number % 3, 0), "another block");
    check(cudaMemsetAsync(other_, 1, 4096, 0), "its words");
    check(cudaStreamSynchronize(0), "a round of pools");
  }

 private:
  unsigned* mine_ = nullptr;
  void* other_ = nullptr;
};

// Half of the words by a graph that was captured and has gone, half by one that lives and changes, in a node's graph.
class GraphWords : public Extra {
 public:
  GraphWords() {
    void* memory = nullptr;
    check(cudaMalloc(&memory, count * sizeof(unsigned)), "words of graphs");
    check(cudaMemset(memory, 0, count * sizeof(unsigned)), "their first values");
    words = mine_ = static_cast<unsigned*>(memory);
    check(cudaMallocHost(reinterpret_cast<void**>(&seen_), sizeof *seen_), "a word of the host");
    check(cudaStreamCreate(&stream_), "a stream of graphs");
    capture();
    build();
  }
  void round(unsigned number) override {
    unsigned by = number % 3;  // the node of the graph that lives adds what the node beside it lacks
    size_t half = count / 2, rest = count - half;
    unsigned* from = mine_ + half;
    void* arguments[] = {&from, &rest, &by};
    params_.kernelParams = arguments;
    check(cudaGraphExecKernelNodeSetParams(built_, changing_, &params_), "a node's arguments");
    check(cudaGraphLaunch(captured_, stream_), "the graph that was captured");
    check(cudaGraphLaunch(built_, stream_), "the graph that lives");
    add<<<8, 128, 512, stream_>>>(from, rest, 0u - by);
    check(cudaStreamSynchronize(stream_), "a round of graphs");
    if (*seen_ != number) std::printf("a graph saw %u in round %u\n", *seen_, number), std::exit(4);
    if (functions_ != number) std::printf("%u functions of graphs in round %u\n", functions_, number), std::exit(4);
  }

 private:
  void capture() {
    cudaGraph_t graph;
    check(cudaStreamBeginCapture(stream_, cudaStreamCaptureModeRelaxed), "capture");
    add<<<8, 128, 512, stream_>>>(mine_, count / 2, 1);
    check(cudaMemcpyAsync(seen_, mine_, sizeof *seen_, cudaMemcpyDeviceToHost, stream_), "a copy");
    check(cudaStreamEndCapture(stream_, &graph), "the end of a capture");
    check(cudaGraphInstantiate(&captured_, graph, 0), "the graph that was captured");
    check(cudaGraphDestroy(graph), "its end");
  }
  void build() {
    cudaGraphNode_t inner, unused;
    cudaGraph_t child;
    unsigned by = 1;
    size_t rest = count - count / 2;
    unsigned* from = mine_ + count / 2;
    void* arguments[] = {&from, &rest, &by};
    params_.func = reinterpret_cast<void*>(add);
    params_.gridDim = dim3(8);
    params_.blockDim = dim3(128);
    params_.sharedMemBytes = 512;
    params_.kernelParams = arguments;
    cudaHostNodeParams function{count_one, &functions_};
    check(cudaGraphCreate(&child, 0), "a graph within");
    check(cudaGraphAddKernelNode(&unused, child, nullptr, 0, &params_), "its node");
    check(cudaGraphCreate(&graph_, 0), "a graph");
    check(cudaGraphAddKernelNode(&changing_, graph_, nullptr, 0, &params_), "a node that changes");
    check(cudaGraphAddChildGraphNode(&inner, graph_, &changing_, 1, child), "a node of a graph");
    check(cudaGraphAddHostNode(&unused, graph_, &inner, 1, &function), "a host function");
    check(cudaGraphInstantiate(&built_, graph_, 0), "the graph that lives");
    check(cudaGraphDestroy(child), "a graph's end");
  }
  unsigned *mine_ = nullptr, *seen_ = nullptr;
  unsigned functions_ = 0;
  cudaStream_t stream_ = nullptr;
  cudaGraph_t graph_ = nullptr;
  cudaGraphExec_t captured_ = nullptr, built_ = nullptr;
  cudaGraphNode_t changing_ = nullptr;
  cudaKernelNodeParams params_{};
};

// By way of a surface of an array's that a texture reads too. Another texture reads the words.
class ArrayWords : public Extra {
 public:
  ArrayWords() {
    const cudaChannelFormatDesc format = cudaCreateChannelDesc<unsigned>();
    void* memory = nullptr;
    check(cudaMalloc(&memory, count * sizeof(unsigned)), "words of arrays");
    check(cudaMemset(memory, 0, count * sizeof(unsigned)), "their first values");
    words = mine_ = static_cast<unsigned*>(memory);
    check(cudaMallocArray(&array_, &format, count, 1, cudaArraySurfaceLoadStore), "an array");
    check(cudaMemcpy2DToArray(array_, 0, 0, memory, count * 4, count * 4, 1, cudaMemcpyDeviceToDevice), "its values");
    cudaResourceDesc from{};
    cudaTextureDesc how{};
    from.resType = cudaResourceTypeArray;
    from.res.array.array = array_;
    check(cudaCreateSurfaceObject(&surface_, &from), "a surface");
    // One that goes, so that numbers are those of later ones.
    check(cudaCreateTextureObject(&of_array_, &from, &how, nullptr), "a texture");
    check(cudaDestroyTextureObject(of_array_), "its end");
    check(cudaCreateTextureObject(&of_array_, &from, &how, nullptr), "a texture");
    from.resType = cudaResourceTypeLinear;
    from.res.linear.devPtr = memory;
    from.res.linear.desc = format;
    from.res.linear.sizeInBytes = count * sizeof(unsigned);
    check(cudaCreateTextureObject(&of_words_, &from, &how, nullptr), "a texture of memory");
  }
  void round(unsigned) override {
    through_array<<<8, 128>>>(surface_, of_array_, of_words_, mine_, unsigned(count));
    check(cudaDeviceSynchronize(), "a round of arrays");
  }

 private:
  unsigned* mine_ = nullptr;
  cudaArray_t array_ = nullptr;
  cudaSurfaceObject_t surface_ = 0;
  cudaTextureObject_t of_array_ = 0, of_words_ = 0;
};

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
  const char* const asked = argc > 2 ? argv[2] : "";
  std::unique_ptr<Extra> extra;
  // The first that loads code.
  if (!std::strcmp(asked, "graph")) extra = std::make_unique<GraphWords>();
  if (!std::strcmp(asked, "array")) extra = std::make_unique<ArrayWords>();
  if (!std::strcmp(asked, "pool")) extra = std::make_unique<PoolWords>();
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
  make(asked);
  std::printf("ready\n"), std::fflush(stdout);
  unsigned round = 0, seen = 0, functions = 0;
  float before = 0, since = 0;
  while (!told()) {
    ++round;
    if (extra) extra->round(round);
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
  cudaGraph_t graph;
  if (captured) check(cudaStreamEndCapture(captured, &graph), "the end of a capture");
  check(cudaMemset(small, 0, sizeof(unsigned)), "a counter");
  compare<<<8, 128>>>(words, count, round, small);
  if (extra) compare_all<<<8, 128>>>(extra->words, extra->count, round, small);
  say<<<1, 1>>>(round);
  check(cudaMemcpy(&seen, small, sizeof seen, cudaMemcpyDeviceToHost), "the comparison");
  check(cudaDeviceSynchronize(), "the last words");
  std::fflush(stdout);
  if (seen) std::printf("%u words are wrong\n", seen), std::exit(4);
  std::printf("ok\n");
}
