// nvcc: -lcuda
// Two processes and one memory: handles of memory and events, descriptors of physical memory, and what is refused.
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstring>
#include <vector>

#include "check.h"
#include "parts.cuh"

constexpr int kCount = 3000000, kSmall = 100;

__global__ void fill(int* data, int count, int factor) {
  const int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < count) data[i] = i * factor;
}

__global__ void add(int* data, int count, int what) {
  const int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < count) data[i] += what;
}

static int blocks(int count) { return (count + 255) / 256; }

static void expect_values(const int* device, int count, int factor, int more) {
  std::vector<int> values(count);
  CHECK(cudaMemcpy(values.data(), device, count * sizeof(int), cudaMemcpyDeviceToHost));
  for (int i = 0; i < count; ++i) EXPECT_EQ(values[i], i * factor + more);
}

// One byte, so that the other side goes on.
static void tell(int socket) {
  const char word = 1;
  EXPECT(write(socket, &word, 1) == 1);
}

static void receive(int socket) {
  char word = 0;
  EXPECT(read(socket, &word, 1) == 1);
}

static void send_descriptor(int socket, int descriptor) {
  char word = 2;
  iovec part{&word, 1};
  alignas(cmsghdr) char control[CMSG_SPACE(sizeof(int))] = {};
  msghdr message{};
  message.msg_iov = &part;
  message.msg_iovlen = 1;
  message.msg_control = control;
  message.msg_controllen = sizeof(control);
  cmsghdr* const header = CMSG_FIRSTHDR(&message);
  header->cmsg_level = SOL_SOCKET;
  header->cmsg_type = SCM_RIGHTS;
  header->cmsg_len = CMSG_LEN(sizeof(int));
  std::memcpy(CMSG_DATA(header), &descriptor, sizeof(int));
  EXPECT(sendmsg(socket, &message, 0) == 1);
}

static int receive_descriptor(int socket) {
  char word = 0;
  iovec part{&word, 1};
  alignas(cmsghdr) char control[CMSG_SPACE(sizeof(int))] = {};
  msghdr message{};
  message.msg_iov = &part;
  message.msg_iovlen = 1;
  message.msg_control = control;
  message.msg_controllen = sizeof(control);
  EXPECT(recvmsg(socket, &message, 0) == 1 && CMSG_FIRSTHDR(&message));
  int descriptor = -1;
  std::memcpy(&descriptor, CMSG_DATA(CMSG_FIRSTHDR(&message)), sizeof(int));
  return descriptor;
}

static CUdeviceptr map(CUmemGenericAllocationHandle memory, size_t bytes) {
  CUdeviceptr at = 0;
  CUmemAccessDesc access{};
  access.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
  access.flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE;
  CHECK_DRIVER(cuMemAddressReserve(&at, bytes, 0, 0, 0));
  CHECK_DRIVER(cuMemMap(at, bytes, 0, memory, 0));
  CHECK_DRIVER(cuMemSetAccess(at, bytes, &access, 1));
  return at;
}

static void unmap(CUdeviceptr at, size_t bytes) {
  CHECK(cudaDeviceSynchronize());
  CHECK_DRIVER(cuMemUnmap(at, bytes));
  CHECK_DRIVER(cuMemAddressFree(at, bytes));
}

struct Letter {
  cudaIpcMemHandle_t large, small;
};

static void give_memory(int socket) {
  int *large, *small;
  CHECK(cudaMalloc(&large, kCount * sizeof(int)));
  CHECK(cudaMalloc(&small, kSmall * sizeof(int)));
  Letter letter{};
  CHECK(cudaIpcGetMemHandle(&letter.large, large));
  CHECK(cudaIpcGetMemHandle(&letter.small, small));
  void* own = nullptr;
  EXPECT(cudaIpcOpenMemHandle(&own, letter.large, cudaIpcMemLazyEnablePeerAccess) != cudaSuccess);
  cudaGetLastError();
  fill<<<blocks(kCount), 256>>>(large, kCount, 3);
  fill<<<blocks(kSmall), 256>>>(small, kSmall, 7);
  CHECK(cudaDeviceSynchronize());
  EXPECT(write(socket, &letter, sizeof(letter)) == sizeof(letter));
  receive(socket);  // the other has added
  expect_values(large, kCount, 3, 1);
  expect_values(small, kSmall, 7, 2);
  CHECK(cudaFree(large));
  tell(socket);
  receive(socket);
  CHECK(cudaFree(small));
}

static void take_memory(int socket) {
  Letter letter;
  EXPECT(read(socket, &letter, sizeof(letter)) == sizeof(letter));
  int *large, *small, *again;
  CHECK(cudaIpcOpenMemHandle(reinterpret_cast<void**>(&large), letter.large, cudaIpcMemLazyEnablePeerAccess));
  CHECK(cudaIpcOpenMemHandle(reinterpret_cast<void**>(&small), letter.small, cudaIpcMemLazyEnablePeerAccess));
  expect_values(large, kCount, 3, 0);
  expect_values(small, kSmall, 7, 0);
  add<<<blocks(kCount), 256>>>(large, kCount, 1);
  add<<<blocks(kSmall), 256>>>(small, kSmall, 2);
  CHECK(cudaDeviceSynchronize());
  CHECK(cudaIpcCloseMemHandle(large));
  tell(socket);
  receive(socket);  // `large` is freed
  EXPECT(cudaIpcOpenMemHandle(reinterpret_cast<void**>(&again), letter.large, cudaIpcMemLazyEnablePeerAccess) !=
         cudaSuccess);
  cudaGetLastError();
  cudaIpcMemHandle_t nonsense;
  std::memset(&nonsense, 0x5a, sizeof(nonsense));
  EXPECT(cudaIpcOpenMemHandle(reinterpret_cast<void**>(&again), nonsense, cudaIpcMemLazyEnablePeerAccess) !=
         cudaSuccess);
  cudaGetLastError();
  CHECK(cudaIpcCloseMemHandle(small));
  tell(socket);
}

