// nvcc: -lcuda
// cuLink*: several PTX inputs become one image; what is wrong with inputs stands in the log.
#include <cstring>
#include <string>

#include <unistd.h>

#include "check.h"

const char* const kMain = R"(
.version 7.0
.target sm_70
.address_size 64
.extern .func (.param .b32 result) twice(.param .b32 value);
.extern .global .align 4 .u32 offset;
.visible .entry compute(.param .u64 out, .param .u32 value)
{
  .reg .b32 %r<6>;
  .reg .b64 %rd<3>;
  ld.param.u64 %rd1, [out];
  cvta.to.global.u64 %rd2, %rd1;
  ld.param.u32 %r1, [value];
  {
    .param .b32 argument;
    .param .b32 answer;
    st.param.b32 [argument], %r1;
    call.uni (answer), twice, (argument);
    ld.param.b32 %r2, [answer];
  }
  ld.global.u32 %r3, [offset];
  add.u32 %r4, %r2, %r3;
  st.global.u32 [%rd2], %r4;
  ret;
}
)";

const char* const kLibrary = R"(
.version 7.0
.target sm_70
.address_size 64
.visible .global .align 4 .u32 offset = 1000;
.global .align 4 .u32 private_factor = 2;
.visible .func (.param .b32 result) twice(.param .b32 value)
{
  .reg .b32 %r<4>;
  ld.param.b32 %r1, [value];
  ld.global.u32 %r2, [private_factor];
  mul.lo.u32 %r3, %r1, %r2;
  st.param.b32 [result], %r3;
  ret;
}
)";

struct Link {
  char info[4096] = {}, error[4096] = {};
  CUlinkState state = nullptr;
  CUjit_option options[4] = {CU_JIT_INFO_LOG_BUFFER, CU_JIT_INFO_LOG_BUFFER_SIZE_BYTES, CU_JIT_ERROR_LOG_BUFFER,
                             CU_JIT_ERROR_LOG_BUFFER_SIZE_BYTES};
  void* values[4] = {info, reinterpret_cast<void*>(sizeof(info)), error, reinterpret_cast<void*>(sizeof(error))};

  Link() { CHECK_DRIVER(cuLinkCreate(4, options, values, &state)); }
  ~Link() { CHECK_DRIVER(cuLinkDestroy(state)); }
  CUresult add(const char* ptx, const char* name) {
    return cuLinkAddData(state, CU_JIT_INPUT_PTX, const_cast<char*>(ptx), std::strlen(ptx) + 1, name, 0, nullptr,
                         nullptr);
  }
};

void run(CUmodule module) {
  CUfunction function;
  CHECK_DRIVER(cuModuleGetFunction(&function, module, "compute"));
  CUdeviceptr out, offset;
  size_t bytes;
  CHECK_DRIVER(cuMemAlloc(&out, 4));
  CHECK_DRIVER(cuModuleGetGlobal(&offset, &bytes, module, "offset"));
  EXPECT_EQ(bytes, 4u);
  for (unsigned add : {1000u, 5u}) {
    CHECK_DRIVER(cuMemcpyHtoD(offset, &add, 4));
    unsigned value = 21, result = 0;
    void* parameters[] = {&out, &value};
    CHECK_DRIVER(cuLaunchKernel(function, 1, 1, 1, 1, 1, 1, 0, nullptr, parameters, nullptr));
    CHECK_DRIVER(cuMemcpyDtoH(&result, out, 4));
    EXPECT_EQ(result, 42 + add);
  }
  CHECK_DRIVER(cuMemFree(out));
}

void link_and_run(bool by_file) {
  Link link;
  void* image = nullptr;
  size_t bytes = 0;
  CHECK_DRIVER(link.add(kMain, "main.ptx"));
  if (by_file) {
    const std::string path = "/tmp/linking-" + std::to_string(getpid()) + ".ptx";
    FILE* file = std::fopen(path.c_str(), "w");
    EXPECT(file && std::fputs(kLibrary, file) >= 0 && std::fclose(file) == 0);
    CHECK_DRIVER(cuLinkAddFile(link.state, CU_JIT_INPUT_PTX, path.c_str(), 0, nullptr, nullptr));
    std::remove(path.c_str());
  } else {
    CHECK_DRIVER(link.add(kLibrary, "library.ptx"));
  }
  CHECK_DRIVER(cuLinkComplete(link.state, &image, &bytes));
  EXPECT(image && bytes > 0);
  CUmodule module;
  CHECK_DRIVER(cuModuleLoadData(&module, image));
  run(module);
  CHECK_DRIVER(cuModuleUnload(module));
}

void broken_inputs() {
  {
    Link link;
    EXPECT_CODE(CUDA_ERROR_INVALID_PTX, link.add(".version 7.0\n.target sm_70\n.address_size 64\n"
                                                 ".visible .entry k() { this is no PTX; }",
                                                 "broken.ptx"));
    EXPECT(std::strlen(link.error) > 0);
    std::printf("%s\n", link.error);
  }
  {
    Link link;
    void* image = nullptr;
    size_t bytes = 0;
    CUresult result = link.add(kMain, "main.ptx");
    if (result == CUDA_SUCCESS) result = cuLinkComplete(link.state, &image, &bytes);
    EXPECT(result != CUDA_SUCCESS);
    EXPECT(std::strstr(link.error, "twice") || std::strstr(link.error, "offset"));
  }
  {
    Link link;
    CHECK_DRIVER(link.add(kLibrary, "a.ptx"));
    void* image = nullptr;
    size_t bytes = 0;
    CUresult result = link.add(kLibrary, "b.ptx");
    if (result == CUDA_SUCCESS) result = cuLinkComplete(link.state, &image, &bytes);
    EXPECT(result != CUDA_SUCCESS && std::strlen(link.error) > 0);
  }
  {
    Link link;
    EXPECT_CODE(CUDA_ERROR_FILE_NOT_FOUND,
                cuLinkAddFile(link.state, CU_JIT_INPUT_PTX, "/nonexistent.ptx", 0, nullptr, nullptr));
  }
}

int main() {
  CHECK(cudaFree(nullptr));
  link_and_run(false);
  link_and_run(true);
  broken_inputs();
  return passed();
}
