// Memory of every kind, for programs that print what the driver answers of it.
#pragma once

#include <cstring>
#include <vector>

#include "answers.h"

using answers::context;
using answers::device;
using answers::done;
using answers::note;

static CUstream stream;
static CUmemoryPool own_pool;

static const char* kPtx = ".version 8.0\n.target sm_75\n.address_size 64\n.visible .global .align 8 .u32 words[64];\n";

struct Kind {
  const char* name;
  CUdeviceptr at = 0;
  size_t bytes = 4096;
};
static std::vector<Kind> kinds;
static CUdeviceptr at_of(const char* name) {
  for (const Kind& kind : kinds)
    if (!strcmp(kind.name, name)) return kind.at;
  return 0;
}

static void make_kinds() {
  NEED(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
  CUmemPoolProps props{};
  props.allocType = CU_MEM_ALLOCATION_TYPE_PINNED;
  props.location = {CU_MEM_LOCATION_TYPE_DEVICE, 0};
  NEED(cuMemPoolCreate(&own_pool, &props));
  CUdeviceptr d = 0;
  size_t pitch = 0;
  NEED(cuMemAlloc(&d, 4096));
  kinds.push_back({"device", d});
  NEED(cuMemAllocPitch(&d, &pitch, 1000, 4, 4));
  kinds.push_back({"pitched", d});
  NEED(cuMemAllocAsync(&d, 4096, stream));
  kinds.push_back({"default pool", d});
  NEED(cuMemAllocFromPoolAsync(&d, 4096, own_pool, stream));
  kinds.push_back({"own pool", d});
  NEED(cuMemAllocManaged(&d, 4096, CU_MEM_ATTACH_GLOBAL));
  kinds.push_back({"managed", d});
  NEED(cuMemAllocManaged(&d, 4096, CU_MEM_ATTACH_HOST));
  kinds.push_back({"managed of the host", d});
  void* h = nullptr;
  NEED(cuMemAllocHost(&h, 4096));
  kinds.push_back({"host", (CUdeviceptr)h});
  NEED(cuMemHostAlloc(&h, 4096, CU_MEMHOSTALLOC_PORTABLE | CU_MEMHOSTALLOC_DEVICEMAP));
  kinds.push_back({"portable host", (CUdeviceptr)h});
  NEED(cuMemHostAlloc(&h, 4096, CU_MEMHOSTALLOC_WRITECOMBINED));
  kinds.push_back({"combined host", (CUdeviceptr)h});
  h = aligned_alloc(4096, 8192);
  NEED(cuMemHostRegister(h, 8192, CU_MEMHOSTREGISTER_DEVICEMAP));
  kinds.push_back({"registered", (CUdeviceptr)h, 8192});
  CUmodule module;
  size_t bytes = 0;
  NEED(cuModuleLoadData(&module, kPtx));
  NEED(cuModuleGetGlobal(&d, &bytes, module, "words"));
  kinds.push_back({"global", d, 256});
  CUmemAllocationProp prop{};
  prop.type = CU_MEM_ALLOCATION_TYPE_PINNED;
  prop.location = {CU_MEM_LOCATION_TYPE_DEVICE, 0};
  CUmemGenericAllocationHandle memory;
  NEED(cuMemCreate(&memory, 2 << 20, &prop, 0));
  NEED(cuMemAddressReserve(&d, 4 << 20, 0, 0, 0));
  NEED(cuMemMap(d, 2 << 20, 0, memory, 0));
  CUmemAccessDesc access{{CU_MEM_LOCATION_TYPE_DEVICE, 0}, CU_MEM_ACCESS_FLAGS_PROT_READWRITE};
  NEED(cuMemSetAccess(d, 2 << 20, &access, 1));
  kinds.push_back({"mapped", d, 2 << 20});
  kinds.push_back({"reserved", d + (2 << 20), 2 << 20});
  kinds.push_back({"plain", (CUdeviceptr)aligned_alloc(4096, 8192)});
  kinds.push_back({"null", 0});
  kinds.push_back({"wild", 0x123456789000});
  NEED(cuCtxSynchronize());
}
