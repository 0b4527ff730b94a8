// A kernel that takes a while to compile, and that no cache has: its constants come from the argument. Arguments: a
// number, steps of the kernel, and perhaps how many kernels there are, one after the other, whose code is as long as
// that and whose result is not known when they are compiled.
//
// nvcc: -lcuda
#include <cuda.h>

#include <cstdio>
#include <cstdlib>
#include <string>

#define DRIVER(call)                                                  \
  do {                                                                \
    const CUresult outcome = (call);                                  \
    if (outcome != CUDA_SUCCESS) {                                    \
      std::printf("%s gives %d\n", #call, static_cast<int>(outcome)); \
      std::exit(1);                                                   \
    }                                                                 \
  } while (0)

static std::string kernel(unsigned seed, int steps, const char* first) {
  std::string text =
      ".version 8.0\n.target sm_80\n.address_size 64\n.visible .entry work(.param .u64 out) {\n"
      ".reg .u32 %r<3>;\n.reg .u64 %d<2>;\n.reg .pred %p<2>;\nmov.u32 %r1, " +
      std::string(first) + ";\n";
  for (int i = 0; i < steps; i++) {
    seed = seed * 1664525u + 1013904223u;
    const std::string number = std::to_string(seed | 1), label = "$L" + std::to_string(i);
    text += "mad.lo.u32 %r1, %r1, " + number + ", %r1;\nsetp.lt.u32 %p1, %r1, " + number + ";\n@%p1 bra " + label +
            ";\nxor.b32 %r1, %r1, " + number + ";\n" + label + ":\n";
  }
  return text + "ld.param.u64 %d1, [out];\nst.global.u32 [%d1], %r1;\nret;\n}\n";
}

static unsigned result_of(const std::string& ptx, CUdeviceptr out) {
  CUmodule module;
  CUfunction function;
  DRIVER(cuModuleLoadData(&module, ptx.c_str()));
  DRIVER(cuModuleGetFunction(&function, module, "work"));
  void* parameters[] = {&out};
  DRIVER(cuLaunchKernel(function, 1, 1, 1, 1, 1, 1, 0, nullptr, parameters, nullptr));
  DRIVER(cuCtxSynchronize());
  unsigned value = 0;
  DRIVER(cuMemcpyDtoH(&value, out, sizeof(value)));
  DRIVER(cuModuleUnload(module));
  return value;
}

int main(int count, char** arguments) {
  CUcontext context;
  CUdeviceptr out;
  DRIVER(cuInit(0));
  DRIVER(cuDevicePrimaryCtxRetain(&context, 0));
  DRIVER(cuCtxSetCurrent(context));
  DRIVER(cuMemAlloc(&out, 4));
  const unsigned seed = std::strtoul(arguments[1], nullptr, 10);
  const int steps = std::atoi(arguments[2]), kernels = count > 3 ? std::atoi(arguments[3]) : 1;
  const char* const first = count > 3 ? "%nctaid.x" : "1";
  for (int i = 0; i < kernels; i++) std::printf("%u\n", result_of(kernel(seed + i, steps, first), out));
  return 0;
}
