// nvcc: -lcuda
// Physical host memory of cuMemCreate: the program and its devices use it at one address, each with the rights that it
// was given, and another process has it by its descriptor.
// vm: yes
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>
#include <csignal>
#include <cstring>

#include "check.h"

namespace {

size_t granule = 0;

__global__ void add(int* data, int count, int what) {
  const int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < count) data[i] += what;
}

CUmemAllocationProp prop_of(CUmemLocationType type) {
  CUmemAllocationProp prop{};
  prop.type = CU_MEM_ALLOCATION_TYPE_PINNED;
  prop.location = {type, 0};
  prop.requestedHandleTypes = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR;
  return prop;
}

CUmemAccessDesc access_of(CUmemLocationType type, CUmemAccess_flags flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE) {
  return {{type, 0}, flags};
}

void set_up() {
  CHECK(cudaSetDevice(0));
  CHECK(cudaFree(nullptr));
  int can = 0;
  CHECK_DRIVER(cuDeviceGetAttribute(&can, CU_DEVICE_ATTRIBUTE_HOST_NUMA_VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED, 0));
  EXPECT(can);
  const CUmemAllocationProp prop = prop_of(CU_MEM_LOCATION_TYPE_HOST_NUMA);
  CHECK_DRIVER(cuMemGetAllocationGranularity(&granule, &prop, CU_MEM_ALLOC_GRANULARITY_MINIMUM));
  EXPECT(granule >= 4096);
}

int* map_all(CUmemGenericAllocationHandle memory, size_t bytes, size_t alignment) {
  CUdeviceptr address = 0;
  CHECK_DRIVER(cuMemAddressReserve(&address, bytes, alignment, 0, 0));
  CHECK_DRIVER(cuMemMap(address, bytes, 0, memory, 0));
  CUmemAccessDesc access = access_of(CU_MEM_LOCATION_TYPE_DEVICE);
  CHECK_DRIVER(cuMemSetAccess(address, bytes, &access, 1));
  access = access_of(CU_MEM_LOCATION_TYPE_HOST_NUMA);
  CHECK_DRIVER(cuMemSetAccess(address, bytes, &access, 1));
  return reinterpret_cast<int*>(address);
}

void add_on_device(int* data, size_t bytes, int what) {
  const int count = static_cast<int>(bytes / sizeof(int));
  add<<<(count + 255) / 256, 256>>>(data, count, what);
  CHECK(cudaDeviceSynchronize());
}

void use(CUmemLocationType type, size_t alignment) {
  const size_t bytes = 3 * granule;
  const int count = static_cast<int>(bytes / sizeof(int));
  const CUmemAllocationProp prop = prop_of(type);
  CUmemGenericAllocationHandle memory, again;
  CHECK_DRIVER(cuMemCreate(&memory, bytes, &prop, 0));
  CUmemAllocationProp is{};
  CHECK_DRIVER(cuMemGetAllocationPropertiesFromHandle(&is, memory));
  EXPECT(is.location.type == type);
  int* const data = map_all(memory, bytes, alignment);
  CHECK_DRIVER(cuMemRelease(memory));  // the mapping holds it
  for (int i = 0; i < count; ++i) EXPECT_EQ(data[i], 0);
  for (int i = 0; i < count; ++i) data[i] = i;
  add_on_device(data, bytes, 5);
  for (int i = 0; i < count; ++i) EXPECT_EQ(data[i], i + 5);
  int* device;
  CHECK(cudaMalloc(&device, bytes));
  CHECK(cudaMemcpyAsync(device, data, bytes, cudaMemcpyDefault));
  CHECK(cudaMemsetAsync(data, 0, bytes));
  CHECK(cudaMemcpyAsync(data, device, bytes / 2, cudaMemcpyDefault));
  CHECK(cudaDeviceSynchronize());
  EXPECT_EQ(data[10], 15);
  EXPECT_EQ(data[count - 1], 0);
  CHECK(cudaFree(device));
  cudaPointerAttributes about{};
  CHECK(cudaPointerGetAttributes(&about, data));
  EXPECT(about.type == cudaMemoryTypeHost && about.devicePointer == data);
  const CUdeviceptr address = reinterpret_cast<CUdeviceptr>(data);
  unsigned long long flags = 0;
  const CUmemLocation here{CU_MEM_LOCATION_TYPE_DEVICE, 0};
  CHECK_DRIVER(cuMemGetAccess(&flags, &here, address + granule));
  EXPECT(flags == CU_MEM_ACCESS_FLAGS_PROT_READWRITE);
  CHECK_DRIVER(cuMemRetainAllocationHandle(&again, data + 17));
  CHECK_DRIVER(cuMemUnmap(address, bytes));
  EXPECT_CODE(CUDA_ERROR_INVALID_VALUE, cuMemUnmap(address, bytes));
  CHECK_DRIVER(cuMemAddressFree(address, bytes));
  // It has what it had.
  int* const elsewhere = map_all(again, bytes, 0);
  EXPECT_EQ(elsewhere[10], 15);
  CHECK_DRIVER(cuMemUnmap(reinterpret_cast<CUdeviceptr>(elsewhere), bytes));
  CHECK_DRIVER(cuMemAddressFree(reinterpret_cast<CUdeviceptr>(elsewhere), bytes));
  CHECK_DRIVER(cuMemRelease(again));
  EXPECT_CODE(CUDA_ERROR_INVALID_VALUE, cuMemRelease(again));
}

