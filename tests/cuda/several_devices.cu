// All devices that the program sees, one after the other and at the same time: memory, kernels, streams, events and
// pinned memory of each. With one device it is a program for one.
#include <cstring>
#include <thread>
#include <vector>

#include "check.h"

namespace {

constexpr int kCount = 1 << 18;
constexpr size_t kBytes = kCount * sizeof(int);

__device__ int offset;

__global__ void add(int* to, const int* from, int value) {
  const int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < kCount) to[i] = from[i] + value + offset;
}

void launch(int* to, const int* from, int value, cudaStream_t stream) {
  add<<<kCount / 256, 256, 0, stream>>>(to, from, value);
  CHECK(cudaGetLastError());
}

bool all_are(const int* data, int value) {
  for (int i = 0; i < kCount; ++i) {
    if (data[i] != value) return false;
  }
  return true;
}

int devices() {
  int count = 0;
  CHECK(cudaGetDeviceCount(&count));
  return count;
}

void set_and_ask(int device) {
  int now = -1;
  CHECK(cudaSetDevice(device));
  CHECK(cudaGetDevice(&now));
  EXPECT_EQ(now, device);
}

// Each has its own variable, memory and code; addresses of two never meet.
void one_after_the_other() {
  std::vector<int*> memory(devices());
  for (int device = 0; device < devices(); ++device) {
    set_and_ask(device);
    const int mine = 100 * device;
    CHECK(cudaMemcpyToSymbol(offset, &mine, sizeof(mine)));
    CHECK(cudaMalloc(&memory[device], kBytes));
    CHECK(cudaMemset(memory[device], 0, kBytes));
    launch(memory[device], memory[device], 1, nullptr);
  }
  for (int device = 0; device < devices(); ++device) {
    set_and_ask(device);
    std::vector<int> data(kCount);
    CHECK(cudaMemcpy(data.data(), memory[device], kBytes, cudaMemcpyDeviceToHost));
    EXPECT(all_are(data.data(), 100 * device + 1));
    cudaPointerAttributes attributes{};
    CHECK(cudaPointerGetAttributes(&attributes, memory[device]));
    EXPECT_EQ(attributes.device, device);
    for (int other = 0; other < device; ++other) EXPECT(memory[other] != memory[device]);
  }
  // Freed while another device is current.
  set_and_ask(0);
  for (int* const one : memory) CHECK(cudaFree(one));
}

void identities() {
  for (int device = 0; device < devices(); ++device) {
    char bus[32] = {};
    int found = -1;
    CHECK(cudaDeviceGetPCIBusId(bus, sizeof(bus), device));
    CHECK(cudaDeviceGetByPCIBusId(&found, bus));
    EXPECT_EQ(found, device);
    cudaDeviceProp mine{}, others{};
    CHECK(cudaGetDeviceProperties(&mine, device));
    for (int other = 0; other < devices(); ++other) {
      int access = -1;
      CHECK(cudaDeviceCanAccessPeer(&access, device, other));
      EXPECT(access == 0 || other != device);
      if (other == device) continue;
      CHECK(cudaGetDeviceProperties(&others, other));
      EXPECT(std::memcmp(&mine.uuid, &others.uuid, sizeof(mine.uuid)) != 0);
    }
  }
  EXPECT_CODE(cudaErrorInvalidDevice, cudaSetDevice(devices()));
  cudaGetLastError();
}

// Pinned memory of one device is every other's as well, also of those that come later.
void pinned_memory() {
  set_and_ask(devices() - 1);
  int* pinned = nullptr;
  CHECK(cudaMallocHost(&pinned, kBytes));
  std::vector<int> pageable(kCount);
  CHECK(cudaHostRegister(pageable.data(), kBytes, cudaHostRegisterDefault));
  for (int i = 0; i < kCount; ++i) pinned[i] = pageable[i] = 5;
  for (int device = 0; device < devices(); ++device) {
    set_and_ask(device);
    const int none = 0;
    CHECK(cudaMemcpyToSymbol(offset, &none, sizeof(none)));
    launch(pinned, pinned, 1, nullptr);
    launch(pageable.data(), pageable.data(), 2, nullptr);
    CHECK(cudaDeviceSynchronize());
  }
  EXPECT(all_are(pinned, 5 + devices()));
  EXPECT(all_are(pageable.data(), 5 + 2 * devices()));
  set_and_ask(0);
  CHECK(cudaHostUnregister(pageable.data()));
  CHECK(cudaFreeHost(pinned));
}

