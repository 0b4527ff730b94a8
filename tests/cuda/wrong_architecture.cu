// nvcc: -lcuda -gencode arch=compute_75,code=sm_75 -gencode arch=compute_100,code=sm_100 -Wno-deprecated-gpu-targets
// Code for other GPUs only, older and newer ones: refused with CUDA's code, in all forms in which code is loaded.
#include <elf.h>

#include <cstring>
#include <fstream>
#include <iterator>
#include <string>
#include <vector>

#include "check.h"

__global__ void for_others(int* out) { *out = 1; }

// The machine code for `sm` in this program's file.
static std::vector<char> find_cubin(const std::string& file, unsigned sm) {
  for (size_t at = 1; (at = file.find(ELFMAG, at)) != std::string::npos; ++at) {
    Elf64_Ehdr header;
    if (file.size() - at < sizeof(header)) break;
    std::memcpy(&header, &file[at], sizeof(header));
    if (header.e_machine != 190 || (header.e_flags >> 8 & 0xff) != sm) continue;
    const size_t bytes = header.e_phoff + size_t{header.e_phnum} * header.e_phentsize;
    return {file.begin() + static_cast<long>(at), file.begin() + static_cast<long>(at + bytes)};
  }
  return {};
}

static const char* kFuture = R"(
.version 8.7
.target sm_120
.address_size 64
.visible .entry nothing() { ret; }
)";
static const char* kGood = R"(
.version 8.0
.target sm_75
.address_size 64
.visible .entry write(.param .u64 out)
{
  .reg .b64 %d<2>;
  ld.param.u64 %d1, [out];
  st.global.u32 [%d1], 77;
  ret;
}
)";

int main() {
  int major = 0;
  CHECK(cudaDeviceGetAttribute(&major, cudaDevAttrComputeCapabilityMajor, 0));
  if (major != 8 && major != 9) return passed();  // the code is for this one
  int *out, got = 0;
  CHECK(cudaMalloc(&out, 4));
  for_others<<<1, 1>>>(out);
  EXPECT_CODE(cudaErrorNoKernelImageForDevice, cudaGetLastError());
  cudaFuncAttributes attributes;
  EXPECT_CODE(cudaErrorNoKernelImageForDevice, cudaFuncGetAttributes(&attributes, for_others));
  cudaGetLastError();

  std::ifstream self("/proc/self/exe", std::ios::binary);
  const std::string file((std::istreambuf_iterator<char>(self)), std::istreambuf_iterator<char>());
  CUmodule module;
  CUlibrary library;
  for (const unsigned sm : {75u, 100u}) {
    const std::vector<char> cubin = find_cubin(file, sm);
    EXPECT(!cubin.empty());
    EXPECT_CODE(CUDA_ERROR_NO_BINARY_FOR_GPU, cuModuleLoadData(&module, cubin.data()));
    const CUresult loaded = cuLibraryLoadData(&library, cubin.data(), nullptr, nullptr, 0, nullptr, nullptr, 0);
    CUkernel kernel;
    CUfunction function;
    CUresult used = loaded;  // a library may be looked at only when it is used
    if (used == CUDA_SUCCESS) used = cuLibraryGetKernel(&kernel, library, "_Z10for_othersPi");
    if (used == CUDA_SUCCESS) used = cuKernelGetFunction(&function, kernel);
    EXPECT_CODE(CUDA_ERROR_NO_BINARY_FOR_GPU, used);
    if (loaded == CUDA_SUCCESS) CHECK_DRIVER(cuLibraryUnload(library));
  }
  const CUresult future = cuModuleLoadData(&module, kFuture);
  std::printf("PTX for a newer GPU: code %d\n", future);
  char name[256];
  CHECK_DRIVER(cuDeviceGetName(name, sizeof(name), 0));
  const bool any_ptx = std::strstr(name, "software") != nullptr;  // it compiles PTX for any GPU
  EXPECT(future == CUDA_ERROR_NO_BINARY_FOR_GPU || future == CUDA_ERROR_INVALID_PTX ||
         (any_ptx && future == CUDA_SUCCESS));

  CHECK_DRIVER(cuModuleLoadData(&module, kGood));
  CUfunction write;
  CHECK_DRIVER(cuModuleGetFunction(&write, module, "write"));
  void* parameters[] = {&out};
  CHECK_DRIVER(cuLaunchKernel(write, 1, 1, 1, 1, 1, 1, 0, nullptr, parameters, nullptr));
  CHECK(cudaMemcpy(&got, out, 4, cudaMemcpyDeviceToHost));
  EXPECT_EQ(got, 77);
  return passed();
}
