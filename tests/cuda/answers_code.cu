// What the driver answers of modules, libraries and functions, and what it refuses.
// nvcc: -lcuda
// same: yes
#include <string>

#include "answers.h"
#include "answers_code.cuh"

using answers::context;
using answers::device;
using answers::done;
using answers::note;

static void function(const char* name, CUfunction of) {
  for (int i = 0; i < 18; ++i) {
    int value = -7;
    note("%s, attribute %d", name, i);
    // Registers, local memory, versions of binaries, and what the cache holds are the compiler's.
    const bool compilers = i == CU_FUNC_ATTRIBUTE_NUM_REGS || i == CU_FUNC_ATTRIBUTE_LOCAL_SIZE_BYTES ||
                           i == CU_FUNC_ATTRIBUTE_BINARY_VERSION;
    ASK(cuFuncGetAttribute(&value, static_cast<CUfunction_attribute>(i), of), compilers ? value >= 0 : value);
    for (int wanted : {-2, -1, 0, 1, 2, 7, 50, 100, 101, 1000, 200000, 300000}) {
      if (compilers) break;
      note("%s, attribute %d, %d", name, i, wanted);
      if (ASK(cuFuncSetAttribute(of, static_cast<CUfunction_attribute>(i), wanted))) continue;
      ASK(cuFuncGetAttribute(&value, static_cast<CUfunction_attribute>(i), of), value);
    }
  }
  for (int i = -1; i < 5; ++i) {
    note("%s, configuration %d", name, i);
    ASK(cuFuncSetCacheConfig(of, static_cast<CUfunc_cache>(i)));
    ASK(cuFuncSetSharedMemConfig(of, static_cast<CUsharedconfig>(i)));
  }
  for (size_t i = 0; i < 5; ++i) {
    size_t offset = 77, bytes = 77;
    note("%s, parameter %zu", name, i);
    ASK(cuFuncGetParamInfo(of, i, &offset, &bytes), offset, bytes);
    ASK(cuFuncGetParamInfo(of, i, &offset, nullptr), offset);
    ASK(cuFuncGetParamInfo(of, i, nullptr, &bytes));
  }
  note("%s", name);
  const char* called = "";
  CUmodule module = nullptr;
  CUfunctionLoadingState state{};
  ASK(cuFuncGetName(&called, of), strlen(called), called[0]);
  ASK(cuFuncGetName(nullptr, of));
  ASK(cuFuncGetModule(&module, of), module != nullptr);
  ASK(cuFuncLoad(of));
  ASK(cuFuncIsLoaded(&state, of), state);
  for (int threads : {0, 1, 32, 33, 64, 100, 128, 256, 1000, 1024, 1025, -1}) {
    for (size_t shared : {0, 1000, 40000, 100000, 300000}) {
      int blocks = -7;
      size_t room = 0;
      note("%s, %d threads, %zu bytes", name, threads, shared);
      ASK(cuOccupancyMaxActiveBlocksPerMultiprocessor(&blocks, of, threads, shared), blocks);
      ASK(cuOccupancyMaxActiveBlocksPerMultiprocessorWithFlags(&blocks, of, threads, shared, 1), blocks);
      if (shared <= 1000) ASK(cuOccupancyAvailableDynamicSMemPerBlock(&room, of, shared / 500, threads), room);
    }
  }
  for (int limit : {0, 1, 100, 128, 1024, 2000, -1}) {
    int grid = 0, block = 0;
    note("%s, block of at most %d", name, limit);
    ASK(cuOccupancyMaxPotentialBlockSize(&grid, &block, of, nullptr, 0, limit), block);
    ASK(cuOccupancyMaxPotentialBlockSizeWithFlags(&grid, &block, of, nullptr, 1000, limit, 1), block);
  }
  for (unsigned cluster : {0u, 1u, 2u, 8u, 9u, 16u}) {
    CUlaunchConfig config{};
    CUlaunchAttribute attribute{};
    config.gridDimX = 16, config.gridDimY = config.gridDimZ = 1;
    config.blockDimX = 64, config.blockDimY = config.blockDimZ = 1;
    attribute.id = CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION;
    attribute.value.clusterDim = {cluster, 1, 1};
    config.attrs = &attribute;
    config.numAttrs = 1;
    int size = -7, clusters = -7;
    note("%s, clusters of %u", name, cluster);
    ASK(cuOccupancyMaxPotentialClusterSize(&size, of, &config), size);
    ASK(cuOccupancyMaxActiveClusters(&clusters, of, &config), clusters > 0);
  }
  note("");
}

