// nvcc: -lcuda
// Two processes and one memory: handles of memory and events, descriptors of physical memory, and what is refused.
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstring>
#include <thread>
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

// Of an event that is for one process only there is no handle: what stood there is gone.
static void give_no_handle() {
  cudaEvent_t own;
  CHECK(cudaEventCreateWithFlags(&own, cudaEventDisableTiming));
  CUipcEventHandle handle;
  const CUipcEventHandle none{};
  std::memset(&handle, 1, sizeof(handle));
  EXPECT(cuIpcGetEventHandle(&handle, own) == CUDA_ERROR_INVALID_HANDLE);
  EXPECT(std::memcmp(&handle, &none, sizeof(none)) == 0);
  CHECK(cudaEventDestroy(own));
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
  give_no_handle();
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

// A host's memory is its own at first.
static void let_device(CUmemoryPool pool, CUmemLocationType where) {
  CUmemAccessDesc access{};
  access.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
  access.flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE;
  if (where != CU_MEM_LOCATION_TYPE_DEVICE) CHECK_DRIVER(cuMemPoolSetAccess(pool, &access, 1));
}

static CUmemoryPool make_pool(CUmemLocationType where) {
  CUmemPoolProps props{};
  props.allocType = CU_MEM_ALLOCATION_TYPE_PINNED;
  props.location.type = where;
  props.handleTypes = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR;
  CUmemoryPool pool = nullptr;
  CHECK_DRIVER(cuMemPoolCreate(&pool, &props));
  let_device(pool, where);
  return pool;
}

static unsigned long long used(CUmemoryPool pool) {
  cuuint64_t bytes = 0;
  CHECK_DRIVER(cuMemPoolGetAttribute(pool, CU_MEMPOOL_ATTR_USED_MEM_CURRENT, &bytes));
  return bytes;
}

template <CUmemLocationType where>
static void give_pool(int socket) {
  CHECK(cudaFree(nullptr));
  const CUmemoryPool pool = make_pool(where), other = make_pool(where);
  int descriptor = -1;
  CHECK_DRIVER(cuMemPoolExportToShareableHandle(&descriptor, pool, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0));
  CUdeviceptr large = 0, small = 0, foreign = 0, plain = 0;
  cudaStream_t stream;
  CHECK(cudaStreamCreate(&stream));
  CHECK_DRIVER(cuMemAllocFromPoolAsync(&large, kCount * sizeof(int), pool, stream));
  CHECK_DRIVER(cuMemAllocFromPoolAsync(&small, kSmall * sizeof(int), pool, stream));
  CHECK_DRIVER(cuMemAllocFromPoolAsync(&foreign, kSmall * sizeof(int), other, stream));
  CHECK_DRIVER(cuMemAllocAsync(&plain, kSmall * sizeof(int), stream));
  EXPECT(used(pool) >= (kCount + kSmall) * sizeof(int));
  fill<<<blocks(kCount), 256, 0, stream>>>(reinterpret_cast<int*>(large), kCount, 3);
  fill<<<blocks(kSmall), 256, 0, stream>>>(reinterpret_cast<int*>(small), kSmall, 7);
  CHECK(cudaStreamSynchronize(stream));
  CUmemPoolPtrExportData letters[3];
  std::thread([&] { CHECK_DRIVER(cuMemPoolExportPointer(&letters[0], large)); }).join();  // it has no context
  CHECK_DRIVER(cuMemPoolExportPointer(&letters[1], small));
  CHECK_DRIVER(cuMemPoolExportPointer(&letters[2], foreign));
  EXPECT_CODE(CUDA_ERROR_INVALID_VALUE, cuMemPoolExportPointer(&letters[2], plain));
  send_descriptor(socket, descriptor);
  close(descriptor);
  EXPECT(write(socket, letters, sizeof(letters)) == sizeof(letters));
  receive(socket);  // the other has added, and freed what it had
  expect_values(reinterpret_cast<int*>(large), kCount, 3, 1);
  expect_values(reinterpret_cast<int*>(small), kSmall, 7, 2);
  // Freed in stream order: what is before it still has the memory.
  fill<<<blocks(kCount), 256, 0, stream>>>(reinterpret_cast<int*>(large), kCount, 1);
  CHECK_DRIVER(cuMemFreeAsync(large, stream));
  EXPECT_CODE(CUDA_ERROR_INVALID_VALUE, cuMemFreeAsync(large, stream));
  CHECK(cudaStreamSynchronize(stream));
  CHECK_DRIVER(cuMemPoolTrimTo(pool, 0));
  CHECK_DRIVER(cuMemFree(small));
  EXPECT(used(pool) == 0);
  CHECK_DRIVER(cuMemFreeAsync(foreign, stream));
  CHECK_DRIVER(cuMemFreeAsync(plain, stream));
  CHECK(cudaDeviceSynchronize());
  CHECK_DRIVER(cuMemPoolDestroy(pool));
  CHECK_DRIVER(cuMemPoolDestroy(other));
}

template <CUmemLocationType where>
static void take_pool(int socket) {
  const int descriptor = receive_descriptor(socket);
  CUmemPoolPtrExportData letters[3];
  EXPECT(read(socket, letters, sizeof(letters)) == sizeof(letters));
  CHECK(cudaFree(nullptr));
  CUmemoryPool pool = nullptr;
  void* const shareable = reinterpret_cast<void*>(static_cast<uintptr_t>(descriptor));
  CHECK_DRIVER(cuMemPoolImportFromShareableHandle(&pool, shareable, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0));
  close(descriptor);
  let_device(pool, where);
  CUdeviceptr large = 0, small = 0, none = 0;
  CHECK_DRIVER(cuMemPoolImportPointer(&large, pool, &letters[0]));
  CHECK_DRIVER(cuMemPoolImportPointer(&small, pool, &letters[1]));
  EXPECT(cuMemPoolImportPointer(&none, pool, &letters[2]) != CUDA_SUCCESS);  // of another pool
  EXPECT(cuMemAllocFromPoolAsync(&none, 64, pool, nullptr) != CUDA_SUCCESS);
  EXPECT(cuDeviceSetMemPool(0, pool) != CUDA_SUCCESS);
  CUmemLocation location{};
  location.type = where;
  EXPECT(cuMemSetMemPool(&location, CU_MEM_ALLOCATION_TYPE_PINNED, pool) != CUDA_SUCCESS);
  expect_values(reinterpret_cast<int*>(large), kCount, 3, 0);
  expect_values(reinterpret_cast<int*>(small), kSmall, 7, 0);
  add<<<blocks(kCount), 256>>>(reinterpret_cast<int*>(large), kCount, 1);
  add<<<blocks(kSmall), 256>>>(reinterpret_cast<int*>(small), kSmall, 2);
  CHECK_DRIVER(cuMemFreeAsync(large, nullptr));
  CHECK(cudaDeviceSynchronize());
  CHECK_DRIVER(cuMemFree(small));
  CHECK_DRIVER(cuMemPoolDestroy(pool));
  tell(socket);
}

static void take_external(int socket) {
  const int descriptor = receive_descriptor(socket);
  size_t granule = 0;
  exportable(&granule);
  CUDA_EXTERNAL_MEMORY_HANDLE_DESC about{};
  about.type = CU_EXTERNAL_MEMORY_HANDLE_TYPE_OPAQUE_FD;
  about.handle.fd = descriptor;
  about.size = 1000 * granule;
  CUexternalMemory memory = nullptr;
  EXPECT(cuImportExternalMemory(&memory, &about) != CUDA_SUCCESS);  // more than there is
  about.size = granule;
  CHECK_DRIVER(cuImportExternalMemory(&memory, &about));
  CUDA_EXTERNAL_MEMORY_BUFFER_DESC buffer{};
  buffer.offset = 4 * sizeof(int);
  buffer.size = granule;
  CUdeviceptr inside = 0, whole = 0;
  EXPECT(cuExternalMemoryGetMappedBuffer(&inside, memory, &buffer) != CUDA_SUCCESS);  // past its end
  buffer.size = (kSmall - 4) * sizeof(int);
  CHECK_DRIVER(cuExternalMemoryGetMappedBuffer(&inside, memory, &buffer));
  buffer = {};
  buffer.size = granule;
  CHECK_DRIVER(cuExternalMemoryGetMappedBuffer(&whole, memory, &buffer));
  expect_values(reinterpret_cast<int*>(inside), kSmall - 4, 11, 44);
  CHECK_DRIVER(cuMemFree(inside));
  EXPECT(cuMemFree(inside) != CUDA_SUCCESS);
  CHECK_DRIVER(cuDestroyExternalMemory(memory));
  EXPECT(cuDestroyExternalMemory(memory) != CUDA_SUCCESS);
  add<<<blocks(kSmall), 256>>>(reinterpret_cast<int*>(whole), kSmall, 4);  // mapped, so still there
  CHECK_DRIVER(cuMemFree(whole));
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
      {"pools", both<give_pool<CU_MEM_LOCATION_TYPE_DEVICE>, take_pool<CU_MEM_LOCATION_TYPE_DEVICE>>},
      {"pools of the host", both<give_pool<CU_MEM_LOCATION_TYPE_HOST_NUMA>, take_pool<CU_MEM_LOCATION_TYPE_HOST_NUMA>>},
      {"external memory", both<give_descriptor, take_external>},
  });
}