void one_thread_each() {
  std::vector<std::thread> threads;
  for (int device = 0; device < devices(); ++device) {
    threads.emplace_back([device] {
      set_and_ask(device);
      cudaStream_t stream;
      int *memory = nullptr, *pinned = nullptr;
      CHECK(cudaStreamCreate(&stream));
      CHECK(cudaMalloc(&memory, kBytes));
      CHECK(cudaMallocHost(&pinned, kBytes));
      for (int round = 0; round < 20; ++round) {
        CHECK(cudaMemsetAsync(memory, 0, kBytes, stream));
        for (int i = 0; i < 5; ++i) launch(memory, memory, device + round, stream);
        CHECK(cudaMemcpyAsync(pinned, memory, kBytes, cudaMemcpyDeviceToHost, stream));
        CHECK(cudaStreamSynchronize(stream));
        EXPECT(all_are(pinned, 5 * (device + round)));
      }
      CHECK(cudaFreeHost(pinned));
      CHECK(cudaFree(memory));
      CHECK(cudaStreamDestroy(stream));
    });
  }
  for (std::thread& thread : threads) thread.join();
}

// A stream is its device's, whichever is current; events are recorded in streams of their own device.
void streams_and_events() {
  std::vector<cudaStream_t> streams(devices());
  std::vector<cudaEvent_t> events(devices());
  for (int device = 0; device < devices(); ++device) {
    set_and_ask(device);
    CHECK(cudaStreamCreate(&streams[device]));
    CHECK(cudaEventCreate(&events[device]));
  }
  set_and_ask(0);
  for (int device = 0; device < devices(); ++device) {
    CHECK(cudaEventRecord(events[device], streams[device]));
    CHECK(cudaStreamSynchronize(streams[device]));
    CHECK(cudaEventQuery(events[device]));
    if (device == 0) continue;
    EXPECT_CODE(cudaErrorInvalidResourceHandle, cudaEventRecord(events[0], streams[device]));
    EXPECT_CODE(cudaErrorInvalidResourceHandle, cudaEventRecord(events[device], nullptr));
    float milliseconds = 0;
    EXPECT_CODE(cudaErrorInvalidResourceHandle, cudaEventElapsedTime(&milliseconds, events[0], events[device]));
    cudaGetLastError();
  }
  for (int device = 0; device < devices(); ++device) {
    CHECK(cudaEventDestroy(events[device]));
    CHECK(cudaStreamDestroy(streams[device]));
  }
}

// A kernel of one device after the other's, without the host: it waits for the event.
void events_across() {
  const int last = devices() - 1;
  int* pinned = nullptr;
  cudaStream_t first_stream, last_stream;
  cudaEvent_t done, back;
  set_and_ask(0);
  CHECK(cudaMallocHost(&pinned, kBytes));
  CHECK(cudaStreamCreate(&first_stream));
  CHECK(cudaEventCreateWithFlags(&done, cudaEventDisableTiming));
  set_and_ask(last);
  CHECK(cudaStreamCreateWithFlags(&last_stream, cudaStreamNonBlocking));
  CHECK(cudaEventCreateWithFlags(&back, cudaEventDisableTiming));
  CHECK(cudaStreamWaitEvent(last_stream, done, 0));  // not recorded yet: waits for nothing
  std::memset(pinned, 0, kBytes);
  for (int round = 0; round < 50; ++round) {
    set_and_ask(0);
    launch(pinned, pinned, 1, first_stream);
    CHECK(cudaEventRecord(done, first_stream));
    set_and_ask(last);
    CHECK(cudaStreamWaitEvent(last_stream, done, 0));
    launch(pinned, pinned, 1, last_stream);
    CHECK(cudaEventRecord(back, last_stream));
    CHECK(cudaStreamWaitEvent(first_stream, back, 0));
  }
  CHECK(cudaStreamSynchronize(first_stream));
  EXPECT(all_are(pinned, 100));
  CHECK(cudaStreamSynchronize(last_stream));
  for (cudaEvent_t event : {done, back}) CHECK(cudaEventDestroy(event));
  for (cudaStream_t stream : {first_stream, last_stream}) CHECK(cudaStreamDestroy(stream));
  CHECK(cudaFreeHost(pinned));
}

