// What the driver answers of devices, contexts and errors, and what it refuses.
// nvcc: -lcuda
// same: yes
#include <string>

#include "answers.h"

using answers::context;
using answers::device;
using answers::done;
using answers::note;

static void devices() {
  for (int i = 1; i <= 160; ++i) {
    int value = -7;
    note("attribute %d", i);
    ASK(cuDeviceGetAttribute(&value, static_cast<CUdevice_attribute>(i), device), value);
  }
  note("");
  int value = 0;
  ASK(cuDeviceGetAttribute(&value, static_cast<CUdevice_attribute>(0), device));
  ASK(cuDeviceGetAttribute(nullptr, CU_DEVICE_ATTRIBUTE_WARP_SIZE, device));
  ASK(cuDeviceGetAttribute(&value, CU_DEVICE_ATTRIBUTE_WARP_SIZE, -1));
  ASK(cuDeviceGetAttribute(&value, CU_DEVICE_ATTRIBUTE_WARP_SIZE, 99));
  CUdevice other = 0;
  for (int i : {-1, 0, 99}) {
    note("%d", i);
    ASK(cuDeviceGet(&other, i), other);
    char name[8] = "";
    ASK(cuDeviceGetName(name, 4, i), name[3]);
    size_t bytes = 0;
    ASK(cuDeviceTotalMem(&bytes, i), bytes > 0);
    CUuuid id;
    ASK(cuDeviceGetUuid(&id, i));
    int major = 0, minor = 0;
    ASK(cuDeviceComputeCapability(&major, &minor, i), major, minor);
    CUdevprop properties{};
    ASK(cuDeviceGetProperties(&properties, i), properties.maxThreadsPerBlock, properties.maxThreadsDim[0],
        properties.maxThreadsDim[1], properties.maxThreadsDim[2], properties.maxGridSize[0], properties.maxGridSize[1],
        properties.maxGridSize[2], properties.sharedMemPerBlock, properties.totalConstantMemory, properties.SIMDWidth,
        properties.memPitch, properties.regsPerBlock, properties.textureAlign);
    char bus[20] = "";
    ASK(cuDeviceGetPCIBusId(bus, 20, i), strlen(bus));
    ASK(cuDeviceGetPCIBusId(bus, 5, i), strlen(bus));
    int can = -1;
    ASK(cuDeviceCanAccessPeer(&can, i, 0), can);
    for (int a = 0; a < 7; ++a) ASK(cuDeviceGetP2PAttribute(&can, static_cast<CUdevice_P2PAttribute>(a), i, 0));
    for (int type = -1; type < 3; ++type)
      ASK(cuDeviceGetExecAffinitySupport(&can, static_cast<CUexecAffinityType>(type), i), can);
    unsigned flags = 9;
    int active = 9;
    ASK(cuDevicePrimaryCtxGetState(i, &flags, &active), flags, active);
    char luid[8];
    unsigned mask;
    ASK(cuDeviceGetLuid(luid, &mask, i));
    CUmemoryPool pool;
    ASK(cuDeviceGetMemPool(&pool, i));
    ASK(cuDeviceGetDefaultMemPool(&pool, i));
  }
  note("");
  ASK(cuDeviceGetByPCIBusId(&other, "0000:ff:1f.7"));
  ASK(cuDeviceGetByPCIBusId(&other, ""));
  ASK(cuDeviceGetByPCIBusId(&other, nullptr));
  ASK(cuDeviceGet(nullptr, 0));
  int count = 0, version = 0;
  ASK(cuDeviceGetCount(&count), count > 0);
  ASK(cuDeviceGetCount(nullptr));
  ASK(cuDriverGetVersion(&version), version > 12000);
  ASK(cuDriverGetVersion(nullptr));
  for (unsigned flags : {0u, 1u, 2u, 4u, 8u, 16u, 24u, 32u, 64u, 128u, 256u, 3u, 0x100000u}) {
    note("primary context, flags %u", flags);
    ASK(cuDevicePrimaryCtxSetFlags(device, flags));
    unsigned now = 0;
    int active = 0;
    ASK(cuDevicePrimaryCtxGetState(device, &now, &active), now, active);
  }
  note("");
  ASK(cuDevicePrimaryCtxSetFlags(device, 0));
  ASK(cuInit(1));
  done("devices");
}

