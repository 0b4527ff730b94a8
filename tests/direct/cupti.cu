// A profiler in small, as PyTorch's is one: records of activity, and which of the program's own operations they belong
// to. Prints them as lines.
//
// nvcc: -lcupti
#include <cuda.h>
#include <cupti.h>

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <ctime>

#include "../cuda/check.h"

#define CUPTI(call)                                                         \
  do {                                                                      \
    const CUptiResult outcome = (call);                                     \
    if (outcome != CUPTI_SUCCESS) {                                         \
      const char* text = "?";                                               \
      cuptiGetResultString(outcome, &text);                                 \
      std::printf("%s:%d: %s gives %s\n", __FILE__, __LINE__, #call, text); \
      std::exit(1);                                                         \
    }                                                                       \
  } while (0)

__device__ long long now_ns() {
  long long time = 0;
  asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(time));
  return time;
}

// Leaves how long it ran by the GPU's own clock.
__global__ void spin(volatile long long* at, int turns, long long* ran_ns) {
  const long long begin = now_ns();
  for (int i = 0; i < turns; i++) *at = *at + i;
  *ran_ns = now_ns() - begin;
}

__global__ void twice(float* at, int count) {
  const int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < count) at[i] *= 2;
}

static unsigned long long ticks() {
  timespec now{};
  clock_gettime(CLOCK_MONOTONIC, &now);
  return 3 * (now.tv_sec * 1000000000ull + now.tv_nsec) + 7;  // a clock of the program's own
}

static void requested(uint8_t** buffer, size_t* size, size_t* most) {
  *size = 16 << 10;
  *buffer = static_cast<uint8_t*>(std::aligned_alloc(8, *size));
  *most = 0;
}

static unsigned long long start_of_all;

static void print(const CUpti_Activity* record) {
  const auto span = [](uint64_t begin, uint64_t end) {
    std::printf(" at %lld took %lld", static_cast<long long>(begin - start_of_all),
                static_cast<long long>(end - begin));
  };
  if (record->kind == CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL) {
    const auto* kernel = reinterpret_cast<const CUpti_ActivityKernel9*>(record);
    std::printf("kernel %s grid %d %d %d block %d %d %d shared %d stream %u correlation %u", kernel->name,
                kernel->gridX, kernel->gridY, kernel->gridZ, kernel->blockX, kernel->blockY, kernel->blockZ,
                kernel->dynamicSharedMemory, kernel->streamId, kernel->correlationId);
    span(kernel->start, kernel->end);
  } else if (record->kind == CUPTI_ACTIVITY_KIND_MEMCPY) {
    const auto* copy = reinterpret_cast<const CUpti_ActivityMemcpy5*>(record);
    std::printf("copy %d from %d to %d bytes %llu asynchronous %d correlation %u", copy->copyKind, copy->srcKind,
                copy->dstKind, static_cast<unsigned long long>(copy->bytes), copy->flags, copy->correlationId);
    span(copy->start, copy->end);
  } else if (record->kind == CUPTI_ACTIVITY_KIND_MEMSET) {
    const auto* fill = reinterpret_cast<const CUpti_ActivityMemset4*>(record);
    std::printf("fill %u bytes %llu correlation %u", fill->value, static_cast<unsigned long long>(fill->bytes),
                fill->correlationId);
    span(fill->start, fill->end);
  } else if (record->kind == CUPTI_ACTIVITY_KIND_DRIVER) {
    const auto* call = reinterpret_cast<const CUpti_ActivityAPI*>(record);
    const char* name = "?";
    cuptiGetCallbackName(CUPTI_CB_DOMAIN_DRIVER_API, call->cbid, &name);
    std::printf("call %s correlation %u result %u", name, call->correlationId, call->returnValue);
    span(call->start, call->end);
  } else if (record->kind == CUPTI_ACTIVITY_KIND_EXTERNAL_CORRELATION) {
    const auto* external = reinterpret_cast<const CUpti_ActivityExternalCorrelation*>(record);
    std::printf("external %d id %llu correlation %u", external->externalKind,
                static_cast<unsigned long long>(external->externalId), external->correlationId);
  } else if (record->kind == CUPTI_ACTIVITY_KIND_SYNCHRONIZATION) {
    const auto* wait = reinterpret_cast<const CUpti_ActivitySynchronization*>(record);
    std::printf("wait %d stream %d correlation %u", wait->type, static_cast<int>(wait->streamId), wait->correlationId);
    span(wait->start, wait->end);
  } else {
    std::printf("kind %d", record->kind);
  }
  std::printf("\n");
}

static void completed(CUcontext, uint32_t, uint8_t* buffer, size_t, size_t valid) {
  CUpti_Activity* record = nullptr;
  CUptiResult outcome = CUPTI_SUCCESS;
  while ((outcome = cuptiActivityGetNextRecord(buffer, valid, &record)) == CUPTI_SUCCESS) print(record);
  if (outcome != CUPTI_ERROR_MAX_LIMIT_REACHED) std::printf("broken buffer: %d\n", outcome);
  std::free(buffer);
}

static void told(void* user, CUpti_CallbackDomain, CUpti_CallbackId id, const void*) {
  std::printf("context %s %s\n", static_cast<const char*>(user),
              id == CUPTI_CBID_RESOURCE_CONTEXT_CREATED ? "new" : "ends");
}

