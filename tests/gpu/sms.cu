// nvcc: -lcuda
// On how many SMs kernels run, by every way to launch them. A line for each: "on N: what". Then the order between the
// legacy stream and others, what a cooperative launch may ask for, and a context that was reset. Goes on after errors,
// says each, and ends with 3 if there was one.
#include <cuda.h>
#include <cuda_runtime.h>

#include <cstdio>

static int errors = 0;
static bool good(int code, const char* what) {
  if (code == 0) return true;
  std::printf("error %d: %s\n", code, what);
  ++errors;
  return false;
}
#define TRY(call) good(static_cast<int>(call), #call)

constexpr int kSms = 1024, kBlocks = 264, kThreads = 1024;
constexpr unsigned long long kTurn = 200000;  // ns that a block takes
__device__ int kept = 41;

__device__ void spin(unsigned long long ns) {
  unsigned long long begin, now;
  asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(begin));
  do asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(now));
  while (now - begin < ns);
}
__global__ void where(int* seen, unsigned long long ns) {
  unsigned sm;
  asm volatile("mov.u32 %0, %%smid;" : "=r"(sm));
  if (threadIdx.x == 0 && sm < kSms) seen[sm] = 1;
  spin(ns);
}
__global__ void then(volatile int* at, unsigned long long ns, int value) {
  spin(ns);
  *at = *at * 10 + value;
}
__global__ void count(int* out) { *out = ++kept; }

static int* seen;
static float milliseconds = 0;

template <typename Launch>
static void on(const char* what, Launch launch) {
  int got[kSms], sms = 0;
  cudaEvent_t begin, end;
  if (!TRY(cudaMemset(seen, 0, sizeof got)) || !TRY(cudaDeviceSynchronize())) return;
  if (!TRY(cudaEventCreate(&begin)) || !TRY(cudaEventCreate(&end))) return;
  if (!launch(begin, end) || !TRY(cudaDeviceSynchronize())) return std::printf("on -1: %s\n", what), void();
  if (!TRY(cudaMemcpy(got, seen, sizeof got, cudaMemcpyDeviceToHost))) return;
  for (int sm : got) sms += sm;
  TRY(cudaEventElapsedTime(&milliseconds, begin, end));
  std::printf("on %d: %s (%.2f ms)\n", sms, what, milliseconds);
  cudaEventDestroy(begin);
  cudaEventDestroy(end);
}

static bool launch_on(cudaStream_t stream, cudaEvent_t begin, cudaEvent_t end) {
  TRY(cudaEventRecord(begin, stream));
  where<<<kBlocks, kThreads, 0, stream>>>(seen, kTurn);
  return TRY(cudaGetLastError()) && TRY(cudaEventRecord(end, stream));
}

static void streams() {
  on("the legacy stream", [](auto begin, auto end) { return launch_on(nullptr, begin, end); });
  on("a thread's stream", [](auto begin, auto end) { return launch_on(cudaStreamPerThread, begin, end); });
  struct {
    const char* name;
    unsigned flags;
    int priority;
  } const kinds[] = {{"a blocking stream", cudaStreamDefault, 0},
                     {"a non-blocking stream", cudaStreamNonBlocking, 0},
                     {"an urgent stream", cudaStreamNonBlocking, -5},
                     {"an urgent blocking stream", cudaStreamDefault, -3}};
  for (const auto& kind : kinds) {
    cudaStream_t stream;
    if (!TRY(cudaStreamCreateWithPriority(&stream, kind.flags, kind.priority))) continue;
    on(kind.name, [&](auto begin, auto end) { return launch_on(stream, begin, end); });
    TRY(cudaStreamDestroy(stream));
  }
}

static void graphs() {
  cudaStream_t stream;
  if (!TRY(cudaStreamCreate(&stream))) return;
  cudaGraph_t captured, made;
  cudaGraphExec_t first, second;
  unsigned long long turn = kTurn;
  TRY(cudaStreamBeginCapture(stream, cudaStreamCaptureModeGlobal));
  where<<<kBlocks, kThreads, 0, stream>>>(seen, turn);
  if (!TRY(cudaStreamEndCapture(stream, &captured)) || !TRY(cudaGraphInstantiate(&first, captured, 0))) return;
  void* arguments[] = {&seen, &turn};
  cudaKernelNodeParams node{};
  node.func = reinterpret_cast<void*>(where);
  node.gridDim = dim3(kBlocks);
  node.blockDim = dim3(kThreads);
  node.kernelParams = arguments;
  cudaGraphNode_t added;
  TRY(cudaGraphCreate(&made, 0));
  if (!TRY(cudaGraphAddKernelNode(&added, made, nullptr, 0, &node))) return;
  if (!TRY(cudaGraphInstantiate(&second, made, 0))) return;
  for (const cudaGraphExec_t exec : {first, second}) {
    on(exec == first ? "a captured graph" : "a graph of nodes", [&](auto begin, auto end) {
      return TRY(cudaEventRecord(begin, stream)) && TRY(cudaGraphLaunch(exec, stream)) &&
             TRY(cudaEventRecord(end, stream));
    });
  }
  TRY(cudaGraphExecDestroy(first));
  TRY(cudaGraphExecDestroy(second));
  TRY(cudaGraphDestroy(captured));
  TRY(cudaGraphDestroy(made));
  TRY(cudaStreamDestroy(stream));
}

