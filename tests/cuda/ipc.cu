// nvcc: -lcuda
// device: gpu
// Two processes and one memory: handles of memory and events, descriptors of physical memory, and what is refused.
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstring>
#include <vector>

#include "check.h"

constexpr int kCount = 3000000, kSmall = 100;

struct Letter {
  cudaIpcMemHandle_t large, small;
  cudaIpcEventHandle_t filled;
  size_t granule;
};

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

static void hear(int socket) {
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

static int giver(int socket) {
  int *large, *small;
  CHECK(cudaMalloc(&large, kCount * sizeof(int)));
  CHECK(cudaMalloc(&small, kSmall * sizeof(int)));
  cudaStream_t stream;
  cudaEvent_t filled;
  CHECK(cudaStreamCreate(&stream));
  CHECK(cudaEventCreateWithFlags(&filled, cudaEventInterprocess | cudaEventDisableTiming));
  Letter letter{};
  CHECK(cudaIpcGetMemHandle(&letter.large, large));
  CHECK(cudaIpcGetMemHandle(&letter.small, small));
  CHECK(cudaIpcGetEventHandle(&letter.filled, filled));
  void* own = nullptr;
  EXPECT(cudaIpcOpenMemHandle(&own, letter.large, cudaIpcMemLazyEnablePeerAccess) != cudaSuccess);
  cudaGetLastError();
  fill<<<blocks(kCount), 256, 0, stream>>>(large, kCount, 3);
  fill<<<blocks(kSmall), 256, 0, stream>>>(small, kSmall, 7);
  CHECK(cudaEventRecord(filled, stream));

  CUmemAllocationProp prop{};
  prop.type = CU_MEM_ALLOCATION_TYPE_PINNED;
  prop.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
  prop.requestedHandleTypes = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR;
  CHECK_DRIVER(cuMemGetAllocationGranularity(&letter.granule, &prop, CU_MEM_ALLOC_GRANULARITY_MINIMUM));
  CUmemGenericAllocationHandle memory;
  CHECK_DRIVER(cuMemCreate(&memory, letter.granule, &prop, 0));
  int descriptor = -1;
  CHECK_DRIVER(cuMemExportToShareableHandle(&descriptor, memory, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0));
  const CUdeviceptr mapped = map(memory, letter.granule);
  fill<<<blocks(kSmall), 256>>>(reinterpret_cast<int*>(mapped), kSmall, 11);
  CHECK(cudaDeviceSynchronize());

  EXPECT(write(socket, &letter, sizeof(letter)) == sizeof(letter));
  send_descriptor(socket, descriptor);
  close(descriptor);
  hear(socket);  // the other has added
  expect_values(large, kCount, 3, 1);
  expect_values(small, kSmall, 7, 2);
  expect_values(reinterpret_cast<int*>(mapped), kSmall, 11, 4);
  unmap(mapped, letter.granule);
  CHECK_DRIVER(cuMemRelease(memory));
  CHECK(cudaFree(large));
  tell(socket);  // it is gone
  hear(socket);
  CHECK(cudaFree(small));
  return 0;
}

static int taker(int socket) {
  Letter letter;
  EXPECT(read(socket, &letter, sizeof(letter)) == sizeof(letter));
  const int descriptor = receive_descriptor(socket);
  CHECK(cudaSetDevice(0));
  CHECK(cudaFree(nullptr));
  int *large, *small, *again;
  cudaEvent_t filled;
  CHECK(cudaIpcOpenMemHandle(reinterpret_cast<void**>(&large), letter.large, cudaIpcMemLazyEnablePeerAccess));
  CHECK(cudaIpcOpenMemHandle(reinterpret_cast<void**>(&small), letter.small, cudaIpcMemLazyEnablePeerAccess));
  CHECK(cudaIpcOpenEventHandle(&filled, letter.filled));
  CHECK(cudaStreamWaitEvent(0, filled, 0));
  expect_values(large, kCount, 3, 0);
  expect_values(small, kSmall, 7, 0);
  add<<<blocks(kCount), 256>>>(large, kCount, 1);
  add<<<blocks(kSmall), 256>>>(small, kSmall, 2);

  CUmemGenericAllocationHandle memory;
  CHECK_DRIVER(cuMemImportFromShareableHandle(&memory, reinterpret_cast<void*>(static_cast<uintptr_t>(descriptor)),
                                              CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR));
  close(descriptor);
  const CUdeviceptr mapped = map(memory, letter.granule);
  expect_values(reinterpret_cast<int*>(mapped), kSmall, 11, 0);
  add<<<blocks(kSmall), 256>>>(reinterpret_cast<int*>(mapped), kSmall, 4);
  unmap(mapped, letter.granule);
  CHECK_DRIVER(cuMemRelease(memory));
  CHECK(cudaDeviceSynchronize());
  CHECK(cudaIpcCloseMemHandle(large));
  CHECK(cudaEventDestroy(filled));
  tell(socket);
  hear(socket);  // `large` is freed
  EXPECT(cudaIpcOpenMemHandle(reinterpret_cast<void**>(&again), letter.large, cudaIpcMemLazyEnablePeerAccess) !=
         cudaSuccess);
  cudaGetLastError();
  CHECK(cudaIpcCloseMemHandle(small));
  tell(socket);
  return 0;
}

int main() {
  int pair[2];
  EXPECT(socketpair(AF_UNIX, SOCK_STREAM, 0, pair) == 0);
  const pid_t child = fork();  // before the first call of CUDA
  if (child == 0) {
    close(pair[0]);
    return taker(pair[1]);
  }
  close(pair[1]);
  const int result = giver(pair[0]);
  int status = -1;
  EXPECT(waitpid(child, &status, 0) == child);
  EXPECT(status == 0 && result == 0);
  return passed();
}