static void functions() {
  CUmodule module, newer;
  NEED(cuModuleLoadData(&module, kSm90));
  for (const char* name : {"nothing", "clustered", "dynamic"}) {
    CUfunction of;
    NEED(cuModuleGetFunction(&of, module, name));
    function(name, of);
  }
  ASK(cuModuleUnload(module));
  std::string ptx = kPtx;
  ptx.resize(ptx.find(".visible .entry clustered"));
  NEED(cuModuleLoadData(&newer, ptx.c_str()));
  for (const char* name : {"limited", "fixed", "shares"}) {
    CUfunction of;
    NEED(cuModuleGetFunction(&of, newer, name));
    function(name, of);
  }
  ASK(cuModuleUnload(newer));
  done("functions");
}

static void modules() {
  std::string ptx = kPtx;
  CUmodule module;
  note("a cluster without sm_90");
  ASK(cuModuleLoadData(&module, ptx.c_str()));
  ptx.resize(ptx.find(".visible .entry clustered"));
  note("");
  ASK(cuModuleLoadData(&module, ""));
  ASK(cuModuleLoadData(&module, "nonsense"));
  ASK(cuModuleLoadData(&module, ".version 99.9\n.target sm_75\n.address_size 64\n"));
  ASK(cuModuleLoadData(&module, ".version 8.0\n.target sm_999\n.address_size 64\n"));
  ASK(cuModuleLoadData(&module, ".version 8.0\n.target sm_75\n.address_size 64\n.visible .entry a() { bad; }\n"));
  ASK(cuModuleLoadData(
      &module,
      ".version 8.0\n.target sm_75\n.address_size 64\n.extern .func f();\n.visible .entry a() { call f; ret; }\n"));
  ASK(cuModuleLoadData(&module, nullptr));
  ASK(cuModuleLoadData(nullptr, ptx.c_str()));
  ASK(cuModuleLoad(&module, "/does/not/exist"));
  ASK(cuModuleLoad(&module, ""));
  ASK(cuModuleLoad(&module, nullptr));
  ASK(cuModuleUnload(nullptr));
  if (ASK(cuModuleLoadData(&module, ptx.c_str()))) return;
  CUfunction of = nullptr;
  for (const char* name : {"nothing", "words", "helper", "", "absent"}) {
    CUdeviceptr at = 0;
    size_t bytes = 0;
    CUtexref texture;
    CUsurfref surface;
    note("%s", name);
    ASK(cuModuleGetFunction(&of, module, name), of != nullptr);
    ASK(cuModuleGetGlobal(&at, &bytes, module, name), at != 0, bytes);
    ASK(cuModuleGetGlobal(nullptr, &bytes, module, name), bytes);
    ASK(cuModuleGetGlobal(&at, nullptr, module, name), at != 0);
    ASK(cuModuleGetTexRef(&texture, module, name));
    ASK(cuModuleGetSurfRef(&surface, module, name));
  }
  note("");
  CUdeviceptr at = 0;
  size_t bytes = 0;
  CUtexref texture;
  ASK(cuModuleGetGlobal(&at, &bytes, module, "constant_word"), at != 0, bytes);
  ASK(cuModuleGetTexRef(&texture, module, "picture"));
  ASK(cuModuleGetGlobal(nullptr, nullptr, module, "words"));
  ASK(cuModuleGetGlobal(&at, &bytes, module, nullptr));
  ASK(cuModuleGetFunction(&of, module, nullptr));
  ASK(cuModuleGetFunction(nullptr, module, "nothing"));
  unsigned count = 0;
  CUfunction all[8] = {};
  ASK(cuModuleGetFunctionCount(&count, module), count);
  ASK(cuModuleGetFunctionCount(nullptr, module));
  ASK(cuModuleEnumerateFunctions(all, 2, module), all[1] != nullptr, all[2] == nullptr);
  ASK(cuModuleEnumerateFunctions(all, 8, module), all[3] != nullptr);
  ASK(cuModuleEnumerateFunctions(nullptr, 2, module));
  ASK(cuModuleEnumerateFunctions(all, 0, module));
  CUmoduleLoadingMode mode{};
  ASK(cuModuleGetLoadingMode(&mode), mode);
  ASK(cuModuleUnload(module));

  char log[4000] = "", errors_log[4000] = "";
  for (int option = 0; option < 36; ++option) {
    for (long value : {0L, 1L, 4L, 8L, 32L, 90L, 1000L}) {
      if (option == CU_JIT_THREADS_PER_BLOCK && value == 0) continue;  // the driver divides by it
      if (option == CU_JIT_INFO_LOG_BUFFER || option == CU_JIT_ERROR_LOG_BUFFER) continue;
      if (option >= 12 && option <= 32 && option != CU_JIT_CACHE_MODE && option != CU_JIT_POSITION_INDEPENDENT_CODE)
        continue;
      CUjit_option options[] = {static_cast<CUjit_option>(option)};
      void* values[] = {reinterpret_cast<void*>(value)};
      note("option %d, %ld", option, value);
      if (!ASK(cuModuleLoadDataEx(&module, ptx.c_str(), 1, options, values))) NEED(cuModuleUnload(module));
    }
  }
  note("");
  CUjit_option options[] = {CU_JIT_INFO_LOG_BUFFER, CU_JIT_INFO_LOG_BUFFER_SIZE_BYTES, CU_JIT_ERROR_LOG_BUFFER,
                            CU_JIT_ERROR_LOG_BUFFER_SIZE_BYTES, CU_JIT_LOG_VERBOSE};
  void* values[] = {log, reinterpret_cast<void*>(4000), errors_log, reinterpret_cast<void*>(4000), nullptr};
  ASK(cuModuleLoadDataEx(&module, ".version 8.0\n.target sm_75\n.address_size 64\n.visible .entry a() { bad; }\n", 5,
                         options, values));
  note("the log of errors has text");
  ASK(0, *errors_log != 0, reinterpret_cast<long long>(values[3]) > 0);
  note("");
  ASK(cuModuleLoadDataEx(&module, ptx.c_str(), 1, nullptr, nullptr));
  ASK(cuModuleLoadFatBinary(&module, nullptr));
  done("modules");
}

