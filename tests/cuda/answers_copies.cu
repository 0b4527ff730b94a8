// What the driver answers of allocations and copies, and what it refuses.
// nvcc: -lcuda
// same: yes
#include "answers_kinds.cuh"

static void allocation() {
  for (size_t bytes : {size_t{0}, size_t{1}, size_t{513}, size_t{1} << 60, ~size_t{0}}) {
    CUdeviceptr at = 0, base = 0;
    size_t got = 0;
    void* host = nullptr;
    note("%zu bytes", bytes);
    if (!ASK(cuMemAlloc(&at, bytes), at % 512)) {
      ASK(cuMemGetAddressRange(&base, &got, at), got);
      ASK(cuMemFree(at));
    }
    if (!ASK(cuMemAllocAsync(&at, bytes, stream))) {
      ASK(cuMemGetAddressRange(&base, &got, at), got);
      ASK(cuMemFreeAsync(at, stream));
    }
    if (!ASK(cuMemAllocFromPoolAsync(&at, bytes, own_pool, stream))) ASK(cuMemFreeAsync(at, stream));
    if (bytes < (size_t{1} << 50)) {
      if (!ASK(cuMemAllocManaged(&at, bytes, CU_MEM_ATTACH_GLOBAL))) ASK(cuMemFree(at));
      if (!ASK(cuMemAllocHost(&host, bytes))) ASK(cuMemFreeHost(host));
    }
    for (unsigned element : {1u, 3u, 4u, 8u, 16u, 32u}) {
      size_t pitch = 0;
      note("%zu bytes, element %u", bytes, element);
      if (bytes < 1000 && !ASK(cuMemAllocPitch(&at, &pitch, bytes, 3, element), pitch)) ASK(cuMemFree(at));
    }
  }
  CUdeviceptr at = 0;
  size_t pitch = 0;
  void* host = nullptr;
  note("");
  ASK(cuMemAllocPitch(&at, &pitch, 16, 0, 4));
  ASK(cuMemAllocPitch(&at, nullptr, 16, 2, 4));
  ASK(cuMemAlloc(nullptr, 16));
  ASK(cuMemAllocHost(nullptr, 16));
  ASK(cuMemAllocManaged(nullptr, 16, CU_MEM_ATTACH_GLOBAL));
  ASK(cuMemAllocAsync(nullptr, 16, stream));
  for (unsigned flags : {0u, 1u, 2u, 3u, 4u, 5u, 8u}) {
    note("managed, flags %u", flags);
    if (!ASK(cuMemAllocManaged(&at, 16, flags))) ASK(cuMemFree(at));
  }
  for (unsigned flags : {0u, 1u, 2u, 3u, 4u, 7u, 8u, 16u, 0x100u}) {
    unsigned back = 0;
    note("host, flags %u", flags);
    if (!ASK(cuMemHostAlloc(&host, 16, flags))) {
      ASK(cuMemHostGetFlags(&back, host), back);
      ASK(cuMemFreeHost(host));
    }
  }
  note("");
  char* const pages = (char*)aligned_alloc(4096, 16 * 4096);
  for (unsigned flags : {0u, 1u, 2u, 3u, 4u, 8u, 16u, 32u}) {
    if (flags == 4) continue;
    unsigned back = 0;
    note("registered, flags %u", flags);
    if (!ASK(cuMemHostRegister(pages, 8192, flags))) {
      ASK(cuMemHostGetFlags(&back, pages), back);
      ASK(cuMemHostRegister(pages, 8192, flags));
      ASK(cuMemHostRegister(pages + 4096, 8192, flags));
      ASK(cuMemHostUnregister(pages + 4096));
      ASK(cuMemHostUnregister(pages + 100));
      ASK(cuMemHostUnregister(pages));
      ASK(cuMemHostUnregister(pages));
    }
  }
  note("");
  ASK(cuMemHostRegister(nullptr, 4096, 0));
  ASK(cuMemHostRegister(pages, 0, 0));
  ASK(cuMemHostUnregister(nullptr));
  if (!ASK(cuMemHostRegister(pages + 10, 100, 0))) ASK(cuMemHostUnregister(pages + 10));
  ASK(cuMemHostRegister((void*)at_of("host"), 4096, 0));
  ASK(cuMemHostRegister((void*)at_of("device"), 4096, 0));
  ASK(cuMemHostRegister((void*)at_of("managed"), 4096, 0));
  for (const Kind& kind : kinds) {
    note("%s", kind.name);
    if (kind.at) ASK(cuMemFree(kind.at + 64));
    if (kind.at) ASK(cuMemFreeHost((void*)(kind.at + 64)));
    if (kind.at) ASK(cuMemFreeAsync(kind.at + 64, stream));
    if (strstr(kind.name, "host") || !strcmp(kind.name, "registered") || !strcmp(kind.name, "plain") ||
        !strcmp(kind.name, "null") || !strcmp(kind.name, "wild") || !strcmp(kind.name, "global"))
      if (!strstr(kind.name, "managed")) ASK(cuMemFree(kind.at));
    if (!strstr(kind.name, "host") && !strstr(kind.name, "managed")) ASK(cuMemFreeHost((void*)kind.at));
    if (!strstr(kind.name, "pool")) {
      if (!strcmp(kind.name, "device") || !strcmp(kind.name, "pitched")) continue;
      if (!strstr(kind.name, "managed")) ASK(cuMemFreeAsync(kind.at, stream));
    }
  }
  done("allocation");
}