// Without rights the program faults.
void host_rights() {
  const CUmemAllocationProp prop = prop_of(CU_MEM_LOCATION_TYPE_HOST_NUMA);
  CUmemGenericAllocationHandle memory;
  CHECK_DRIVER(cuMemCreate(&memory, granule, &prop, 0));
  volatile int* const data = map_all(memory, granule, 0);
  const CUdeviceptr address = reinterpret_cast<CUdeviceptr>(data);
  CUmemAccessDesc access = access_of(CU_MEM_LOCATION_TYPE_HOST_NUMA, CU_MEM_ACCESS_FLAGS_PROT_NONE);
  CHECK_DRIVER(cuMemSetAccess(address, granule, &access, 1));
  const pid_t child = fork();
  if (child == 0) {
    signal(SIGSEGV, SIG_DFL);
    _exit(data[0]);
  }
  int status = 0;
  EXPECT_EQ(waitpid(child, &status, 0), child);
  EXPECT(WIFSIGNALED(status));
  CHECK_DRIVER(cuMemUnmap(address, granule));
  CHECK_DRIVER(cuMemAddressFree(address, granule));
  CHECK_DRIVER(cuMemRelease(memory));
}

void refusals() {
  CUmemGenericAllocationHandle memory;
  CUmemAllocationProp prop = prop_of(CU_MEM_LOCATION_TYPE_HOST_NUMA);
  EXPECT_CODE(CUDA_ERROR_INVALID_VALUE, cuMemCreate(&memory, granule + 4096, &prop, 0));
  prop.location.id = 12345;
  EXPECT_CODE(CUDA_ERROR_INVALID_VALUE, cuMemCreate(&memory, granule, &prop, 0));
  prop = prop_of(CU_MEM_LOCATION_TYPE_HOST_NUMA);
  prop.requestedHandleTypes = CU_MEM_HANDLE_TYPE_FABRIC;
  EXPECT(cuMemCreate(&memory, granule, &prop, 0) != CUDA_SUCCESS);
  prop = prop_of(CU_MEM_LOCATION_TYPE_HOST_NUMA);
  CHECK_DRIVER(cuMemCreate(&memory, granule, &prop, 0));
  CUdeviceptr address = 0;
  CHECK_DRIVER(cuMemAddressReserve(&address, granule, 0, 0, 0));
  EXPECT_CODE(CUDA_ERROR_INVALID_VALUE, cuMemMap(address, 2 * granule, 0, memory, 0));
  EXPECT_CODE(CUDA_ERROR_INVALID_VALUE, cuMemMap(address, granule, granule, memory, 0));
  const CUmemAccessDesc access = access_of(CU_MEM_LOCATION_TYPE_DEVICE);
  EXPECT_CODE(CUDA_ERROR_INVALID_VALUE, cuMemSetAccess(address, granule, &access, 1));
  CHECK_DRIVER(cuMemMap(address, granule, 0, memory, 0));
  EXPECT_CODE(CUDA_ERROR_INVALID_VALUE, cuMemMap(address, granule, 0, memory, 0));
  EXPECT_CODE(CUDA_ERROR_INVALID_VALUE, cuMemAddressFree(address, granule));
  EXPECT(cuMemFreeHost(reinterpret_cast<void*>(address)) != CUDA_SUCCESS);
  CHECK_DRIVER(cuMemUnmap(address, granule));
  CHECK_DRIVER(cuMemAddressFree(address, granule));
  CHECK_DRIVER(cuMemRelease(memory));
}

