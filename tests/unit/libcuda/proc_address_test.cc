// cuGetProcAddress and the tables behind it, before any device is there.
#include <cuda.h>
#include <gtest/gtest.h>

#include <cstring>

#include "guest-driver/libcuda/core/proc_table.h"

namespace bandsaw::libcuda {
namespace {

template <typename Function>
void* address(Function* function) {
  return reinterpret_cast<void*>(function);
}

struct Found {
  CUresult result = CUDA_SUCCESS;
  void* pointer = nullptr;
  CUdriverProcAddressQueryResult status{};
};

Found look_up(const char* name, int version, cuuint64_t flags = CU_GET_PROC_ADDRESS_DEFAULT) {
  Found found;
  found.result = cuGetProcAddress_v2(name, &found.pointer, version, flags, &found.status);
  return found;
}

TEST(ProcAddress, GivesTheNewestVersionThatTheCallerKnows) {
  EXPECT_EQ(look_up("cuCtxGetDevice", 2000).pointer, address(cuCtxGetDevice));
  EXPECT_EQ(look_up("cuCtxGetDevice", 12090).pointer, address(cuCtxGetDevice));
  EXPECT_EQ(look_up("cuCtxGetDevice", 13000).pointer, address(cuCtxGetDevice_v2));
  EXPECT_EQ(look_up("cuDeviceGetUuid", 9020).pointer, address(cuDeviceGetUuid));
  EXPECT_EQ(look_up("cuDeviceGetUuid", 13000).pointer, address(cuDeviceGetUuid_v2));
  EXPECT_EQ(look_up("cuCtxSynchronize", 13020).pointer, address(cuCtxSynchronize_v2));
  EXPECT_EQ(look_up("cuGetProcAddress", 11030).pointer, address(cuGetProcAddress));
  EXPECT_EQ(look_up("cuGetProcAddress", 12000).pointer, address(cuGetProcAddress_v2));
}

TEST(ProcAddress, SaysThatTheVersionIsTooOld) {
  const Found found = look_up("cuCtxGetDevice", 1000);
  EXPECT_EQ(found.result, CUDA_SUCCESS);
  EXPECT_EQ(found.pointer, nullptr);
  EXPECT_EQ(found.status, CU_GET_PROC_ADDRESS_VERSION_NOT_SUFFICIENT);
}

TEST(ProcAddress, DoesNotKnow) {
  for (const char* name : {"", "cuNoSuchFunction", "cuCtxGetDevice_v2", "cuMulticastCreate"}) {
    const Found found = look_up(name, 13000);
    EXPECT_EQ(found.result, CUDA_SUCCESS) << name;
    EXPECT_EQ(found.pointer, nullptr) << name;
    EXPECT_EQ(found.status, CU_GET_PROC_ADDRESS_SYMBOL_NOT_FOUND) << name;
  }
}

// As of CUDA 11, whose runtime knows no status.
TEST(ProcAddress, TheOldFormFails) {
  void* pointer = &pointer;
  EXPECT_EQ(cuGetProcAddress("cuNoSuchFunction", &pointer, 11040, 0), CUDA_ERROR_NOT_FOUND);
  EXPECT_EQ(pointer, &pointer);
  EXPECT_EQ(cuGetProcAddress("cuInit", &pointer, 11040, 0), CUDA_SUCCESS);
  EXPECT_EQ(pointer, address(cuInit));
}

TEST(ProcAddress, FindsGraphicsThoughTheyAreRefused) {
  const Found found = look_up("cuGraphicsGLRegisterBuffer", 13000);
  EXPECT_EQ(found.result, CUDA_SUCCESS);
  ASSERT_NE(found.pointer, nullptr);
  CUgraphicsResource resource = nullptr;
  EXPECT_EQ(reinterpret_cast<CUresult (*)(CUgraphicsResource*, unsigned, unsigned)>(found.pointer)(&resource, 1, 0),
            CUDA_ERROR_NOT_SUPPORTED);
}

TEST(ProcAddress, PerThreadFlagPicksTheVariantWhereThereIsOne) {
  const ProcEntry* variant = nullptr;
  const ProcEntry* plain = nullptr;
  for (size_t i = 0; i < kProcEntryCount; i++) {
    if (std::strcmp(kProcEntries[i].name, "cuMemcpyHtoD") == 0 && kProcEntries[i].per_thread)
      variant = &kProcEntries[i];
    if (std::strcmp(kProcEntries[i].name, "cuMemcpyHtoD") == 0 && !kProcEntries[i].per_thread) plain = &kProcEntries[i];
  }
  ASSERT_TRUE(variant && plain);
  CUdriverProcAddressQueryResult status{};
  if (variant->is_found) {
    EXPECT_EQ(find_proc("cuMemcpyHtoD", 13000, true, &status)->address, variant->address);
    EXPECT_EQ(find_proc("cuMemcpyHtoD", 13000, false, &status)->address, plain->address);
    // Before the variant came: the plain one.
    EXPECT_EQ(find_proc("cuMemcpyHtoD", 6050, true, &status)->address, plain->address);
  }
  EXPECT_EQ(look_up("cuInit", 13000, CU_GET_PROC_ADDRESS_PER_THREAD_DEFAULT_STREAM).pointer, address(cuInit));
}

TEST(ProcAddress, TableIsSorted) {
  for (size_t i = 1; i < kProcEntryCount; i++) {
    EXPECT_LE(std::strcmp(kProcEntries[i - 1].name, kProcEntries[i].name), 0) << kProcEntries[i].name;
  }
}

TEST(ProcAddress, RefusesBadArguments) {
  void* pointer = nullptr;
  EXPECT_EQ(cuGetProcAddress_v2(nullptr, &pointer, 13000, 0, nullptr), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(cuGetProcAddress_v2("cuInit", nullptr, 13000, 0, nullptr), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(cuGetProcAddress_v2("cuInit", &pointer, 13000, 4, nullptr), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(cuGetProcAddress_v2("cuInit", &pointer, 13000, 0, nullptr), CUDA_SUCCESS);
}

TEST(Uninitialised, EveryCallSaysSo) {
  int number = 0;
  CUcontext context = nullptr;
  size_t bytes = 0;
  EXPECT_EQ(cuDeviceGetCount(&number), CUDA_ERROR_NOT_INITIALIZED);
  EXPECT_EQ(cuDeviceGetAttribute(&number, CU_DEVICE_ATTRIBUTE_WARP_SIZE, 0), CUDA_ERROR_NOT_INITIALIZED);
  EXPECT_EQ(cuCtxGetCurrent(&context), CUDA_ERROR_NOT_INITIALIZED);
  EXPECT_EQ(cuDevicePrimaryCtxRetain(&context, 0), CUDA_ERROR_NOT_INITIALIZED);
  EXPECT_EQ(cuCtxCreate_v2(&context, 0, 0), CUDA_ERROR_NOT_INITIALIZED);
  EXPECT_EQ(cuCtxSynchronize(), CUDA_ERROR_NOT_INITIALIZED);
  EXPECT_EQ(cuCtxGetLimit(&bytes, CU_LIMIT_STACK_SIZE), CUDA_ERROR_NOT_INITIALIZED);
}

TEST(Missing, ReturnsNotSupported) { EXPECT_EQ(cuMulticastCreate(nullptr, nullptr), CUDA_ERROR_NOT_SUPPORTED); }

TEST(Errors, HaveNamesAndTexts) {
  const char* text = nullptr;
  EXPECT_EQ(cuGetErrorName(CUDA_ERROR_OUT_OF_MEMORY, &text), CUDA_SUCCESS);
  EXPECT_STREQ(text, "CUDA_ERROR_OUT_OF_MEMORY");
  EXPECT_EQ(cuGetErrorString(CUDA_ERROR_OUT_OF_MEMORY, &text), CUDA_SUCCESS);
  EXPECT_STREQ(text, "out of memory");
  EXPECT_EQ(cuGetErrorName(static_cast<CUresult>(12345), &text), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(text, nullptr);
}

TEST(Versions, AreThoseOfCuda13) {
  int version = 0;
  EXPECT_EQ(cuDriverGetVersion(&version), CUDA_SUCCESS);
  EXPECT_EQ(version, 13000);
}

}  // namespace
}  // namespace bandsaw::libcuda
