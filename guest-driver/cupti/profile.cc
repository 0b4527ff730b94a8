#include "guest-driver/cupti/profile.h"

#include <dlfcn.h>
#include <pthread.h>
#include <unistd.h>

#include <atomic>
#include <cstdio>
#include <cstring>
#include <mutex>
#include <set>
#include <string>
#include <unordered_set>
#include <vector>

#include "guest-driver/cupti/buffers.h"
#include "guest-driver/cupti/clock.h"
#include "guest-driver/cupti/names.h"
#include "guest-driver/cupti/records.h"

namespace bandsaw::cupti {
namespace {

constexpr uint32_t kExternalKinds = 8;

std::atomic<uint64_t> enabled_kinds{0};
std::atomic<bool> system_ids{false};
std::atomic<ContextChanged> context_changed{nullptr};

struct Disabled {
  std::mutex mutex;
  std::set<uint32_t> callbacks;
  std::atomic<bool> any{false};
};

// Leaked, as all that calls need until the process is gone.
Disabled& disabled() {
  static auto* const made = new Disabled;
  return *made;
}

// Programs' own ends come after that of the main thread's variables, and may still push, pop and call.
thread_local bool externals_gone = false;

struct Externals {
  ~Externals() { externals_gone = true; }
  std::vector<uint64_t> ids[kExternalKinds];
};

// Of this thread; null: it ends.
std::vector<uint64_t>* externals(uint32_t kind) {
  thread_local Externals all;
  return externals_gone ? nullptr : &all.ids[kind];
}

template <typename R>
void put(const R& record) {
  Buffers::get().put(&record, sizeof(record));
}

// Records keep pointers to names, so each lives on.
const char* lasting(const char* name) {
  static auto* const mutex = new std::mutex;
  static auto* const names = new std::unordered_set<std::string>;
  std::lock_guard lock(*mutex);
  return names->insert(name).first->c_str();
}

uint32_t thread_id() { return system_ids ? static_cast<uint32_t>(gettid()) : static_cast<uint32_t>(pthread_self()); }

bool wants_function(uint32_t callback) {
  if (!disabled().any) return true;
  std::lock_guard lock(disabled().mutex);
  return !disabled().callbacks.contains(callback);
}

void put_externals(const bandsaw_traced_call& call) {
  for (uint32_t kind = 0; kind < kExternalKinds; kind++) {
    const std::vector<uint64_t>* const ids = externals(kind);
    if (!ids || ids->empty()) continue;
    ExternalRecord record;
    record.known.kind = CUPTI_ACTIVITY_KIND_EXTERNAL_CORRELATION;
    record.known.externalKind = static_cast<CUpti_ExternalCorrelationKind>(kind);
    record.known.externalId = ids->back();
    record.known.correlationId = static_cast<uint32_t>(call.id);
    put(record);
  }
}

void put_call(const bandsaw_traced_call& call, uint32_t callback) {
  ApiRecord record;
  record.known.kind = CUPTI_ACTIVITY_KIND_DRIVER;
  record.known.cbid = callback;
  record.known.start = Clock::get().convert(call.begin_ns);
  record.known.end = Clock::get().convert(call.end_ns);
  record.known.processId = static_cast<uint32_t>(getpid());
  record.known.threadId = thread_id();
  record.known.correlationId = static_cast<uint32_t>(call.id);
  record.known.returnValue = call.error;
  put(record);
}

void put_wait(const bandsaw_traced_call& call) {
  SynchronizationRecord record;
  const auto invalid = static_cast<uint32_t>(CUPTI_SYNCHRONIZATION_INVALID_VALUE);
  record.known.kind = CUPTI_ACTIVITY_KIND_SYNCHRONIZATION;
  record.known.type = call.waits_event    ? CUPTI_ACTIVITY_SYNCHRONIZATION_TYPE_EVENT_SYNCHRONIZE
                      : call.waits_stream ? CUPTI_ACTIVITY_SYNCHRONIZATION_TYPE_STREAM_SYNCHRONIZE
                                          : CUPTI_ACTIVITY_SYNCHRONIZATION_TYPE_CONTEXT_SYNCHRONIZE;
  record.known.start = Clock::get().convert(call.begin_ns);
  record.known.end = Clock::get().convert(call.end_ns);
  record.known.correlationId = static_cast<uint32_t>(call.id);
  record.known.contextId = static_cast<uint32_t>(call.context);
  record.known.streamId = call.waits_stream ? static_cast<uint32_t>(call.waits_stream) : invalid;
  record.known.cudaEventId = call.waits_event ? static_cast<uint32_t>(call.waits_event) : invalid;
  put(record);
}

void on_call(const bandsaw_traced_call* call) {
  const uint32_t callback = driver_callback(call->entry, call->per_thread != 0);
  if (callback == 0) return;
  if (is_enabled(CUPTI_ACTIVITY_KIND_EXTERNAL_CORRELATION)) put_externals(*call);
  if (is_enabled(CUPTI_ACTIVITY_KIND_DRIVER) && wants_function(callback)) put_call(*call, callback);
  const bool waits = call->waits_event || call->waits_stream || std::strncmp(call->entry, "cuCtxSynchronize", 16) == 0;
  if (waits && is_enabled(CUPTI_ACTIVITY_KIND_SYNCHRONIZATION)) put_wait(*call);
}

void put_kernel(const bandsaw_traced_work& work, CUpti_ActivityKind kind) {
  KernelRecord record;
  CUpti_ActivityKernel9& kernel = record.known;
  kernel.kind = kind;
  kernel.registersPerThread = static_cast<uint16_t>(work.registers);
  kernel.start = Clock::get().convert(work.begin_ns);
  kernel.end = Clock::get().convert(work.end_ns);
  kernel.completed = kernel.end;
  kernel.deviceId = work.device;
  kernel.contextId = static_cast<uint32_t>(work.context);
  kernel.streamId = static_cast<uint32_t>(work.stream);
  kernel.gridX = static_cast<int32_t>(work.grid[0]);
  kernel.gridY = static_cast<int32_t>(work.grid[1]);
  kernel.gridZ = static_cast<int32_t>(work.grid[2]);
  kernel.blockX = static_cast<int32_t>(work.block[0]);
  kernel.blockY = static_cast<int32_t>(work.block[1]);
  kernel.blockZ = static_cast<int32_t>(work.block[2]);
  kernel.clusterX = work.cluster[0];
  kernel.clusterY = work.cluster[1];
  kernel.clusterZ = work.cluster[2];
  kernel.staticSharedMemory = static_cast<int32_t>(work.static_shared);
  kernel.dynamicSharedMemory = static_cast<int32_t>(work.dynamic_shared);
  kernel.localMemoryPerThread = work.local;
  kernel.correlationId = static_cast<uint32_t>(work.call);
  kernel.gridId = static_cast<int64_t>(work.call);
  kernel.name = lasting(work.name);
  put(record);
}

CUpti_ActivityMemoryKind memory_kind(uint32_t side) {
  switch (side) {
    case BANDSAW_SIDE_DEVICE:
      return CUPTI_ACTIVITY_MEMORY_KIND_DEVICE;
    case BANDSAW_SIDE_PINNED:
      return CUPTI_ACTIVITY_MEMORY_KIND_PINNED;
    case BANDSAW_SIDE_PAGEABLE:
      return CUPTI_ACTIVITY_MEMORY_KIND_PAGEABLE;
    case BANDSAW_SIDE_ARRAY:
      return CUPTI_ACTIVITY_MEMORY_KIND_ARRAY;
    default:
      return CUPTI_ACTIVITY_MEMORY_KIND_UNKNOWN;
  }
}

CUpti_ActivityMemcpyKind copy_kind(uint32_t from, uint32_t to) {
  constexpr CUpti_ActivityMemcpyKind kinds[3][3] = {
      // host, array, device
      {CUPTI_ACTIVITY_MEMCPY_KIND_HTOH, CUPTI_ACTIVITY_MEMCPY_KIND_HTOA, CUPTI_ACTIVITY_MEMCPY_KIND_HTOD},
      {CUPTI_ACTIVITY_MEMCPY_KIND_ATOH, CUPTI_ACTIVITY_MEMCPY_KIND_ATOA, CUPTI_ACTIVITY_MEMCPY_KIND_ATOD},
      {CUPTI_ACTIVITY_MEMCPY_KIND_DTOH, CUPTI_ACTIVITY_MEMCPY_KIND_DTOA, CUPTI_ACTIVITY_MEMCPY_KIND_DTOD}};
  const auto index = [](uint32_t side) { return side == BANDSAW_SIDE_DEVICE ? 2 : side == BANDSAW_SIDE_ARRAY ? 1 : 0; };
  return kinds[index(from)][index(to)];
}

void put_copy(const bandsaw_traced_work& work) {
  CopyRecord record;
  CUpti_ActivityMemcpy5& copy = record.known;
  copy.kind = CUPTI_ACTIVITY_KIND_MEMCPY;
  copy.copyKind = static_cast<uint8_t>(copy_kind(work.source, work.destination));
  copy.srcKind = static_cast<uint8_t>(memory_kind(work.source));
  copy.dstKind = static_cast<uint8_t>(memory_kind(work.destination));
  copy.flags = work.asynchronous ? CUPTI_ACTIVITY_FLAG_MEMCPY_ASYNC : CUPTI_ACTIVITY_FLAG_NONE;
  copy.bytes = work.bytes;
  copy.start = Clock::get().convert(work.begin_ns);
  copy.end = Clock::get().convert(work.end_ns);
  copy.deviceId = work.device;
  copy.contextId = static_cast<uint32_t>(work.context);
  copy.streamId = static_cast<uint32_t>(work.stream);
  copy.correlationId = static_cast<uint32_t>(work.call);
  put(record);
}

void put_fill(const bandsaw_traced_work& work) {
  FillRecord record;
  CUpti_ActivityMemset4& fill = record.known;
  fill.kind = CUPTI_ACTIVITY_KIND_MEMSET;
  fill.value = work.value;
  fill.bytes = work.bytes;
  fill.start = Clock::get().convert(work.begin_ns);
  fill.end = Clock::get().convert(work.end_ns);
  fill.deviceId = work.device;
  fill.contextId = static_cast<uint32_t>(work.context);
  fill.streamId = static_cast<uint32_t>(work.stream);
  fill.correlationId = static_cast<uint32_t>(work.call);
  fill.flags = work.asynchronous ? CUPTI_ACTIVITY_FLAG_MEMSET_ASYNC : CUPTI_ACTIVITY_FLAG_NONE;
  fill.memoryKind = static_cast<uint16_t>(memory_kind(work.destination));
  put(record);
}

// Work counts by what was enabled when it was issued: profilers disable kinds before they ask for the last records.
void on_work(const bandsaw_traced_work* work) {
  const auto wanted = [work](CUpti_ActivityKind kind) { return (work->mark >> kind & 1) != 0; };
  if (work->kind == BANDSAW_WORK_COPY) {
    if (wanted(CUPTI_ACTIVITY_KIND_MEMCPY)) put_copy(*work);
  } else if (work->kind == BANDSAW_WORK_FILL) {
    if (wanted(CUPTI_ACTIVITY_KIND_MEMSET)) put_fill(*work);
  } else {
    for (const auto kind : {CUPTI_ACTIVITY_KIND_KERNEL, CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL}) {
      if (wanted(kind)) put_kernel(*work, kind);
    }
  }
}

void on_lost(uint64_t pieces) { Buffers::get().drop(pieces); }

void tell_context(void* context, bool created) {
  if (const ContextChanged told = context_changed.load()) told(context, created);
}

constexpr bandsaw_trace_listener kListener = {[] { return enabled_kinds.load(std::memory_order_relaxed); },
                                              on_call,
                                              on_work,
                                              on_lost,
                                              [](void* context) { tell_context(context, true); },
                                              [](void* context) { tell_context(context, false); }};

CUptiResult listen() {
  const bandsaw_trace_table* const table = tracer();
  if (!table) return CUPTI_ERROR_NOT_INITIALIZED;
  table->listen(&kListener);
  return CUPTI_SUCCESS;
}

const bandsaw_trace_table* find_tracer() {
  using GetExportTable = int (*)(const void**, const void*);
  void* const driver = dlopen("libcuda.so.1", RTLD_LAZY);
  const auto get = driver ? reinterpret_cast<GetExportTable>(dlsym(driver, "cuGetExportTable")) : nullptr;
  const uint8_t uuid[16] = BANDSAW_TRACE_TABLE_UUID;
  const void* table = nullptr;
  if (get && get(&table, uuid) == 0 &&
      static_cast<const bandsaw_trace_table*>(table)->bytes == sizeof(bandsaw_trace_table)) {
    return static_cast<const bandsaw_trace_table*>(table);
  }
  std::fprintf(
      stderr, "libcupti (bandsaw): %s\n",
      !driver ? dlerror() : "libcuda.so.1 is not Bandsaw's of this release; take NVIDIA's libcupti for NVIDIA's");
  return nullptr;
}

}  // namespace

const bandsaw_trace_table* tracer() {
  static const bandsaw_trace_table* const found = find_tracer();
  return found;
}

CUptiResult enable_kind(CUpti_ActivityKind kind, bool enable) {
  // CUPTI_ACTIVITY_KIND_COUNT is not in all headers.
  if (kind <= CUPTI_ACTIVITY_KIND_INVALID || kind >= 64) return CUPTI_ERROR_INVALID_KIND;
  if (bytes_of(kind) == 0) return enable ? CUPTI_ERROR_NOT_SUPPORTED : CUPTI_SUCCESS;
  const uint64_t bit = uint64_t{1} << kind;
  if (enable) {
    if (const CUptiResult listens = listen(); listens != CUPTI_SUCCESS) return listens;
    enabled_kinds |= bit;
  } else {
    enabled_kinds &= ~bit;
  }
  return CUPTI_SUCCESS;
}

bool is_enabled(CUpti_ActivityKind kind) { return enabled_kinds >> kind & 1; }

void stop() {
  enabled_kinds = 0;
  context_changed = nullptr;
  if (const bandsaw_trace_table* const table = tracer()) table->listen(nullptr);
}

void enable_driver_function(uint32_t callback, bool enable) {
  std::lock_guard lock(disabled().mutex);
  enable ? disabled().callbacks.erase(callback) : disabled().callbacks.insert(callback).second;
  disabled().any = !disabled().callbacks.empty();
}

void push_external(CUpti_ExternalCorrelationKind kind, uint64_t id) {
  if (auto* const ids = externals(kind)) ids->push_back(id);
}

bool pop_external(CUpti_ExternalCorrelationKind kind, uint64_t* last_id) {
  auto* const ids = externals(kind);
  if (!ids || ids->empty()) return false;
  if (last_id) *last_id = ids->back();
  ids->pop_back();
  return true;
}

void set_system_thread_ids(bool system) { system_ids = system; }
bool system_thread_ids() { return system_ids; }

CUptiResult tell_contexts(ContextChanged told) {
  if (const CUptiResult listens = told ? listen() : CUPTI_SUCCESS; listens != CUPTI_SUCCESS) return listens;
  context_changed = told;
  return CUPTI_SUCCESS;
}

}  // namespace bandsaw::cupti
