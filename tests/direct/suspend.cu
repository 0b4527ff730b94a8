// Counts in device memory for as long as it is told to, and checks what it counted. Arguments: MiB of a buffer, and
// perhaps "share" (its buffer may be opened by other processes), and perhaps, last, "steps" (it rests before each round
// until a line says "step"). Prints "ready", then a line with its round for each round, until a line comes on stdin:
// then it compares every word and prints "ok". If the line is "wild", a kernel then writes where nothing is, and the
// program prints the error that it got: "code 700". A round is kernels on two streams, a graph, an allocation of a
// pool, and a copy back. Ends with 0, 3 (a call failed) or 4 (a wrong word).
#include <cuda_runtime.h>
#include <poll.h>

#include <cstdio>
#include <cstdlib>
#include <cstring>

static void check(cudaError_t error, const char* what) {
  if (error == cudaSuccess) return;
  std::printf("%s: %s\n", what, cudaGetErrorName(error));
  std::exit(3);
}

__device__ unsigned rounds_seen;

__global__ void fill(unsigned* words, size_t count) {
  for (size_t i = blockIdx.x * blockDim.x + threadIdx.x; i < count; i += gridDim.x * blockDim.x) words[i] = i * 7;
}

__global__ void add(unsigned* words, size_t count, unsigned by) {
  for (size_t i = blockIdx.x * blockDim.x + threadIdx.x; i < count; i += gridDim.x * blockDim.x) words[i] += by;
}

__global__ void see(unsigned* small) {
  ++rounds_seen;
  *small = rounds_seen;
}

__global__ void compare(const unsigned* words, size_t count, unsigned sum, unsigned* wrong) {
  for (size_t i = blockIdx.x * blockDim.x + threadIdx.x; i < count; i += gridDim.x * blockDim.x) {
    if (words[i] != i * 7 + sum) atomicAdd(wrong, 1u);
  }
}

__global__ void stray(unsigned* at) { *at = 1; }

// A line that says something else than "step" is the end.
static bool told(bool steps, bool* wild) {
  pollfd entry{0, POLLIN, 0};
  if (!steps && poll(&entry, 1, 0) != 1) return false;
  char line[16];
  if (!std::fgets(line, sizeof line, stdin)) return true;
  *wild = std::strncmp(line, "wild", 4) == 0;
  return !steps || std::strncmp(line, "step", 4) != 0;
}

static void go_astray() {
  stray<<<1, 1>>>(reinterpret_cast<unsigned*>(0x1000));
  std::printf("code %d\n", static_cast<int>(cudaDeviceSynchronize()));
}

int main(int argc, char** argv) {
  const size_t bytes = size_t(argc > 1 ? std::atoi(argv[1]) : 8) << 20, count = bytes / sizeof(unsigned);
  unsigned *words = nullptr, *small = nullptr, *temporary = nullptr;
  check(cudaMalloc(&words, bytes), "cudaMalloc");
  check(cudaMalloc(&small, sizeof(unsigned)), "cudaMalloc of a word");
  cudaStream_t streams[2];
  for (cudaStream_t& stream : streams) check(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking), "stream");
  cudaEvent_t event;
  check(cudaEventCreate(&event), "event");
  cudaGraph_t graph;
  cudaGraphExec_t exec;
  check(cudaStreamBeginCapture(streams[0], cudaStreamCaptureModeGlobal), "capture");
  see<<<1, 1, 0, streams[0]>>>(small);
  check(cudaStreamEndCapture(streams[0], &graph), "the end of the capture");
  check(cudaGraphInstantiate(&exec, graph, 0), "instantiate");
  fill<<<8, 128>>>(words, count);
  check(cudaDeviceSynchronize(), "the first words");
  cudaIpcMemHandle_t handle;
  const bool steps = std::strcmp(argv[argc - 1], "steps") == 0;
  if (argc > 2 && std::strcmp(argv[2], "share") == 0) check(cudaIpcGetMemHandle(&handle, words), "share");
  std::printf("ready\n"), std::fflush(stdout);
  unsigned round = 0, seen = 0;
  bool wild = false;
  while (!told(steps, &wild)) {
    ++round;
    add<<<8, 128, 0, streams[0]>>>(words, count / 2, 1);
    add<<<8, 128, 0, streams[1]>>>(words + count / 2, count - count / 2, 1);
    check(cudaEventRecord(event, streams[1]), "record");
    check(cudaStreamWaitEvent(streams[0], event, 0), "wait");
    check(cudaGraphLaunch(exec, streams[0]), "graph");
    check(cudaMallocAsync(&temporary, 1 << 20, streams[0]), "cudaMallocAsync");
    check(cudaMemsetAsync(temporary, 0, 1 << 20, streams[0]), "fill");
    check(cudaFreeAsync(temporary, streams[0]), "cudaFreeAsync");
    check(cudaMemcpyAsync(&seen, small, sizeof seen, cudaMemcpyDeviceToHost, streams[0]), "copy");
    check(cudaStreamSynchronize(streams[0]), "a round");
    if (seen != round) std::printf("round %u was seen as %u\n", round, seen), std::exit(4);
    std::printf("%u\n", round), std::fflush(stdout);
  }
  check(cudaMemset(small, 0, sizeof(unsigned)), "a counter");
  compare<<<8, 128>>>(words, count, round, small);
  check(cudaMemcpy(&seen, small, sizeof seen, cudaMemcpyDeviceToHost), "the comparison");
  if (seen) std::printf("%u words are wrong\n", seen), std::exit(4);
  std::printf("ok\n");
  if (wild) go_astray();
}
