// What the driver answers of pointers to memory of every kind.
// nvcc: -lcuda
// same: yes
#include "answers_kinds.cuh"

static void pointers() {
  for (const Kind& kind : kinds)
    for (size_t offset : {size_t{0}, size_t{100}}) {
      if (kind.at == 0 && offset) continue;
      const CUdeviceptr at = kind.at + offset;
      CUdeviceptr base = 0;
      size_t bytes = 0;
      note("%s + %zu", kind.name, offset);
      ASK(cuMemGetAddressRange(&base, &bytes, at), base - kind.at, bytes);
      ASK(cuMemGetAddressRange(&base, nullptr, at), base - kind.at);
      ASK(cuMemGetAddressRange(nullptr, &bytes, at), bytes);
      for (int i = 0; i <= 22; ++i) {
        unsigned long long value[4] = {};
        note("%s + %zu, attribute %d", kind.name, offset, i);
        const bool address = i == CU_POINTER_ATTRIBUTE_DEVICE_POINTER || i == CU_POINTER_ATTRIBUTE_HOST_POINTER ||
                             i == CU_POINTER_ATTRIBUTE_RANGE_START_ADDR;
        const bool handle = i == CU_POINTER_ATTRIBUTE_CONTEXT || i == CU_POINTER_ATTRIBUTE_P2P_TOKENS ||
                            i == CU_POINTER_ATTRIBUTE_BUFFER_ID || i == CU_POINTER_ATTRIBUTE_MEMPOOL_HANDLE ||
                            i == CU_POINTER_ATTRIBUTE_MAPPING_BASE_ADDR || i == CU_POINTER_ATTRIBUTE_MEMORY_BLOCK_ID;
        ASK(cuPointerGetAttribute(value, static_cast<CUpointer_attribute>(i), at), handle    ? value[0] != 0
                                                                                   : address ? value[0] - kind.at
                                                                                             : value[0] & 0xffffffff);
      }
      note("%s + %zu", kind.name, offset);
      int type = 0, is_managed = 0;
      CUpointer_attribute list[] = {CU_POINTER_ATTRIBUTE_MEMORY_TYPE, CU_POINTER_ATTRIBUTE_IS_MANAGED};
      void* outputs[] = {&type, &is_managed};
      ASK(cuPointerGetAttributes(2, list, outputs, at), type, is_managed);
      for (unsigned v : {0u, 1u, 2u}) {
        ASK(cuPointerSetAttribute(&v, CU_POINTER_ATTRIBUTE_SYNC_MEMOPS, at));
      }
      unsigned zero = 0;
      cuPointerSetAttribute(&zero, CU_POINTER_ATTRIBUTE_SYNC_MEMOPS, at);
      ASK(cuPointerSetAttribute(&zero, CU_POINTER_ATTRIBUTE_MEMORY_TYPE, at));
      unsigned flags = 0;
      CUdeviceptr seen = 0;
      ASK(cuMemHostGetFlags(&flags, (void*)at), flags);
      ASK(cuMemHostGetDevicePointer(&seen, (void*)at, 0), seen - at);
      ASK(cuMemHostGetDevicePointer(&seen, (void*)at, 1));
      CUmemGenericAllocationHandle memory = 0;
      if (!ASK(cuMemRetainAllocationHandle(&memory, (void*)at))) ASK(cuMemRelease(memory));
      unsigned long long granted = 0;
      CUmemLocation here{CU_MEM_LOCATION_TYPE_DEVICE, 0};
      ASK(cuMemGetAccess(&granted, &here, at), granted);
      cudaPointerAttributes attributes{};
      ASK(cudaPointerGetAttributes(&attributes, (void*)at), attributes.type, attributes.device,
          attributes.devicePointer ? (CUdeviceptr)attributes.devicePointer - at : -1,
          attributes.hostPointer ? (CUdeviceptr)attributes.hostPointer - at : -1);
      cudaGetLastError();
      if (offset || kind.at == 0) continue;
      for (int i = 0; i <= 12; ++i) {
        int value[4] = {-9, -9, -9, -9};
        note("%s, range attribute %d", kind.name, i);
        ASK(cuMemRangeGetAttribute(value, 4, static_cast<CUmem_range_attribute>(i), at, kind.bytes), value[0]);
        ASK(cuMemRangeGetAttribute(value, 3, static_cast<CUmem_range_attribute>(i), at, kind.bytes));
        ASK(cuMemRangeGetAttribute(value, 4, static_cast<CUmem_range_attribute>(i), at, 0));
      }
      for (int advice = 0; advice <= 7; ++advice)
        for (int where = 0; where < 6; ++where) {
          const CUmemLocation places[] = {{CU_MEM_LOCATION_TYPE_DEVICE, 0},     {CU_MEM_LOCATION_TYPE_DEVICE, 99},
                                          {CU_MEM_LOCATION_TYPE_HOST, 0},       {CU_MEM_LOCATION_TYPE_HOST_NUMA, 0},
                                          {CU_MEM_LOCATION_TYPE_HOST_NUMA, 77}, {CU_MEM_LOCATION_TYPE_INVALID, 0}};
          note("%s, advice %d, place %d", kind.name, advice, where);
          ASK(cuMemAdvise(at, kind.bytes, static_cast<CUmem_advise>(advice), places[where]));
          if (advice == 0) ASK(cuMemPrefetchAsync(at, kind.bytes, places[where], 0, stream));
          if (advice == 0) ASK(cuMemPrefetchAsync(at, 0, places[where], 0, stream));
          if (advice == 0) ASK(cuMemPrefetchAsync(at, kind.bytes, places[where], 1, stream));
        }
      note("%s", kind.name);
      for (unsigned f : {1u, 2u, 4u, 3u, 8u})
        for (size_t length : {size_t{0}, kind.bytes, size_t{16}}) {
          note("%s, attach %u, %zu", kind.name, f, length);
          ASK(cuStreamAttachMemAsync(stream, at, length, f));
        }
      note("%s", kind.name);
      ASK(cuStreamAttachMemAsync(stream, at, 0, CU_MEM_ATTACH_GLOBAL));
      CUipcMemHandle ipc;
      ASK(cuIpcGetMemHandle(&ipc, at));
      CUmemPoolPtrExportData data;
      ASK(cuMemPoolExportPointer(&data, at));
      int fd = -1;
      ASK(cuMemGetHandleForAddressRange(&fd, at, kind.bytes, CU_MEM_RANGE_HANDLE_TYPE_DMA_BUF_FD, 0));
    }
  done("pointers");
}

int main() {
  answers::begin();
  make_kinds();
  pointers();
  return answers::passed();
}
