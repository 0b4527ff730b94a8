// nvcc: -lcuda
// Host functions return although more is launched behind them than a queue takes, and while another thread loads code,
// for which a driver may wait for the GPU.
#include <atomic>
#include <chrono>
#include <thread>

#include "check.h"

__global__ void add(int* at, int value) { *at += value; }

constexpr char kModule[] = R"(.version 7.0
.target sm_70
.address_size 64
.global .align 4 .b32 word = 3;
.visible .entry nothing() { ret; }
)";
constexpr int kLaunches = 3000;

void CUDART_CB slow(void* returned) {
  std::this_thread::sleep_for(std::chrono::milliseconds(30));
  ++*static_cast<std::atomic<int>*>(returned);
}

void CUDART_CB quick(void* returned) { ++*static_cast<std::atomic<int>*>(returned); }

struct Looks {
  int* numbers = nullptr;
  int in_order = 0;  // functions that saw what the kernels before them had written
  int expected = 0;
};

void CUDART_CB look(void* pointer) {
  Looks* const looks = static_cast<Looks*>(pointer);
  looks->expected += 2;
  looks->in_order += looks->numbers[0] == looks->expected;
}

// Functions read managed memory that the device has, far behind what has been launched.
void managed_memory(cudaStream_t stream) {
  Looks looks;
  CHECK(cudaMallocManaged(&looks.numbers, 4096));
  looks.numbers[0] = 0;
  for (int i = 0; i < kLaunches / 2; ++i) {
    add<<<1, 1, 0, stream>>>(looks.numbers, 1);
    add<<<1, 1, 0, stream>>>(looks.numbers, 1);
    CHECK(cudaLaunchHostFunc(stream, look, &looks));
  }
  CHECK(cudaStreamSynchronize(stream));
  EXPECT_EQ(looks.in_order, kLaunches / 2);
  CHECK(cudaFree(looks.numbers));
}

int main() {
  int *data, *pinned;
  CHECK(cudaMalloc(&data, 1 << 20));
  CHECK(cudaMallocHost(&pinned, 1 << 20));
  CHECK(cudaMemset(data, 0, 1 << 20));
  cudaStream_t stream;
  CHECK(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));

  std::atomic<int> returned{0};
  for (int round = 0; round < 2; ++round) {
    CHECK(cudaLaunchHostFunc(stream, slow, &returned));
    for (int i = 0; i < kLaunches; ++i) add<<<1, 1, 0, stream>>>(data, 1);
  }
  CHECK(cudaGetLastError());
  CHECK(cudaMemcpyAsync(pinned, data, 4, cudaMemcpyDeviceToHost, stream));
  CHECK(cudaStreamSynchronize(stream));
  EXPECT_EQ(pinned[0], 2 * kLaunches);
  EXPECT_EQ(returned.load(), 2);

  returned = 0;  // one behind each kernel, far ahead of the device
  for (int i = 0; i < kLaunches; ++i) {
    add<<<1, 1, 0, stream>>>(data, 1);
    CHECK(cudaLaunchHostFunc(stream, quick, &returned));
  }
  CHECK(cudaStreamSynchronize(stream));
  EXPECT_EQ(returned.load(), kLaunches);

  managed_memory(stream);

  CUcontext context = nullptr;
  CHECK_DRIVER(cuCtxGetCurrent(&context));
  std::atomic<bool> over{false};
  std::thread loader([&] {
    CHECK_DRIVER(cuCtxSetCurrent(context));
    while (!over) {
      CUmodule module = nullptr;
      CHECK_DRIVER(cuModuleLoadData(&module, kModule));
      CHECK_DRIVER(cuModuleUnload(module));
    }
  });
  cudaEvent_t event;
  CHECK(cudaEventCreateWithFlags(&event, cudaEventDisableTiming));
  returned = 0;
  for (int round = 0; round < 50; ++round) {
    CHECK(cudaMemcpyAsync(pinned, data, 1 << 20, cudaMemcpyDeviceToHost, stream));
    CHECK(cudaLaunchHostFunc(stream, quick, &returned));
    CHECK(cudaMemcpyAsync(data, pinned, 1 << 20, cudaMemcpyHostToDevice, stream));
    CHECK(cudaEventRecord(event, stream));
    if (round % 10 == 9) CHECK(cudaEventSynchronize(event));
  }
  CHECK(cudaStreamSynchronize(stream));
  over = true;
  loader.join();
  EXPECT_EQ(returned.load(), 50);
  return passed();
}