void check_on(int device, const int* memory, int value) {
  set_and_ask(device);
  std::vector<int> data(kCount);
  CHECK(cudaMemcpy(data.data(), memory, kBytes, cudaMemcpyDeviceToHost));
  EXPECT(all_are(data.data(), value));
}

// Between two devices, each way, whichever is current; also what another device's memory is filled with.
void copies_across() {
  const int last = devices() - 1;
  int *from = nullptr, *to = nullptr;
  set_and_ask(0);
  CHECK(cudaMalloc(&from, kBytes));
  set_and_ask(last);
  CHECK(cudaMalloc(&to, kBytes));
  for (int current : {0, last}) {
    set_and_ask(current);
    CHECK(cudaMemset(from, current + 1, kBytes));
    CHECK(cudaMemcpyPeer(to, last, from, 0, kBytes));
    check_on(last, to, 0x01010101 * (current + 1));
    set_and_ask(current);
    CHECK(cudaMemset(to, 7, kBytes));
    CHECK(cudaMemcpy(from, to, kBytes, cudaMemcpyDefault));
    check_on(0, from, 0x07070707);
    std::vector<int> data(kCount, 9);
    set_and_ask(current);
    CHECK(cudaMemcpy(to, data.data(), kBytes, cudaMemcpyHostToDevice));
    CHECK(cudaMemcpy(from, data.data(), kBytes, cudaMemcpyHostToDevice));
    check_on(0, to, 9);
    check_on(last, from, 9);
    // In the middle of a stream's work.
    cudaStream_t stream;
    set_and_ask(current);
    CHECK(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
    int* const near = current == 0 ? from : to;
    int* const far = current == 0 ? to : from;
    for (int round = 0; round < 10; ++round) {
      launch(near, near, 1, stream);
      CHECK(cudaMemcpyPeerAsync(far, last - current, near, current, kBytes, stream));
      CHECK(cudaMemsetAsync(near, 0, kBytes, stream));
      CHECK(cudaMemcpyPeerAsync(near, current, far, last - current, kBytes, stream));
    }
    CHECK(cudaStreamSynchronize(stream));
    check_on(current, near, 19);
    CHECK(cudaStreamDestroy(stream));
  }
  // Rows.
  set_and_ask(0);
  constexpr size_t kPitch = 4096, kWidth = 1000, kRows = 200;
  CHECK(cudaMemset2D(from, kPitch, 3, kWidth, kRows));
  CHECK(cudaMemset(to, 5, kBytes));
  CHECK(cudaMemcpy2D(to, kPitch, from, kPitch, kWidth, kRows, cudaMemcpyDefault));
  std::vector<unsigned char> bytes(kBytes);
  CHECK(cudaMemcpy(bytes.data(), to, kBytes, cudaMemcpyDefault));
  for (size_t row = 0; row < kRows; ++row) {
    EXPECT_EQ(bytes[row * kPitch + kWidth - 1], 3);
    EXPECT_EQ(bytes[row * kPitch + kWidth], 5);
  }
  CHECK(cudaFree(from));
  CHECK(cudaFree(to));
}

// Larger than what lies between two devices at a time.
void large_copy() {
  constexpr size_t kLarge = 40u << 20;
  const int last = devices() - 1;
  unsigned char *from = nullptr, *to = nullptr;
  std::vector<unsigned char> there(kLarge), back(kLarge);
  for (size_t i = 0; i < kLarge; ++i) there[i] = static_cast<unsigned char>(i * 7 + (i >> 12));
  set_and_ask(0);
  CHECK(cudaMalloc(&from, kLarge));
  CHECK(cudaMemcpy(from, there.data(), kLarge, cudaMemcpyHostToDevice));
  set_and_ask(last);
  CHECK(cudaMalloc(&to, kLarge));
  CHECK(cudaMemcpyPeer(to, last, from, 0, kLarge));
  CHECK(cudaMemcpy(back.data(), to, kLarge, cudaMemcpyDeviceToHost));
  EXPECT(there == back);
  CHECK(cudaFree(from));
  CHECK(cudaFree(to));
}

}  // namespace

int main() {
  identities();
  one_after_the_other();
  pinned_memory();
  one_thread_each();
  streams_and_events();
  events_across();
  copies_across();
  large_copy();
  return passed();
}
