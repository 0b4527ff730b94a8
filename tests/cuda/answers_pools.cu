// What the driver answers of pools and of virtual memory management, and what it refuses.
// nvcc: -lcuda
// same: yes
#include "answers_kinds.cuh"

static void pools() {
  CUmemoryPool first = nullptr, now = nullptr;
  ASK(cuDeviceGetDefaultMemPool(&first, device));
  ASK(cuDeviceGetMemPool(&now, device), now == first);
  for (CUmemoryPool pool : {first, own_pool}) {
    for (int i = 0; i <= 12; ++i) {
      unsigned long long value = 0;
      note("%s, attribute %d", pool == first ? "default" : "own", i);
      const bool reserved = i == CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT || i == CU_MEMPOOL_ATTR_RESERVED_MEM_HIGH;
      ASK(cuMemPoolGetAttribute(pool, static_cast<CUmemPool_attribute>(i), &value), reserved ? value > 0 : value);
      for (unsigned long long wanted : {0ull, 1ull, 1000000ull, ~0ull}) {
        note("%s, attribute %d, %llu", pool == first ? "default" : "own", i, wanted);
        ASK(cuMemPoolSetAttribute(pool, static_cast<CUmemPool_attribute>(i), &wanted));
        value = 0;
        if (i < 5) ASK(cuMemPoolGetAttribute(pool, static_cast<CUmemPool_attribute>(i), &value), value);
      }
      if (i == 4) {
        unsigned long long zero = 0;
        cuMemPoolSetAttribute(pool, CU_MEMPOOL_ATTR_RELEASE_THRESHOLD, &zero);
      }
    }
    note("%s", pool == first ? "default" : "own");
    CUmemAccess_flags flags{};
    for (int type = 0; type < 5; ++type)
      for (int id : {0, 99}) {
        CUmemLocation place{static_cast<CUmemLocationType>(type), id};
        note("%s, place %d %d", pool == first ? "default" : "own", type, id);
        ASK(cuMemPoolGetAccess(&flags, pool, &place), flags);
        for (int f : {0, 1, 3, 2}) {
          CUmemAccessDesc access{place, static_cast<CUmemAccess_flags>(f)};
          ASK(cuMemPoolSetAccess(pool, &access, 1));
        }
      }
    note("%s", pool == first ? "default" : "own");
    ASK(cuMemPoolSetAccess(pool, nullptr, 0));
    ASK(cuMemPoolTrimTo(pool, 0));
    int fd = -1;
    ASK(cuMemPoolExportToShareableHandle(&fd, pool, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0));
    ASK(cuMemPoolExportToShareableHandle(&fd, pool, CU_MEM_HANDLE_TYPE_NONE, 0));
  }
  for (int type = 0; type < 5; ++type)
    for (int id : {0, 99, -1})
      for (int handles : {0, 1, 2, 8})
        for (int kind : {0, 1, 2}) {
          CUmemPoolProps props{};
          props.allocType = static_cast<CUmemAllocationType>(kind);
          props.handleTypes = static_cast<CUmemAllocationHandleType>(handles);
          props.location = {static_cast<CUmemLocationType>(type), id};
          CUmemoryPool made = nullptr;
          note("create: place %d %d, handles %d, kind %d", type, id, handles, kind);
          if (type > 1 && handles) continue;
          if (!ASK(cuMemPoolCreate(&made, &props))) ASK(cuMemPoolDestroy(made));
        }
  note("");
  ASK(cuMemPoolDestroy(first));
  ASK(cuDeviceSetMemPool(device, own_pool));
  ASK(cuDeviceGetMemPool(&now, device), now == own_pool);
  ASK(cuDeviceSetMemPool(device, first));
  ASK(cuDeviceSetMemPool(99, first));
  for (int i = 0; i < 5; ++i) {
    unsigned long long value = 0, zero = 0, one = 1;
    note("graph memory, attribute %d", i);
    ASK(cuDeviceGetGraphMemAttribute(device, static_cast<CUgraphMem_attribute>(i), &value), value);
    ASK(cuDeviceSetGraphMemAttribute(device, static_cast<CUgraphMem_attribute>(i), &zero));
    ASK(cuDeviceSetGraphMemAttribute(device, static_cast<CUgraphMem_attribute>(i), &one));
  }
  note("");
  ASK(cuDeviceGraphMemTrim(device));
  done("pools");
}