static void contexts() {
  for (int i = 0; i < 12; ++i) {
    size_t value = 0;
    note("limit %d", i);
    const int got = ASK(cuCtxGetLimit(&value, static_cast<CUlimit>(i)), i == 2 ? 0 : static_cast<long long>(value));
    if (got) continue;
    const size_t before = value;
    for (size_t wanted : {size_t{0}, size_t{1}, size_t{1000}, size_t{4096}, size_t{100000}, size_t{1} << 40}) {
      if (i == 2 && wanted > (1 << 20)) continue;  // a heap of that size
      if (i == 0 && wanted > (1 << 20)) continue;
      if (i == 1 && wanted > (1 << 20)) continue;
      note("limit %d, %zu", i, wanted);
      ASK(cuCtxSetLimit(static_cast<CUlimit>(i), wanted));
      ASK(cuCtxGetLimit(&value, static_cast<CUlimit>(i)), i == 2 ? 0 : static_cast<long long>(value));
    }
    note("limit %d, back", i);
    ASK(cuCtxSetLimit(static_cast<CUlimit>(i), before));
  }
  note("");
  ASK(cuCtxGetLimit(nullptr, CU_LIMIT_STACK_SIZE));
  for (int i = -1; i < 5; ++i) {
    CUfunc_cache cache{};
    CUsharedconfig shared{};
    note("configuration %d", i);
    ASK(cuCtxSetCacheConfig(static_cast<CUfunc_cache>(i)));
    ASK(cuCtxGetCacheConfig(&cache), cache);
    ASK(cuCtxSetSharedMemConfig(static_cast<CUsharedconfig>(i)));
    ASK(cuCtxGetSharedMemConfig(&shared), shared);
  }
  note("");
  ASK(cuCtxGetCacheConfig(nullptr));
  ASK(cuCtxGetSharedMemConfig(nullptr));
  ASK(cuCtxSetCacheConfig(CU_FUNC_CACHE_PREFER_NONE));
  ASK(cuCtxSetSharedMemConfig(CU_SHARED_MEM_CONFIG_DEFAULT_BANK_SIZE));
  unsigned version = 0, flags = 0;
  int least = 0, greatest = 0;
  CUdevice on = -1;
  unsigned long long id = 0;
  ASK(cuCtxGetApiVersion(context, &version), version);
  ASK(cuCtxGetApiVersion(nullptr, &version), version);
  ASK(cuCtxGetApiVersion(context, nullptr));
  ASK(cuCtxGetFlags(&flags), flags);
  ASK(cuCtxGetFlags(nullptr));
  for (unsigned wanted : {0u, 1u, 2u, 4u, 8u, 16u, 24u, 32u, 64u, 3u, 0x100000u}) {
    note("flags %u", wanted);
    ASK(cuCtxSetFlags(wanted));
    ASK(cuCtxGetFlags(&flags), flags);
  }
  note("");
  ASK(cuCtxGetStreamPriorityRange(&least, &greatest), least, greatest);
  ASK(cuCtxGetStreamPriorityRange(nullptr, nullptr));
  ASK(cuCtxGetDevice(&on), on);
  ASK(cuCtxGetDevice(nullptr));
  ASK(cuCtxGetId(context, &id), id > 0);
  ASK(cuCtxGetId(context, nullptr));
  CUcontext now = nullptr, popped = nullptr;
  ASK(cuCtxGetCurrent(&now), now == context);
  ASK(cuCtxGetCurrent(nullptr));
  ASK(cuCtxPushCurrent(nullptr));
  ASK(cuCtxPushCurrent(context));
  ASK(cuCtxPopCurrent(&popped), popped == context);
  ASK(cuCtxPopCurrent(&popped), popped == context);
  ASK(cuCtxPopCurrent(&popped));
  ASK(cuCtxGetCurrent(&now), now == nullptr);
  ASK(cuCtxGetDevice(&on));
  ASK(cuCtxSynchronize());
  CUdeviceptr memory = 0;
  CUmodule module;
  CUevent event;
  CUstream stream;
  ASK(cuMemAlloc(&memory, 16));
  ASK(cuModuleLoadData(&module, ".version 8.0\n.target sm_75\n.address_size 64\n"));
  ASK(cuEventCreate(&event, 0));
  ASK(cuStreamCreate(&stream, 0));
  ASK(cuStreamSynchronize(nullptr));
  ASK(cuCtxSetCurrent(context));
  ASK(cuCtxPopCurrent(nullptr));
  ASK(cuCtxSetCurrent(nullptr));
  ASK(cuCtxSetCurrent(context));
  ASK(cuCtxEnablePeerAccess(context, 0));
  ASK(cuCtxDisablePeerAccess(context));
  ASK(cuCtxEnablePeerAccess(nullptr, 0));
  ASK(cuCtxResetPersistingL2Cache());
  CUexecAffinityParam affinity{};
  for (int type = 0; type < 3; ++type) {
    note("affinity %d", type);
    ASK(cuCtxGetExecAffinity(&affinity, static_cast<CUexecAffinityType>(type)), affinity.type);
  }
  note("");
  CUcontext made = nullptr;
  for (unsigned wanted : {0u, 4u, 8u, 16u, 3u, 0x100000u}) {
    note("own context, flags %u", wanted);
    if (ASK(cuCtxCreate(&made, nullptr, wanted, device), made != context)) continue;
    ASK(cuCtxGetFlags(&flags), flags);
    ASK(cuCtxGetCurrent(&now), now == made);
    ASK(cuCtxGetApiVersion(made, &version), version);
    ASK(cuCtxDetach(made));
    ASK(cuCtxGetCurrent(&now), now == nullptr);
    ASK(cuCtxSetCurrent(context));
  }
  note("");
  ASK(cuCtxCreate(&made, nullptr, 0, 99));
  ASK(cuCtxCreate(nullptr, nullptr, 0, device));
  ASK(cuCtxDestroy(nullptr));
  ASK(cuCtxAttach(&now, 0), now == context);
  ASK(cuCtxAttach(&now, 1));
  done("contexts");
}

static void errors() {
  for (int i = -1; i <= 1001; ++i) {
    const char *name = nullptr, *text = nullptr;
    const int a = cuGetErrorName(static_cast<CUresult>(i), &name),
              b = cuGetErrorString(static_cast<CUresult>(i), &text);
    const std::string runtime_name = cudaGetErrorName(static_cast<cudaError_t>(i));
    if (a || b) continue;
    std::printf("error %d: %d %s %d %s %s\n", i, a, name, b, text, runtime_name.c_str());
  }
  const char* text = nullptr;
  ASK(cuGetErrorName(static_cast<CUresult>(12345), &text), text == nullptr);
  ASK(cuGetErrorString(static_cast<CUresult>(12345), &text), text == nullptr);
}

int main() {
  answers::begin();
  devices();
  contexts();
  errors();
  return answers::passed();
}
