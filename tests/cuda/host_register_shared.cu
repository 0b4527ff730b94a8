// Registering memory that is shared with other processes: a named file of /dev/shm, a memfd, and what cannot be.
// vm: yes
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>

#include "check.h"

namespace {

constexpr int kCount = 300000;  // not whole pages
constexpr size_t kBytes = kCount * sizeof(int);

__global__ void twice(int* data, int n) {
  const int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) data[i] *= 2;
}

int* map_shared(int file, int flags = MAP_SHARED, int rights = PROT_READ | PROT_WRITE) {
  void* const memory = mmap(nullptr, kBytes, rights, flags, file, 0);
  EXPECT(memory != MAP_FAILED);
  return static_cast<int*>(memory);
}

int make_file(bool named) {
  char path[] = "/dev/shm/bandsaw-test-XXXXXX";
  const int file = named ? mkstemp(path) : memfd_create("bandsaw-test", MFD_CLOEXEC);
  EXPECT(file >= 0);
  if (named) unlink(path);
  EXPECT_EQ(ftruncate(file, kBytes), 0);
  return file;
}

void double_on_device(int* memory) {
  int* view;
  CHECK(cudaHostGetDevicePointer(&view, memory, 0));
  twice<<<(kCount + 255) / 256, 256>>>(view, kCount);
  CHECK(cudaDeviceSynchronize());
}

// What the device writes, a process sees that has the same file.
void check_shared(bool named) {
  const int file = make_file(named);
  int* const memory = map_shared(file);
  int* const again = map_shared(file);
  for (int i = 0; i < kCount; ++i) memory[i] = i;
  CHECK(cudaHostRegister(memory, kBytes, cudaHostRegisterPortable | cudaHostRegisterMapped));
  EXPECT_CODE(cudaErrorHostMemoryAlreadyRegistered, cudaHostRegister(memory, kBytes, cudaHostRegisterMapped));
  double_on_device(memory);
  for (int i = 0; i < kCount; ++i) EXPECT_EQ(again[i], 2 * i);
  const pid_t child = fork();
  if (child == 0) {
    for (int i = 0; i < kCount; ++i) again[i] += 1;
    _exit(0);
  }
  EXPECT_EQ(waitpid(child, nullptr, 0), child);
  double_on_device(memory);
  for (int i = 0; i < kCount; ++i) EXPECT_EQ(memory[i], 4 * i + 2);
  int* device;
  CHECK(cudaMalloc(&device, kBytes));
  CHECK(cudaMemcpy(device, memory, kBytes, cudaMemcpyHostToDevice));
  CHECK(cudaMemset(memory, 0, kBytes));
  CHECK(cudaMemcpy(memory, device, kBytes, cudaMemcpyDeviceToHost));
  EXPECT_EQ(again[kCount - 1], 4 * (kCount - 1) + 2);
  CHECK(cudaHostUnregister(memory));
  again[1] = 77;
  EXPECT_EQ(memory[1], 77);  // shared still
  CHECK(cudaHostRegister(memory + 5000, 4096, cudaHostRegisterMapped));
  CHECK(cudaHostUnregister(memory + 5000));
  CHECK(cudaFree(device));
  munmap(memory, kBytes);
  munmap(again, kBytes);
  close(file);
}

}  // namespace

int main() {
  CHECK(cudaSetDevice(0));
  check_shared(true);
  check_shared(false);
  int* const gone = map_shared(make_file(false));
  munmap(reinterpret_cast<char*>(gone) + 8192, 4096);
  EXPECT(cudaHostRegister(gone, kBytes, cudaHostRegisterMapped) != cudaSuccess);  // a hole
  EXPECT_CODE(cudaErrorInvalidValue, cudaGetLastError());
  return passed();
}
