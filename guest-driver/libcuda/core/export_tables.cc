#include "guest-driver/libcuda/core/export_tables.h"

#include <cstring>
#include <vector>

#include "guest-driver/libcuda/core/compile_table.h"
#include "guest-driver/libcuda/core/context.h"
#include "guest-driver/libcuda/core/device.h"
#include "guest-driver/libcuda/core/local_storage.h"
#include "guest-driver/libcuda/core/log.h"
#include "guest-driver/libcuda/core/private_table.h"
#include "guest-driver/libcuda/core/process.h"
#include "guest-driver/libcuda/core/virtual_gpu.h"
#include "guest-driver/libcuda/core/wire_tracer.h"
#include "guest-driver/uapi/trace_table.h"

namespace bandsaw::libcuda {
namespace {

// As the bytes of CUuuid.
constexpr TableName kCudart = {
    {0x6b, 0xd5, 0xfb, 0x6c, 0x5b, 0xf4, 0xe7, 0x4a, 0x89, 0x87, 0xd9, 0x39, 0x12, 0xfd, 0x9d, 0xf9},
    "CUDART_INTERFACE"};
constexpr TableName kHooks = {
    {0xa0, 0x94, 0x79, 0x8c, 0x2e, 0x74, 0x2e, 0x74, 0x93, 0xf2, 0x08, 0x00, 0x20, 0x0c, 0x0a, 0x66},
    "TOOLS_RUNTIME_CALLBACK_HOOKS"};
constexpr TableName kTls = {
    {0x42, 0xd8, 0x5a, 0x81, 0x23, 0xf6, 0xcb, 0x47, 0x82, 0x98, 0xf6, 0xe7, 0x8a, 0x3a, 0xec, 0xdc}, "TOOLS_TLS"};
constexpr TableName kStorage = {
    {0xc6, 0x93, 0x33, 0x6e, 0x11, 0x21, 0xdf, 0x11, 0xa8, 0xc3, 0x68, 0xf3, 0x55, 0xd8, 0x95, 0x93},
    "CONTEXT_LOCAL_STORAGE"};
constexpr TableName kChecks = {
    {0x26, 0x3e, 0x88, 0x60, 0x7c, 0xd2, 0x61, 0x43, 0x92, 0xf6, 0xbb, 0xd5, 0x00, 0x6d, 0xfa, 0x7e}, "CONTEXT_CHECKS"};
constexpr TableName kIntegrity = {
    {0xd4, 0x08, 0x20, 0x55, 0xbd, 0xe6, 0x70, 0x4b, 0x8d, 0x34, 0xba, 0x12, 0x3c, 0x66, 0xe1, 0xf2},
    "INTEGRITY_CHECK"};
constexpr TableName kToolsContext = {
    {0x21, 0x31, 0x8c, 0x60, 0x97, 0x14, 0x32, 0x48, 0x8c, 0xa6, 0x41, 0xff, 0x73, 0x24, 0xc8, 0xf2}, "ToolsContext"};
constexpr TableName kToolsModule = {
    {0x6e, 0x16, 0x3f, 0xbe, 0xb9, 0x58, 0x44, 0x4d, 0x83, 0x5c, 0xe1, 0x82, 0xaf, 0xf1, 0x99, 0x1e}, "ToolsModule"};
constexpr TableName kTrace = {BANDSAW_TRACE_TABLE_UUID, "of this library's tracer"};
constexpr TableName kCompute = {
    {0xda, 0x91, 0x51, 0xd3, 0x3a, 0xe6, 0xcc, 0x41, 0xa5, 0xc0, 0x4f, 0x26, 0xd5, 0x33, 0xe3, 0x28},
    "of the compute cache"};
constexpr TableName kUnnamed = {
    {0x17, 0x34, 0xdc, 0x26, 0x80, 0x0d, 0x47, 0x45, 0x87, 0x26, 0xc0, 0xf1, 0xe7, 0xdd, 0x8b, 0xca},
    "without a known name"};

// --- CUDART_INTERFACE ---

CUresult cudart_primary_context(CUcontext* context, CUdevice device) {
  if (!context) return CUDA_ERROR_INVALID_VALUE;
  if (const CUresult result = check_device(device); result != CUDA_SUCCESS) return result;
  *context = to_program(gpu_at(device).primary);  // not retained; the same handle that Retain gives later
  return CUDA_SUCCESS;
}

// Up to CUDA 11.8 the runtime loads its images by these two; later ones use cuLibraryLoadData.
CUresult cudart_load_module(CUmodule* module, const void* wrapper) { return load_managed_module(module, wrapper); }

// `count` variables that the program has registered as external: their names, and where the host keeps them. No
// compiler since CUDA 5 registers any.
CUresult cudart_load_module_with_variables(CUmodule* module, const void* wrapper, const char* const* names,
                                           void* const* addresses, uint32_t count) {
  if (count && names && addresses) {
    log_unsupported("a variable that the runtime registers as external to its module");
    return CUDA_ERROR_NOT_SUPPORTED;
  }
  return load_managed_module(module, wrapper);
}

// Up to CUDA 11.8: the program will not use this image again (its library is unloaded, or it ends). Copies are made
// when an image is loaded and nothing is kept by its address, so there is nothing to forget.
void cudart_forget_image(const void*) {}

// CUDA 13.1 and later: called once at the start, so that what compiles PTX is there before it is needed. Here it is the
// host's, and there as long as the host is.
CUresult cudart_load_compilers() { return health(); }

const void* cudart_table() {
  static const auto* const table = [] {
    auto* made = new PrivateTable(refusing_table<kCudart, 13>());
    made->slots[1] = slot_address(cudart_load_module);
    made->slots[2] = slot_address(cudart_primary_context);
    made->slots[6] = slot_address(cudart_load_module_with_variables);
    made->slots[7] = slot_address(cudart_forget_image);
    made->slots[10] = nullptr;  // as in a real driver
    made->slots[12] = slot_address(cudart_load_compilers);
    return made;
  }();
  return table;
}

// --- TOOLS_RUNTIME_CALLBACK_HOOKS: zeroed buffers that the runtime reads; nobody listens ---

void hooks_small(void** buffer, size_t* count) {
  static uint64_t zeros[1024];
  *buffer = zeros;
  *count = 1024;
}

void hooks_large(void** buffer, size_t* count) {
  static uint64_t zeros[64];
  *buffer = zeros;
  *count = 14;
}

const void* hooks_table() {
  static const auto* const table = [] {
    auto* made = new PrivateTable(refusing_table<kHooks, 7>());
    made->slots[2] = slot_address(hooks_small);
    made->slots[6] = slot_address(hooks_large);
    return made;
  }();
  return table;
}

// --- TOOLS_TLS ---

CUresult tls_current(CUcontext* context) { return cuCtxGetCurrent(context); }

const void* tls_table() {
  static const auto* const table = [] {
    auto* made = new PrivateTable(refusing_table<kTls, 3>());
    made->slots[2] = slot_address(tls_current);
    return made;
  }();
  return table;
}

// --- CONTEXT_LOCAL_STORAGE: no size slot ---

CUresult storage_put(CUcontext context, void* key, void* value, LocalStorage::Destructor destructor) {
  Context* const found = from_program(context);
  return found ? found->storage->put(key, value, destructor) : CUDA_ERROR_INVALID_CONTEXT;
}

CUresult storage_remove(CUcontext context, void* key) {
  Context* const found = from_program(context);
  return found ? found->storage->remove(key) : CUDA_ERROR_INVALID_CONTEXT;
}

CUresult storage_get(void** value, CUcontext context, void* key) {
  if (!value) return CUDA_ERROR_INVALID_VALUE;
  Context* const found = from_program(context);
  return found ? found->storage->get(key, value) : CUDA_ERROR_INVALID_HANDLE;
}

const void* storage_table() {
  static const auto* const table = new PrivateTable<4>{
      {slot_address(storage_put), slot_address(storage_remove), slot_address(storage_get), nullptr}};
  return table;
}

// --- CONTEXT_CHECKS ---

// Whether it is a green context, and then whose part it is.
CUresult checks_context(CUcontext context, uint32_t* is_green, CUcontext* primary) {
  const Context* const found = from_program(context);
  const bool green = found && found->sms.count;
  if (is_green) *is_green = green ? 1 : 0;
  if (primary && green) *primary = to_program(found->gpu->primary);
  return CUDA_SUCCESS;
}

uint32_t checks_none() { return 0; }

const void* checks_table() {
  static const auto* const table = [] {
    auto* made = new PrivateTable(refusing_table<kChecks, 15>());
    made->slots[2] = slot_address(checks_context);
    made->slots[3] = slot_address(checks_none);
    return made;
  }();
  return table;
}

// --- INTEGRITY_CHECK ---

const void* integrity_table();

CUresult integrity_check(uint32_t version, uint64_t unix_seconds, uint64_t out[2]) {
  note_runtime(__builtin_return_address(0), version);
  return answer_integrity(version, unix_seconds, {cudart_table(), integrity_table(), slot_address(integrity_check)},
                          out);
}

const void* integrity_table() {
  static const auto* const table = [] {
    auto* made = new PrivateTable(refusing_table<kIntegrity, 3>());
    made->slots[1] = slot_address(integrity_check);
    return made;
  }();
  return table;
}

// --- ToolsContext: ids of contexts and streams ---

CUresult tools_context_device(CUcontext context, CUdevice* device) { return cuCtxGetDevice_v2(device, context); }

CUresult tools_context_id(CUcontext context, uint64_t* id) {
  return cuCtxGetId(context, reinterpret_cast<unsigned long long*>(id));
}

// What a stream is called here: the handle, never NULL.
CUresult tools_stream(CUcontext, CUstream stream, void** token, int) {
  if (!token) return CUDA_ERROR_INVALID_VALUE;
  *token = stream ? stream : CU_STREAM_LEGACY;
  return CUDA_SUCCESS;
}

CUresult tools_stream_id(CUcontext, void* token, uint64_t* id) {
  if (!id) return CUDA_ERROR_INVALID_VALUE;
  return cuStreamGetId(static_cast<CUstream>(token), reinterpret_cast<unsigned long long*>(id));
}

const void* tools_context_table() {
  static const auto* const table = [] {
    auto* made = new PrivateTable(refusing_table<kToolsContext, 93>());
    made->slots[3] = slot_address(tools_context_device);
    made->slots[4] = slot_address(tools_context_id);
    made->slots[39] = slot_address(tools_stream_id);
    made->slots[51] = slot_address(tools_stream);
    return made;
  }();
  return table;
}

// --- ToolsModule: a module's functions ---

using FunctionVisitor = void (*)(void* user, CUfunction function, void* owner);

unsigned tools_each_function(CUcontext, CUmodule module, FunctionVisitor visit, void* user) {
  unsigned count = 0;
  if (cuModuleGetFunctionCount(&count, module) != CUDA_SUCCESS) return 0;
  std::vector<CUfunction> functions(count);
  if (cuModuleEnumerateFunctions(functions.data(), count, module) != CUDA_SUCCESS) return 0;
  for (CUfunction function : functions) visit(user, function, module);
  return count;
}

const void* tools_module_table() {
  static const auto* const table = [] {
    auto* made = new PrivateTable(refusing_table<kToolsModule, 99>());
    made->slots[7] = slot_address(tools_each_function);
    return made;
  }();
  return table;
}

// --- a table without a known name, which cuBLAS asks for on devices of capability 9.0 ---

CUresult nothing_there(void** a, void** b) {
  if (a) *a = nullptr;
  if (b) *b = nullptr;
  return CUDA_SUCCESS;
}

const void* unnamed_table() {
  static const auto* const table = [] {
    auto* made = new PrivateTable(refusing_table<kUnnamed, 17>());
    made->slots[4] = slot_address(nothing_there);
    return made;
  }();
  return table;
}

// --- the compute cache, for NVRTC ---

const void* compute_cache_table() {
  static const auto* const table = [] {
    auto* made = new PrivateTable(refusing_table<kCompute, 10>());
    fill_compute_cache(made->slots);
    return made;
  }();
  return table;
}

struct Known {
  const TableName& name;
  const void* (*table)();
};

const Known kKnown[] = {
    {kCudart, cudart_table},
    {kHooks, hooks_table},
    {kTls, tls_table},
    {kStorage, storage_table},
    {kChecks, checks_table},
    {kIntegrity, integrity_table},
    {kToolsContext, tools_context_table},
    {kToolsModule, tools_module_table},
    {kCompute, compute_cache_table},
    {kUnnamed, unnamed_table},
    {kTrace, trace_table},
};

}  // namespace
}  // namespace bandsaw::libcuda

extern "C" CUresult CUDAAPI cuGetExportTable(const void** ppExportTable, const CUuuid* pExportTableId) {
  using namespace bandsaw::libcuda;
  if (!ppExportTable || !pExportTableId) return CUDA_ERROR_INVALID_VALUE;
  *ppExportTable = nullptr;
  for (const Known& known : kKnown) {
    if (std::memcmp(known.name.uuid.data(), pExportTableId->bytes, known.name.uuid.size()) != 0) continue;
    *ppExportTable = known.table();
    return CUDA_SUCCESS;
  }
  const auto* uuid = reinterpret_cast<const uint8_t*>(pExportTableId->bytes);
  return refuse_table(uuid, __builtin_return_address(0));
}
