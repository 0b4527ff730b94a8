#include "registered.h"

#include <cstring>
#include <numeric>
#include <vector>

asm(".section .nv_fatbin, \"a\"\n"
    ".balign 8\n"
    "device_code:\n"
    ".incbin \"" DEVICE_CODE
    "\"\n"
    ".balign 8\n"
    "texture_code:\n"
    ".incbin \"" TEXTURE_CODE
    "\"\n"
    ".text\n");
extern "C" const char device_code[], texture_code[];

namespace {

struct Wrapper {
  int magic, version;
  const void* data;
  void* prelinked;
} wrappers[] __attribute__((section(".nvFatBinSegment"))) = {{0x466243b1, 1, device_code, nullptr},
                                                             {0x466243b1, 1, texture_code, nullptr}};

void register_kernel(void** handle, void (*host)(), const char* name) {
  __cudaRegisterFunction(handle, reinterpret_cast<const char*>(host), const_cast<char*>(name), name, -1, nullptr,
                         nullptr, nullptr, nullptr, nullptr);
}

}  // namespace

// Never called; distinct, so that they have distinct addresses.
void scale() { asm volatile("# scale"); }
void add_one() { asm volatile("# add_one"); }
void count() { asm volatile("# count"); }
void sum_shared() { asm volatile("# sum_shared"); }
void fetch() { asm volatile("# fetch"); }
int factor, offsets[16], *counted;

void register_device_code() {
  void** const handle = __cudaRegisterFatBinary(&wrappers[0]);
  register_kernel(handle, scale, "scale");
  register_kernel(handle, add_one, "add_one");
  register_kernel(handle, count, "count");
  register_kernel(handle, sum_shared, "sum_shared");
  char name[3][8] = {"factor", "offsets", "counted"};
  __cudaRegisterVar(handle, reinterpret_cast<char*>(&factor), name[0], "factor", 0, sizeof(factor), 1, 0);
  __cudaRegisterVar(handle, reinterpret_cast<char*>(offsets), name[1], "offsets", 0, sizeof(offsets), 0, 0);
  __cudaRegisterManagedVar(handle, reinterpret_cast<void**>(&counted), name[2], "counted", 0, sizeof(int), 0, 0);
  __cudaRegisterFatBinaryEnd(handle);
  void** const textures = __cudaRegisterFatBinary(&wrappers[1]);
  register_kernel(textures, fetch, "fetch");
  __cudaRegisterFatBinaryEnd(textures);
  __cudaInitModule(handle);  // nvcc has it done at the first use of a managed variable, when all images are there
}

void check(cudaError_t error, const char* call) {
  if (error == cudaSuccess) return;
  cudaGetLastError();
  throw Failure{std::string(call, std::strcspn(call, "(")) + " gives " + cudaGetErrorName(error),
                error == cudaErrorNotSupported};
}

void expect(bool right, const char* what) {
  if (!right) throw Failure{std::string("not so: ") + what};
}

int* numbers(int n) {
  std::vector<int> host(n);
  std::iota(host.begin(), host.end(), 0);
  int* device = nullptr;
  CHECK(cudaMalloc(reinterpret_cast<void**>(&device), n * sizeof(int)));
  CHECK(cudaMemcpy(device, host.data(), n * sizeof(int), cudaMemcpyHostToDevice));
  return device;
}

bool are_numbers(const int* device, int n, int first) {
  std::vector<int> host(n, -1);
  CHECK(cudaMemcpy(host.data(), device, n * sizeof(int), cudaMemcpyDeviceToHost));
  for (int i = 0; i < n; i++) {
    if (host[i] != first + i) return false;
  }
  return true;
}