static void cooperative() {
  int sms = 0, each = 0;
  unsigned long long turn = 1000;
  void* arguments[] = {&seen, &turn};
  TRY(cudaDeviceGetAttribute(&sms, cudaDevAttrMultiProcessorCount, 0));
  TRY(cudaOccupancyMaxActiveBlocksPerMultiprocessor(&each, where, kThreads, 0));
  const auto kernel = reinterpret_cast<void*>(where);
  TRY(cudaLaunchCooperativeKernel(kernel, dim3(sms * each), dim3(kThreads), arguments, 0, nullptr));
  TRY(cudaDeviceSynchronize());
  const cudaError_t more =
      cudaLaunchCooperativeKernel(kernel, dim3(sms * each + 1), dim3(kThreads), arguments, 0, nullptr);
  std::printf("device %d\n", sms);
  good(more == cudaErrorCooperativeLaunchTooLarge ? 0 : 1000, "a cooperative launch of one block too many is refused");
  cudaGetLastError();
}

// Work of blocking streams comes before and after what is on the legacy one, in both directions, many times.
static void order() {
  int* at;
  cudaStream_t one, other;
  if (!TRY(cudaMalloc(&at, 64)) || !TRY(cudaStreamCreate(&one)) || !TRY(cudaStreamCreate(&other))) return;
  int wrong = 0;
  for (int turn = 0; turn < 20; ++turn) {
    int got = 0;
    TRY(cudaMemsetAsync(at, 0, 4, nullptr));
    then<<<1, 1, 0, turn % 2 ? one : other>>>(at, kTurn, 1);
    then<<<1, 1>>>(at, kTurn, 2);
    then<<<1, 1, 0, one>>>(at, kTurn, 3);
    TRY(cudaMemcpyAsync(&got, at, 4, cudaMemcpyDeviceToHost, nullptr));
    then<<<1, 1, 0, other>>>(at, kTurn, 4);
    TRY(cudaStreamSynchronize(nullptr));
    wrong += got != 123;
    TRY(cudaMemcpy(&got, at, 4, cudaMemcpyDeviceToHost));
    wrong += got != 1234;
  }
  good(wrong, "works in the order of the legacy stream");
  TRY(cudaStreamDestroy(one));
  TRY(cudaStreamDestroy(other));
}

static void contexts() {
  CUcontext primary = nullptr, further = nullptr;
  TRY(cuCtxGetCurrent(&primary));
  if (!TRY(cuCtxCreate(&further, nullptr, 0, 0))) return;
  on("a further context", [](auto begin, auto end) { return launch_on(nullptr, begin, end); });
  TRY(cuCtxDestroy(further));
  TRY(cuCtxSetCurrent(primary));
  on("the first context again", [](auto begin, auto end) { return launch_on(nullptr, begin, end); });
}

static void reset() {
  int *out, first = 0, second = 0;
  if (!TRY(cudaMalloc(&out, 4))) return;
  count<<<1, 1>>>(out);
  TRY(cudaMemcpy(&first, out, 4, cudaMemcpyDeviceToHost));
  if (!TRY(cudaDeviceReset()) || !TRY(cudaMalloc(&out, 4)) || !TRY(cudaMalloc(&seen, kSms * 4))) return;
  count<<<1, 1>>>(out);
  TRY(cudaMemcpy(&second, out, 4, cudaMemcpyDeviceToHost));
  good(first == 42 && second == 42 ? 0 : first * 1000 + second, "a reset context has fresh variables");
  on("a context that was reset", [](auto begin, auto end) { return launch_on(nullptr, begin, end); });
}

int main() {
  if (!TRY(cudaMalloc(&seen, kSms * 4))) return 3;
  streams();
  graphs();
  cooperative();
  order();
  contexts();
  reset();
  return errors ? 3 : 0;
}
