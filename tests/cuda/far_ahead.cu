// nvcc: -lcuda
// One thread, then two, put random work on streams of their own, far ahead of the device: kernels, host functions,
// events, copies, graphs, stream-ordered memory, waits for words. Each piece looks whether what comes before it has
// been done.
#include <array>
#include <atomic>
#include <random>
#include <thread>

#include "check.h"

constexpr int kStreams = 4, kEvents = 8, kApart = 16;  // counters lie so many words apart
constexpr int kOperations = 6000;
constexpr size_t kBytes = 1 << 22, kPart = 1 << 16;

__global__ void step(unsigned* counter, unsigned before, int* wrong) {
  volatile unsigned* const at = counter;
  if (*at != before) atomicAdd(wrong, 1);
  *at = before + 1;
}

__global__ void at_least(unsigned* counter, unsigned least, int* wrong) {
  if (*static_cast<volatile unsigned*>(counter) < least) atomicAdd(wrong, 1);
}

std::atomic<int> functions_sent{0}, functions_ran{0}, functions_wrong{0}, nodes_sent{0}, nodes_ran{0};

struct Look {
  volatile unsigned* counter;
  unsigned expected;
};

void CUDART_CB look(void* pointer) {
  const Look* const look = static_cast<const Look*>(pointer);
  if (*look->counter != look->expected) ++functions_wrong;
  ++functions_ran;
  delete look;
}

void CUDART_CB run_node(void*) { ++nodes_ran; }

class Worker {
 public:
  explicit Worker(unsigned seed) : random_(seed) {
    CHECK(cudaHostAlloc(&counters_, 4096, cudaHostAllocMapped));
    CHECK(cudaHostAlloc(&wrong_, 64, cudaHostAllocMapped));
    for (int i = 0; i < kStreams * kApart; ++i) counters_[i] = 0;
    *wrong_ = 0;
    CHECK(cudaMalloc(&words_, 4096));
    CHECK(cudaMemset(words_, 0, 4096));
    CHECK(cudaMalloc(&device_, kBytes));
    CHECK(cudaMallocHost(&host_, kBytes));
    for (int i = 0; i < kStreams; ++i)
      CHECK(cudaStreamCreateWithFlags(&streams_[i], i % 2 ? cudaStreamNonBlocking : cudaStreamDefault));
    for (cudaEvent_t& event : events_) CHECK(cudaEventCreateWithFlags(&event, cudaEventDisableTiming));
    capture();
  }

  void work() {
    for (int i = 0; i < kOperations; ++i) operate(random_() % kStreams, random_() % 16);
    for (const cudaStream_t stream : streams_) CHECK(cudaStreamSynchronize(stream));
    EXPECT_EQ(*wrong_, 0);
    for (int i = 0; i < kStreams; ++i) EXPECT_EQ(counters_[i * kApart], steps_[i]);
  }

 private:
  struct Recorded {
    int stream = -1;
    unsigned steps = 0;
  };

  unsigned* counter(int stream) { return counters_ + stream * kApart; }

  void capture() {
    cudaGraph_t graph;
    const cudaStream_t stream = streams_[1];
    CHECK(cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal));
    CHECK(cudaMemsetAsync(device_, 1, 256, stream));
    CHECK(cudaLaunchHostFunc(stream, run_node, nullptr));
    CHECK(cudaMemcpyAsync(host_, device_, 256, cudaMemcpyDeviceToHost, stream));
    CHECK(cudaStreamEndCapture(stream, &graph));
    CHECK(cudaGraphInstantiate(&graph_, graph, 0));
  }

  void copy(int stream, cudaMemcpyKind kind) {
    char* const ends[] = {device_ + stream * kPart, host_ + stream * kPart};
    const bool out = kind == cudaMemcpyDeviceToHost;
    CHECK(cudaMemcpyAsync(ends[out], ends[!out], size_t{64} << random_() % 11, kind, streams_[stream]));
  }

  void wait(int stream, int event) {
    const Recorded& of = recorded_[event];
    if (of.stream < 0) return;
    CHECK(cudaStreamWaitEvent(streams_[stream], events_[event], 0));
    at_least<<<1, 1, 0, streams_[stream]>>>(counter(of.stream), of.steps, wrong_);
  }

  void hand_over(int stream) {
    const auto word = reinterpret_cast<CUdeviceptr>(words_ + stream * kApart);
    ++word_;
    CHECK_DRIVER(cuStreamWriteValue32(streams_[(stream + 1) % kStreams], word, word_, 0));
    CHECK_DRIVER(cuStreamWaitValue32(streams_[stream], word, word_, CU_STREAM_WAIT_VALUE_GEQ));
  }

  void allocate(int stream) {
    void* memory;
    CHECK(cudaMallocAsync(&memory, 4096, streams_[stream]));
    CHECK(cudaMemsetAsync(memory, 0, 4096, streams_[stream]));
    CHECK(cudaFreeAsync(memory, streams_[stream]));
  }

  void operate(int stream, int operation) {
    const int event = random_() % kEvents;
    switch (operation) {
      case 0:
      case 1:
        ++functions_sent;
        CHECK(cudaLaunchHostFunc(streams_[stream], look, new Look{counter(stream), steps_[stream]}));
        break;
      case 2:
        CHECK(cudaEventRecord(events_[event], streams_[stream]));
        recorded_[event] = {stream, steps_[stream]};
        break;
      case 3:
      case 4:
        wait(stream, event);
        break;
      case 5:
        copy(stream, cudaMemcpyDeviceToHost);
        break;
      case 6:
        copy(stream, cudaMemcpyHostToDevice);
        break;
      case 7:
        ++nodes_sent;
        CHECK(cudaGraphLaunch(graph_, streams_[stream]));
        break;
      case 8:
        allocate(stream);
        break;
      case 9:
        hand_over(stream);
        break;
      default:
        step<<<1, 1, 0, streams_[stream]>>>(counter(stream), steps_[stream]++, wrong_);
    }
  }

  std::mt19937 random_;
  unsigned *counters_ = nullptr, *words_ = nullptr, word_ = 0;
  int* wrong_ = nullptr;
  char *device_ = nullptr, *host_ = nullptr;
  std::array<cudaStream_t, kStreams> streams_{};
  std::array<unsigned, kStreams> steps_{};
  std::array<cudaEvent_t, kEvents> events_{};
  std::array<Recorded, kEvents> recorded_{};
  cudaGraphExec_t graph_ = nullptr;
};

int main() {
  Worker(1).work();
  std::array<std::thread, 2> threads;
  for (unsigned i = 0; i < threads.size(); ++i) threads[i] = std::thread([i] { Worker(i + 2).work(); });
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(functions_wrong.load(), 0);
  EXPECT_EQ(functions_ran.load(), functions_sent.load());
  EXPECT_EQ(nodes_ran.load(), nodes_sent.load());
  return passed();
}