static void give_event(int socket) {
  int* data;
  CHECK(cudaMalloc(&data, kCount * sizeof(int)));
  cudaEvent_t filled;
  CHECK(cudaEventCreateWithFlags(&filled, cudaEventInterprocess | cudaEventDisableTiming));
  cudaIpcEventHandle_t event;
  cudaIpcMemHandle_t memory;
  CHECK(cudaIpcGetEventHandle(&event, filled));
  CHECK(cudaIpcGetMemHandle(&memory, data));
  fill<<<blocks(kCount), 256>>>(data, kCount, 5);
  CHECK(cudaEventRecord(filled));
  EXPECT(write(socket, &event, sizeof(event)) == sizeof(event));
  EXPECT(write(socket, &memory, sizeof(memory)) == sizeof(memory));
  receive(socket);
  CHECK(cudaEventDestroy(filled));
  CHECK(cudaFree(data));
}

static void take_event(int socket) {
  cudaIpcEventHandle_t event;
  cudaIpcMemHandle_t memory;
  EXPECT(read(socket, &event, sizeof(event)) == sizeof(event));
  EXPECT(read(socket, &memory, sizeof(memory)) == sizeof(memory));
  CHECK(cudaFree(nullptr));
  cudaEvent_t filled;
  int* data;
  CHECK(cudaIpcOpenEventHandle(&filled, event));
  CHECK(cudaIpcOpenMemHandle(reinterpret_cast<void**>(&data), memory, cudaIpcMemLazyEnablePeerAccess));
  CHECK(cudaStreamWaitEvent(0, filled, 0));
  expect_values(data, kCount, 5, 0);
  CHECK(cudaEventSynchronize(filled));
  CHECK(cudaEventDestroy(filled));
  CHECK(cudaIpcCloseMemHandle(data));
  tell(socket);
}

static CUmemAllocationProp exportable(size_t* granule) {
  CUmemAllocationProp prop{};
  prop.type = CU_MEM_ALLOCATION_TYPE_PINNED;
  prop.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
  prop.requestedHandleTypes = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR;
  CHECK(cudaSetDevice(0));
  CHECK(cudaFree(nullptr));
  CHECK_DRIVER(cuMemGetAllocationGranularity(granule, &prop, CU_MEM_ALLOC_GRANULARITY_MINIMUM));
  return prop;
}

static void give_descriptor(int socket) {
  size_t granule = 0;
  const CUmemAllocationProp prop = exportable(&granule);
  CUmemGenericAllocationHandle memory;
  CHECK_DRIVER(cuMemCreate(&memory, granule, &prop, 0));
  int descriptor = -1;
  CHECK_DRIVER(cuMemExportToShareableHandle(&descriptor, memory, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0));
  const CUdeviceptr mapped = map(memory, granule);
  fill<<<blocks(kSmall), 256>>>(reinterpret_cast<int*>(mapped), kSmall, 11);
  CHECK(cudaDeviceSynchronize());
  send_descriptor(socket, descriptor);
  close(descriptor);
  receive(socket);
  expect_values(reinterpret_cast<int*>(mapped), kSmall, 11, 4);
  unmap(mapped, granule);
  CHECK_DRIVER(cuMemRelease(memory));
}

static void take_descriptor(int socket) {
  const int descriptor = receive_descriptor(socket);
  size_t granule = 0;
  exportable(&granule);
  CUmemGenericAllocationHandle memory;
  CHECK_DRIVER(cuMemImportFromShareableHandle(&memory, reinterpret_cast<void*>(static_cast<uintptr_t>(descriptor)),
                                              CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR));
  close(descriptor);
  const CUdeviceptr mapped = map(memory, granule);
  expect_values(reinterpret_cast<int*>(mapped), kSmall, 11, 0);
  add<<<blocks(kSmall), 256>>>(reinterpret_cast<int*>(mapped), kSmall, 4);
  unmap(mapped, granule);
  CHECK_DRIVER(cuMemRelease(memory));
  tell(socket);
}

// One that gives and one that takes, both processes of their own. A side that fails ends its socket, and so the other.
template <void (*give)(int), void (*take)(int)>
static void both() {
  int pair[2];
  EXPECT(socketpair(AF_UNIX, SOCK_STREAM, 0, pair) == 0);
  const pid_t child = fork();
  if (child == 0) {
    close(pair[0]);
    take(pair[1]);
    std::exit(0);
  }
  close(pair[1]);
  give(pair[0]);
  int status = -1;
  EXPECT(waitpid(child, &status, 0) == child && status == 0);
}

int main() {
  return run_parts({
      {"memory", both<give_memory, take_memory>},
      {"events", both<give_event, take_event>},
      {"descriptors", both<give_descriptor, take_descriptor>},
  });
}