static void copies() {
  for (const Kind& to : kinds)
    for (const Kind& from : kinds) {
      const char* bad[] = {"null", "wild", "reserved"};
      bool is_bad = false;
      for (const char* one : bad) is_bad |= !strcmp(to.name, one) || !strcmp(from.name, one);
      note("%s from %s", to.name, from.name);
      ASK(cuMemcpy(to.at, from.at, 0));
      ASK(cuMemcpyDtoD(to.at, from.at, 0));
      ASK(cudaMemcpy((void*)to.at, (void*)from.at, 0, cudaMemcpyDefault));
      if (is_bad) continue;
      ASK(cuMemcpy(to.at, from.at, 64));
      ASK(cuMemcpyAsync(to.at, from.at, 64, stream));
      const bool plain = !strcmp(to.name, "plain") || !strcmp(from.name, "plain");
      if (!plain) ASK(cuMemcpyDtoD(to.at, from.at, 64));
      if (strcmp(to.name, "plain")) ASK(cuMemcpyHtoD(to.at, (void*)from.at, 64));
      if (strcmp(from.name, "plain")) ASK(cuMemcpyDtoH((void*)to.at, from.at, 64));
      for (int kind = -1; kind <= 5; ++kind) {
        note("%s from %s, kind %d", to.name, from.name, kind);
        ASK(cudaMemcpy((void*)to.at, (void*)from.at, 64, static_cast<cudaMemcpyKind>(kind)));
        ASK(cudaMemcpyAsync((void*)to.at, (void*)from.at, 64, static_cast<cudaMemcpyKind>(kind), stream));
        ASK(cudaMemcpy2D((void*)to.at, 32, (void*)from.at, 16, 16, 2, static_cast<cudaMemcpyKind>(kind)));
        cudaGetLastError();
      }
    }
  cuCtxSynchronize();
  for (const Kind& to : kinds) {
    if (!strcmp(to.name, "wild") || !strcmp(to.name, "reserved") || !strcmp(to.name, "plain")) continue;
    note("%s", to.name);
    ASK(cuMemsetD8(to.at, 1, 0));
    ASK(cuMemsetD32(to.at, 1, 0));
    if (to.at == 0) continue;
    ASK(cuMemsetD8(to.at + 1, 1, 5));
    ASK(cuMemsetD16(to.at + 1, 1, 5));
    ASK(cuMemsetD32(to.at + 2, 1, 5));
    ASK(cuMemsetD32(to.at, 1, 5));
    ASK(cuMemsetD8Async(to.at, 1, 5, stream));
    ASK(cuMemsetD2D8(to.at, 8, 1, 9, 2));
    ASK(cuMemsetD2D8(to.at, 8, 1, 8, 0));
    ASK(cuMemsetD2D32(to.at, 6, 1, 1, 2));
    ASK(cudaMemset((void*)to.at, 3, 16));
    ASK(cudaMemset2D((void*)to.at, 8, 3, 9, 2));
    cudaGetLastError();
  }
  const CUdeviceptr d = at_of("device"), h = at_of("host");
  for (int wrong = 0; wrong < 10; ++wrong) {
    CUDA_MEMCPY2D c{};
    c.srcMemoryType = CU_MEMORYTYPE_HOST, c.srcHost = (void*)h, c.srcPitch = 32;
    c.dstMemoryType = CU_MEMORYTYPE_DEVICE, c.dstDevice = d, c.dstPitch = 32;
    c.WidthInBytes = 16, c.Height = 4;
    if (wrong == 1) c.srcPitch = 8;
    if (wrong == 2) c.dstPitch = 8;
    if (wrong == 3) c.WidthInBytes = 0;
    if (wrong == 4) c.Height = 0;
    if (wrong == 5) c.srcHost = nullptr;
    if (wrong == 6) c.dstMemoryType = CU_MEMORYTYPE_ARRAY;
    if (wrong == 7) c.dstMemoryType = static_cast<CUmemorytype>(9);
    if (wrong == 8) c.srcXInBytes = 24;
    if (wrong == 9) c.srcMemoryType = CU_MEMORYTYPE_UNIFIED, c.srcDevice = h;
    note("2D, %d", wrong);
    ASK(cuMemcpy2D(&c));
    ASK(cuMemcpy2DUnaligned(&c));
    ASK(cuMemcpy2DAsync(&c, stream));
    CUDA_MEMCPY3D v{};
    v.srcMemoryType = c.srcMemoryType, v.srcHost = c.srcHost, v.srcPitch = c.srcPitch, v.srcDevice = c.srcDevice;
    v.dstMemoryType = c.dstMemoryType, v.dstDevice = c.dstDevice, v.dstPitch = c.dstPitch, v.srcHeight = 4,
    v.dstHeight = 4;
    v.WidthInBytes = c.WidthInBytes, v.Height = c.Height, v.Depth = 2, v.srcXInBytes = c.srcXInBytes;
    ASK(cuMemcpy3D(&v));
    v.Depth = 0;
    ASK(cuMemcpy3D(&v));
    v.Depth = 2, v.srcHeight = 3;
    ASK(cuMemcpy3DAsync(&v, stream));
  }
  ASK(cuMemcpy2D(nullptr));
  ASK(cuMemcpy3D(nullptr));
  done("copies");
}

int main() {
  answers::begin();
  make_kinds();
  allocation();
  copies();
  return answers::passed();
}
