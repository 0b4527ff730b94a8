// nvcc: -lcuda
// Copies from and to host addresses that the program has not mapped: the program gets an error, or the fault that it
// would get if it read there itself. A process beside it goes on.
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <functional>

#include "bad_input.cuh"

constexpr size_t kLarge = 4 << 20;

// In a process of its own: true if the copy was refused, or the process ended by the fault.
static bool refused(const std::function<CUresult(CUdeviceptr device, char* bad)>& copy, bool half_mapped) {
  std::fflush(stdout);
  const pid_t child = fork();
  if (child == 0) {
    CHECK(cudaFree(nullptr));
    CUdeviceptr device;
    CHECK_DRIVER(cuMemAlloc(&device, kLarge));
    auto* memory =
        static_cast<char*>(mmap(nullptr, 2 * kLarge, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0));
    char* const bad = half_mapped ? memory + kLarge - 4096 : memory + kLarge;
    munmap(memory + kLarge, kLarge);
    CUresult result = copy(device, bad);
    if (result == CUDA_SUCCESS) result = cuCtxSynchronize();
    EXPECT_CODE(CUDA_ERROR_INVALID_VALUE, result);
    real_work();
    _exit(0);
  }
  int status = -1;
  waitpid(child, &status, 0);
  const bool fault = WIFSIGNALED(status) && (WTERMSIG(status) == SIGSEGV || WTERMSIG(status) == SIGBUS);
  if (status != 0 && !fault) std::printf("status %#x\n", static_cast<unsigned>(status));
  return status == 0 || fault;
}

int main() {
  for (const bool half : {false, true}) {
    const size_t bytes = half ? kLarge : 8192;
    EXPECT(refused([=](CUdeviceptr to, char* bad) { return cuMemcpyHtoD(to, bad, bytes); }, half));
    EXPECT(refused([=](CUdeviceptr from, char* bad) { return cuMemcpyDtoH(bad, from, bytes); }, half));
    EXPECT(refused([=](CUdeviceptr to, char* bad) { return cuMemcpyHtoDAsync(to, bad, bytes, nullptr); }, half));
    EXPECT(refused([=](CUdeviceptr from, char* bad) { return cuMemcpyDtoHAsync(bad, from, bytes, nullptr); }, half));
    EXPECT(refused([=](CUdeviceptr, char* bad) { return cuMemHostRegister(bad, bytes, 0); }, half));
  }
  real_work();
  return passed();
}