static void libraries() {
  std::string ptx = kPtx;
  ptx.resize(ptx.find(".visible .entry clustered"));
  CUlibrary library;
  ASK(cuLibraryLoadData(&library, "nonsense", nullptr, nullptr, 0, nullptr, nullptr, 0));
  ASK(cuLibraryLoadData(&library, nullptr, nullptr, nullptr, 0, nullptr, nullptr, 0));
  ASK(cuLibraryLoadData(nullptr, ptx.c_str(), nullptr, nullptr, 0, nullptr, nullptr, 0));
  ASK(cuLibraryLoadFromFile(&library, "/does/not/exist", nullptr, nullptr, 0, nullptr, nullptr, 0));
  note("");
  if (ASK(cuLibraryLoadData(&library, ptx.c_str(), nullptr, nullptr, 0, nullptr, nullptr, 0))) return;
  unsigned count = 0;
  CUkernel kernels[8] = {};
  ASK(cuLibraryGetKernelCount(&count, library), count);
  ASK(cuLibraryGetKernelCount(nullptr, library));
  ASK(cuLibraryEnumerateKernels(kernels, 2, library), kernels[1] != nullptr, kernels[2] == nullptr);
  ASK(cuLibraryEnumerateKernels(kernels, 8, library));
  ASK(cuLibraryEnumerateKernels(nullptr, 8, library));
  CUmodule module = nullptr;
  ASK(cuLibraryGetModule(&module, library), module != nullptr);
  ASK(cuLibraryGetModule(nullptr, library));
  CUdeviceptr at = 0;
  size_t bytes = 0;
  for (const char* name : {"words", "constant_word", "absent", "nothing"}) {
    CUkernel kernel = nullptr;
    void* unified = nullptr;
    note("%s", name);
    ASK(cuLibraryGetKernel(&kernel, library, name), kernel != nullptr);
    ASK(cuLibraryGetGlobal(&at, &bytes, library, name), at != 0, bytes);
    ASK(cuLibraryGetGlobal(nullptr, nullptr, library, name));
    ASK(cuLibraryGetManaged(&at, &bytes, library, name), at != 0, bytes);
    ASK(cuLibraryGetUnifiedFunction(&unified, library, name), unified != nullptr);
  }
  note("");
  CUkernel kernel = nullptr;
  if (ASK(cuLibraryGetKernel(&kernel, library, "limited"))) return;
  CUlibrary of = nullptr;
  CUfunction as_function = nullptr;
  const char* called = "";
  ASK(cuKernelGetFunction(&as_function, kernel), as_function != nullptr);
  ASK(cuKernelGetLibrary(&of, kernel), of == library);
  ASK(cuKernelGetName(&called, kernel), strlen(called));
  for (size_t i = 0; i < 5; ++i) {
    size_t offset = 77, size = 77;
    note("parameter %zu", i);
    ASK(cuKernelGetParamInfo(kernel, i, &offset, &size), offset, size);
  }
  for (int i = 0; i < 18; ++i) {
    int value = -7;
    const bool compilers = i == CU_FUNC_ATTRIBUTE_NUM_REGS || i == CU_FUNC_ATTRIBUTE_LOCAL_SIZE_BYTES ||
                           i == CU_FUNC_ATTRIBUTE_BINARY_VERSION;
    note("attribute %d", i);
    ASK(cuKernelGetAttribute(&value, static_cast<CUfunction_attribute>(i), kernel, device), compilers ? 0 : value);
    for (int wanted : {-1, 0, 1, 1000, 300000}) {
      if (compilers) break;
      note("attribute %d, %d", i, wanted);
      if (!ASK(cuKernelSetAttribute(static_cast<CUfunction_attribute>(i), wanted, kernel, device))) {
        ASK(cuKernelGetAttribute(&value, static_cast<CUfunction_attribute>(i), kernel, device), value);
        ASK(cuFuncGetAttribute(&value, static_cast<CUfunction_attribute>(i), as_function), value);
      }
    }
  }
  note("");
  ASK(cuKernelSetCacheConfig(kernel, CU_FUNC_CACHE_PREFER_L1, device));
  ASK(cuKernelSetCacheConfig(kernel, static_cast<CUfunc_cache>(9), device));
  int value = 0;
  ASK(cuKernelGetAttribute(&value, CU_FUNC_ATTRIBUTE_NUM_REGS, kernel, 99));
  int blocks = 0;
  ASK(cuOccupancyMaxActiveBlocksPerMultiprocessor(&blocks, reinterpret_cast<CUfunction>(kernel), 128, 0), blocks);
  ASK(cuLibraryUnload(library));
  ASK(cuLibraryUnload(nullptr));
  done("libraries");
}

int main() {
  answers::begin();
  modules();
  libraries();
  functions();
  return answers::passed();
}
