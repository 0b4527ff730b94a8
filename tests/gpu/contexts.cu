// nvcc: -lcuda
// Contexts that come and go as it is told. Says "ready" with one context, then after each line that it reads: for
// "more" it makes a context and says how many it has, for "less" it destroys the newest. Ends with its input.
#include <cuda.h>

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <vector>

static void check(CUresult result, const char* what) {
  if (result == CUDA_SUCCESS) return;
  const char* name = "?";
  cuGetErrorName(result, &name);
  std::printf("%s: %s\n", what, name);
  std::exit(3);
}

static CUcontext make(CUdevice device) {
  CUcontext context;
  check(cuCtxCreate(&context, nullptr, 0, device), "cuCtxCreate");
  CUdeviceptr memory;
  check(cuMemAlloc(&memory, 1 << 20), "cuMemAlloc");
  check(cuMemsetD8(memory, 1, 1 << 20), "cuMemsetD8");
  check(cuCtxSynchronize(), "cuCtxSynchronize");
  return context;
}

int main() {
  check(cuInit(0), "cuInit");
  CUdevice device;
  check(cuDeviceGet(&device, 0), "cuDeviceGet");
  std::vector<CUcontext> contexts = {make(device)};
  std::printf("ready\n");
  std::fflush(stdout);
  char line[16];
  while (std::fgets(line, sizeof line, stdin)) {
    if (std::strncmp(line, "more", 4) == 0) {
      contexts.push_back(make(device));
    } else if (!contexts.empty()) {
      check(cuCtxDestroy(contexts.back()), "cuCtxDestroy");
      contexts.pop_back();
    }
    std::printf("contexts %zu\n", contexts.size());
    std::fflush(stdout);
  }
  return 0;
}