void send_file(int socket, int file) {
  char byte = 0;
  iovec part{&byte, 1};
  alignas(cmsghdr) char control[CMSG_SPACE(sizeof(int))] = {};
  msghdr message{};
  message.msg_iov = &part;
  message.msg_iovlen = 1;
  message.msg_control = control;
  message.msg_controllen = sizeof(control);
  cmsghdr* const c = CMSG_FIRSTHDR(&message);
  c->cmsg_level = SOL_SOCKET;
  c->cmsg_type = SCM_RIGHTS;
  c->cmsg_len = CMSG_LEN(sizeof(int));
  std::memcpy(CMSG_DATA(c), &file, sizeof(file));
  EXPECT_EQ(sendmsg(socket, &message, 0), 1);
}

int receive_file(int socket) {
  char byte = 0;
  iovec part{&byte, 1};
  alignas(cmsghdr) char control[CMSG_SPACE(sizeof(int))] = {};
  msghdr message{};
  message.msg_iov = &part;
  message.msg_iovlen = 1;
  message.msg_control = control;
  message.msg_controllen = sizeof(control);
  EXPECT_EQ(recvmsg(socket, &message, 0), 1);
  int file = -1;
  EXPECT(CMSG_FIRSTHDR(&message));
  std::memcpy(&file, CMSG_DATA(CMSG_FIRSTHDR(&message)), sizeof(file));
  return file;
}

// Its device doubles what the other process has.
int other_process(int socket) {
  set_up();
  const int file = receive_file(socket);
  CUmemGenericAllocationHandle memory;
  CHECK_DRIVER(cuMemImportFromShareableHandle(&memory, reinterpret_cast<void*>(static_cast<intptr_t>(file)),
                                              CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR));
  close(file);
  int* const data = map_all(memory, 2 * granule, granule);
  EXPECT_EQ(data[7], 49);
  add_on_device(data, 2 * granule, 1000);
  data[8] = 3;
  CHECK_DRIVER(cuMemUnmap(reinterpret_cast<CUdeviceptr>(data), 2 * granule));
  CHECK_DRIVER(cuMemRelease(memory));
  EXPECT_EQ(write(socket, "x", 1), 1);
  return 0;
}

void share(int socket) {
  const CUmemAllocationProp prop = prop_of(CU_MEM_LOCATION_TYPE_HOST_NUMA);
  CUmemGenericAllocationHandle memory;
  CHECK_DRIVER(cuMemCreate(&memory, 2 * granule, &prop, 0));
  int* const data = map_all(memory, 2 * granule, granule);
  add_on_device(data, 2 * granule, 49);
  int file = -1;
  CHECK_DRIVER(cuMemExportToShareableHandle(&file, memory, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0));
  char fabric[64];
  EXPECT(cuMemExportToShareableHandle(fabric, memory, CU_MEM_HANDLE_TYPE_FABRIC, 0) != CUDA_SUCCESS);
  send_file(socket, file);
  close(file);
  char byte = 0;
  EXPECT_EQ(read(socket, &byte, 1), 1);
  EXPECT_EQ(data[7], 1049);
  EXPECT_EQ(data[8], 3);
  add_on_device(data, 2 * granule, 1);
  EXPECT_EQ(data[8], 4);
}

}  // namespace

int main() {
  int sockets[2];
  EXPECT_EQ(socketpair(AF_UNIX, SOCK_STREAM, 0, sockets), 0);
  const pid_t child = fork();
  if (child == 0) return other_process(sockets[1]);
  set_up();
  use(CU_MEM_LOCATION_TYPE_HOST_NUMA, granule);
  use(CU_MEM_LOCATION_TYPE_HOST, 0);
  use(CU_MEM_LOCATION_TYPE_HOST_NUMA_CURRENT, 0);
  host_rights();
  refusals();
  share(sockets[0]);
  int status = -1;
  EXPECT_EQ(waitpid(child, &status, 0), child);
  EXPECT_EQ(status, 0);
  return passed();
}