static void vmm() {
  CUmemAllocationProp prop{};
  prop.type = CU_MEM_ALLOCATION_TYPE_PINNED;
  prop.location = {CU_MEM_LOCATION_TYPE_DEVICE, 0};
  const size_t unit = 2 << 20;
  for (int type = 0; type < 5; ++type)
    for (int id : {0, 99})
      for (int option : {0, 1, 2}) {
        CUmemAllocationProp p = prop;
        p.location = {static_cast<CUmemLocationType>(type), id};
        size_t granularity = 0;
        note("place %d %d, option %d", type, id, option);
        ASK(cuMemGetAllocationGranularity(&granularity, &p, static_cast<CUmemAllocationGranularity_flags>(option)),
            granularity);
      }
  CUmemGenericAllocationHandle memory = 0, other = 0;
  for (size_t bytes : {size_t{0}, size_t{1}, unit / 2, unit, 3 * unit, size_t{1} << 50}) {
    note("create %zu", bytes);
    if (!ASK(cuMemCreate(&memory, bytes, &prop, 0))) ASK(cuMemRelease(memory));
    ASK(cuMemCreate(&memory, bytes, &prop, 1));
  }
  for (int kind : {0, 1, 2, 3})
    for (int handles : {0, 1, 2, 4, 8}) {
      CUmemAllocationProp p = prop;
      p.type = static_cast<CUmemAllocationType>(kind);
      p.requestedHandleTypes = static_cast<CUmemAllocationHandleType>(handles);
      note("create kind %d, handles %d", kind, handles);
      if (handles == 8 || (kind == 2)) continue;
      if (!ASK(cuMemCreate(&memory, unit, &p, 0))) ASK(cuMemRelease(memory));
    }
  note("");
  CUdeviceptr at = 0;
  for (size_t bytes : {size_t{0}, size_t{4096}, unit, 5 * unit, size_t{1} << 60})
    for (size_t alignment : {size_t{0}, size_t{4096}, size_t{3000}, size_t{1} << 30}) {
      note("reserve %zu, alignment %zu", bytes, alignment);
      if (!ASK(cuMemAddressReserve(&at, bytes, alignment, 0, 0), alignment ? at % alignment : 0))
        ASK(cuMemAddressFree(at, bytes));
    }
  note("");
  ASK(cuMemAddressReserve(&at, unit, 0, 0, 1));
  NEED(cuMemAddressReserve(&at, 8 * unit, 0, 0, 0));
  NEED(cuMemCreate(&memory, 2 * unit, &prop, 0));
  NEED(cuMemCreate(&other, unit, &prop, 0));
  CUmemAccessDesc access{{CU_MEM_LOCATION_TYPE_DEVICE, 0}, CU_MEM_ACCESS_FLAGS_PROT_READWRITE};
  ASK(cuMemSetAccess(at, unit, &access, 1));
  ASK(cuMemMap(at, unit, 0, memory, 0));
  ASK(cuMemMap(at, 2 * unit, unit, memory, 0));
  ASK(cuMemMap(at, 2 * unit, 0, memory, 1));
  ASK(cuMemMap(at + 4096, 2 * unit, 0, memory, 0));
  ASK(cuMemMap(at + 7 * unit, 2 * unit, 0, memory, 0));
  ASK(cuMemMap(at, 0, 0, memory, 0));
  ASK(cuMemMap(at, 2 * unit, 0, memory, 0));
  ASK(cuMemMap(at, 2 * unit, 0, memory, 0));
  ASK(cuMemMap(at + unit, unit, 0, other, 0));
  ASK(cuMemMap(at + 2 * unit, unit, 0, other, 0));
  ASK(cuMemMap(at + 4 * unit, 2 * unit, 0, memory, 0));
  unsigned long long granted = 9;
  ASK(cuMemGetAccess(&granted, &access.location, at), granted);
  ASK(cuMemsetD8(at, 1, 0));
  ASK(cuMemSetAccess(at, unit, &access, 1));
  ASK(cuMemSetAccess(at, 2 * unit, &access, 1));
  ASK(cuMemSetAccess(at, 3 * unit, &access, 1));
  ASK(cuMemSetAccess(at, 4 * unit, &access, 1));
  ASK(cuMemSetAccess(at, 0, &access, 1));
  ASK(cuMemSetAccess(at, unit, &access, 0));
  ASK(cuMemSetAccess(at, unit, nullptr, 1));
  ASK(cuMemSetAccess(at + 100, unit, &access, 1));
  ASK(cuMemGetAccess(&granted, &access.location, at), granted);
  ASK(cuMemGetAccess(&granted, &access.location, at + 3 * unit), granted);
  for (int f : {0, 1, 2, 3, 4}) {
    CUmemAccessDesc d = access;
    d.flags = static_cast<CUmemAccess_flags>(f);
    note("access %d", f);
    ASK(cuMemSetAccess(at, 2 * unit, &d, 1));
    ASK(cuMemGetAccess(&granted, &access.location, at), granted);
  }
  note("");
  access.location.id = 99;
  ASK(cuMemSetAccess(at, 2 * unit, &access, 1));
  ASK(cuMemAddressFree(at, 8 * unit));
  ASK(cuMemUnmap(at, unit));
  ASK(cuMemUnmap(at + unit, unit));
  ASK(cuMemUnmap(at, 0));
  ASK(cuMemUnmap(at, 4 * unit));
  CUmemGenericAllocationHandle again = 0;
  ASK(cuMemRetainAllocationHandle(&again, (void*)(at + 2 * unit)), again == other);
  if (again) ASK(cuMemRelease(again));
  CUmemAllocationProp back{};
  ASK(cuMemGetAllocationPropertiesFromHandle(&back, memory), back.type, back.location.type, back.location.id,
      back.requestedHandleTypes);
  int fd = -1;
  ASK(cuMemExportToShareableHandle(&fd, memory, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0));
  ASK(cuMemExportToShareableHandle(&fd, memory, CU_MEM_HANDLE_TYPE_NONE, 0));
  ASK(cuMemRelease(memory));
  ASK(cuMemUnmap(at, 3 * unit));
  ASK(cuMemUnmap(at, 2 * unit));
  ASK(cuMemUnmap(at + 2 * unit, unit));
  ASK(cuMemUnmap(at + 4 * unit, 2 * unit));
  ASK(cuMemRelease(other));
  ASK(cuMemAddressFree(at, unit));
  ASK(cuMemAddressFree(at + unit, unit));
  ASK(cuMemAddressFree(at, 8 * unit));
  ASK(cuMemAddressFree(at, 8 * unit));
  done("vmm");
}

int main() {
  answers::begin();
  make_kinds();
  pools();
  vmm();
  return answers::passed();
}