int main() {
  CUpti_SubscriberHandle subscriber = nullptr, another = nullptr;
  CUPTI(cuptiSubscribe(&subscriber, reinterpret_cast<CUpti_CallbackFunc>(told), const_cast<char*>("callback")));
  if (cuptiSubscribe(&another, nullptr, nullptr) != CUPTI_ERROR_MULTIPLE_SUBSCRIBERS_NOT_SUPPORTED) return 2;
  for (const auto id : {CUPTI_CBID_RESOURCE_CONTEXT_CREATED, CUPTI_CBID_RESOURCE_CONTEXT_DESTROY_STARTING})
    CUPTI(cuptiEnableCallback(1, subscriber, CUPTI_CB_DOMAIN_RESOURCE, id));
  if (cuptiEnableDomain(1, subscriber, CUPTI_CB_DOMAIN_DRIVER_API) != CUPTI_ERROR_NOT_SUPPORTED) return 3;
  if (cuptiActivityEnable(static_cast<CUpti_ActivityKind>(999)) != CUPTI_ERROR_INVALID_KIND) return 4;
  if (cuptiActivityEnable(CUPTI_ACTIVITY_KIND_PC_SAMPLING) != CUPTI_ERROR_NOT_SUPPORTED) return 5;
  uint64_t popped = 0;
  if (cuptiActivityPopExternalCorrelationId(CUPTI_EXTERNAL_CORRELATION_KIND_CUSTOM0, &popped) !=
      CUPTI_ERROR_QUEUE_EMPTY)
    return 6;

  CUPTI(cuptiActivityRegisterTimestampCallback([]() -> uint64_t { return ticks(); }));
  CUPTI(cuptiActivityRegisterCallbacks(requested, completed));
  cudaStream_t stream;
  long long *memory = nullptr, *ran_ns = nullptr;
  CHECK(cudaMalloc(&memory, 4 << 20));
  CHECK(cudaMalloc(&ran_ns, sizeof *ran_ns));
  CHECK(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
  spin<<<1, 1, 0, stream>>>(memory, 1, ran_ns);  // what is compiled is not measured below
  CHECK(cudaDeviceSynchronize());
  static float host[1 << 20];
  float* pinned = nullptr;
  CHECK(cudaMallocHost(&pinned, 1 << 20));

  const CUpti_ActivityKind kinds[] = {CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL,
                                      CUPTI_ACTIVITY_KIND_MEMCPY,
                                      CUPTI_ACTIVITY_KIND_MEMSET,
                                      CUPTI_ACTIVITY_KIND_DRIVER,
                                      CUPTI_ACTIVITY_KIND_SYNCHRONIZATION,
                                      CUPTI_ACTIVITY_KIND_EXTERNAL_CORRELATION};
  for (const auto kind : kinds) CUPTI(cuptiActivityEnable(kind));
  CUPTI(cuptiActivityEnableDriverApi(CUPTI_DRIVER_TRACE_CBID_cuStreamSynchronize, 0));
  start_of_all = ticks();
  CUPTI(cuptiActivityPushExternalCorrelationId(CUPTI_EXTERNAL_CORRELATION_KIND_CUSTOM0, 41));
  CUPTI(cuptiActivityPushExternalCorrelationId(CUPTI_EXTERNAL_CORRELATION_KIND_CUSTOM1, 7));
  CHECK(cudaMemset(memory, 0, 4 << 20));
  const unsigned long long before = ticks();
  spin<<<1, 1, 0, stream>>>(memory, 2000000, ran_ns);
  CHECK(cudaStreamSynchronize(stream));
  std::printf("seen %llu\n", ticks() - before);
  CUPTI(cuptiActivityPopExternalCorrelationId(CUPTI_EXTERNAL_CORRELATION_KIND_CUSTOM0, &popped));
  if (popped != 41) return 7;
  CHECK(cudaMemcpy(memory, host, sizeof(host), cudaMemcpyHostToDevice));
  CHECK(cudaMemcpyAsync(pinned, memory, 1 << 20, cudaMemcpyDeviceToHost, stream));
  twice<<<dim3(16), dim3(64, 2), 256, stream>>>(reinterpret_cast<float*>(memory), 1024);
  CHECK(cudaDeviceSynchronize());
  for (const auto kind : kinds) CUPTI(cuptiActivityDisable(kind));
  CUPTI(cuptiActivityFlushAll(CUPTI_ACTIVITY_FLAG_FLUSH_FORCED));
  std::printf("off\n");
  twice<<<1, 1, 0, stream>>>(reinterpret_cast<float*>(memory), 1);
  CHECK(cudaDeviceSynchronize());
  CUPTI(cuptiActivityFlushAll(0));
  size_t dropped = 1;
  CUPTI(cuptiActivityGetNumDroppedRecords(nullptr, 0, &dropped));
  std::printf("dropped %zu\n", dropped);
  long long ran = 0;
  CHECK(cudaMemcpy(&ran, ran_ns, sizeof ran, cudaMemcpyDeviceToHost));
  std::printf("ran %lld\n", ran);
  CHECK(cudaDeviceReset());
  CUPTI(cuptiUnsubscribe(subscriber));
  CUPTI(cuptiFinalize());
  return 0;
}
