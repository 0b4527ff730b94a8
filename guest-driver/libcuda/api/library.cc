#include "guest-driver/libcuda/api/library.h"

#include <chrono>
#include <cstring>

#include "guest-driver/libcuda/api/address_map.h"
#include "guest-driver/libcuda/api/function.h"
#include "guest-driver/libcuda/api/handles.h"
#include "guest-driver/libcuda/api/managed_space.h"
#include "guest-driver/libcuda/core/call.h"
#include "guest-driver/libcuda/core/host_blocks.h"
#include "guest-driver/libcuda/core/managed_mode.h"
#include "guest-driver/libcuda/wire_client.h"

namespace bandsaw::libcuda {
namespace {

struct CodeTables {
  HandleTable<CodeRecord> libraries, modules;
};

CodeTables& code_tables();

void forget_library_state(Context* context) {
  const uint64_t gone = context->handle;
  AddressMap::get().remove_if(
      [gone](const Range& range) { return range.kind == RangeKind::kGlobal && range.context == gone; });
  code_tables().modules.remove_if([gone](const CodeRecord& module) { return module.context == gone; });
}

CodeTables& code_tables() {
  static CodeTables& all = *[] {
    on_context_ended(forget_library_state);
    return new CodeTables;
  }();
  return all;
}

// Where it moves as other managed memory does, or in the program's memory.
CUresult place_managed(Call& call, ManagedVariableRecord* variable) {
  CUresult result = CUDA_ERROR_OUT_OF_MEMORY;
  if (managed_memory_moves(call.gpu())) {
    result = ManagedSpace::get().allocate(call, variable->bytes, CU_MEM_ATTACH_GLOBAL, 0, &variable->address);
  }
  variable->moves = result == CUDA_SUCCESS;
  if (result != CUDA_ERROR_OUT_OF_MEMORY) return result;
  SharedBlock block;
  result = host_blocks().allocate(call.gpu(), variable->bytes, &block);
  variable->address = reinterpret_cast<uint64_t>(block.address);
  return result;
}

// Gives every __managed__ variable its place, before the library is loaded into any context.
CUresult bind_managed(Call& call, CodeRecord* record) {
  uint32_t count = 0;
  std::vector<std::byte> list;
  CUresult result = wire::library_managed(call, record->handle, &count, &list);
  size_t at = 0;
  for (uint32_t i = 0; i < count && result == CUDA_SUCCESS; ++i) {
    struct {
      uint64_t bytes;
      uint32_t name_bytes;
    } entry;
    constexpr size_t kEntry = 12;
    if (list.size() - at < kEntry) return CUDA_ERROR_UNKNOWN;
    std::memcpy(&entry.bytes, &list[at], 8);
    std::memcpy(&entry.name_bytes, &list[at + 8], 4);
    at += kEntry;
    if (list.size() - at < entry.name_bytes) return CUDA_ERROR_UNKNOWN;
    const std::string name(reinterpret_cast<const char*>(list.data()) + at, entry.name_bytes);
    at += entry.name_bytes;

    ManagedVariableRecord variable{.bytes = entry.bytes};
    result = place_managed(call, &variable);
    if (result != CUDA_SUCCESS) break;
    const uint64_t address = variable.address;
    record->managed.emplace(name, variable);
    AddressMap::get().add({.base = address,
                           .bytes = entry.bytes,
                           .kind = RangeKind::kManaged,
                           .sync_memops = true,
                           .flags = CU_MEM_ATTACH_GLOBAL,
                           .owner = record->handle});
    result = wire::library_bind_managed(call, record->handle, address, name);
  }
  return result;
}

void release_managed(const CodeRecord& record) {
  for (const auto& [name, variable] : record.managed) {
    AddressMap::get().remove(variable.address);
    if (variable.moves) {
      Call call;
      static_cast<void>(ManagedSpace::get().release(call, variable.address));
    } else {
      static_cast<void>(host_blocks().release(variable.address));
    }
  }
}

}  // namespace

CodeRecord* find_library(uint64_t handle) { return code_tables().libraries.find(handle); }
CodeRecord* find_module(uint64_t handle) { return code_tables().modules.find(handle); }

CodeRecord* add_module(uint64_t handle, uint64_t context) {
  auto record = std::make_unique<CodeRecord>();
  record->handle = handle;
  record->context = context;
  return code_tables().modules.insert(std::move(record));
}

void forget_module(uint64_t handle) {
  forget_functions_of(handle);
  forget_globals_of(handle);
  code_tables().modules.remove(handle);
}

namespace {

// "a\0b\0" -> {"a", "b"}
void append_names(const std::vector<std::byte>& bytes, std::vector<std::string>* names) {
  const char* at = reinterpret_cast<const char*>(bytes.data());
  const char* const end = at + bytes.size();
  while (at < end) {
    const size_t length = strnlen(at, static_cast<size_t>(end - at));
    names->emplace_back(at, length);
    at += length + 1;
  }
}

}  // namespace

CUresult list_names(const AskForNames& ask, std::vector<std::string>* names) {
  uint32_t count = 0;
  do {
    std::vector<std::byte> bytes;
    const auto first = static_cast<uint32_t>(names->size());
    if (const CUresult result = ask(first, &count, &bytes)) return result;
    append_names(bytes, names);
    if (names->size() == first) break;
  } while (names->size() < count);
  return names->size() < count ? CUDA_ERROR_NOT_SUPPORTED : CUDA_SUCCESS;
}

void add_global(uint64_t address, uint64_t bytes, uint64_t owner, uint64_t context) {
  AddressMap::get().add(
      {.base = address, .bytes = bytes, .kind = RangeKind::kGlobal, .context = context, .owner = owner});
}

void forget_globals_of(uint64_t owner) {
  AddressMap::get().remove_if(
      [owner](const Range& range) { return range.kind == RangeKind::kGlobal && range.owner == owner; });
}

CUresult load_library(const Image& image, JitOptions* jit, uint64_t context, CodeRecord** library) {
  Call call;
  if (call.failed()) return call.status();
  SharedImage shared;
  CUresult result = shared.fill(call, image);
  if (result != CUDA_SUCCESS) return result;
  std::string log;
  auto record = std::make_unique<CodeRecord>();
  const auto start = std::chrono::steady_clock::now();
  result = wire::library_load(call, shared.address(), shared.bytes(), &record->handle, &log);
  const std::chrono::duration<float, std::milli> time = std::chrono::steady_clock::now() - start;
  jit->report(result, log, time.count());
  if (result != CUDA_SUCCESS) return result;
  if (gpu_count() > 1) {
    const auto* const bytes = reinterpret_cast<const std::byte*>(shared.address());
    record->image.assign(bytes, bytes + shared.bytes());
  }
  result = bind_managed(call, record.get());
  if (result != CUDA_SUCCESS) {
    wire::library_unload(call, record->handle);
    release_managed(*record);
    return result;
  }
  record->context = context;
  *library = code_tables().libraries.insert(std::move(record));
  return *library ? CUDA_SUCCESS : CUDA_ERROR_UNKNOWN;
}

CUresult library_on_device(Call& call, CodeRecord* library, uint64_t* handle) {
  *handle = library->handle;
  if (call.failed()) return call.status();
  if (call.is_here(library->handle)) return CUDA_SUCCESS;
  std::lock_guard lock(library->mutex);
  if (const auto known = library->elsewhere.find(call.gpu().part); known != library->elsewhere.end()) {
    *handle = known->second;
    return CUDA_SUCCESS;
  }
  SharedImage shared;
  CUresult result = shared.fill(call, {library->image.data(), library->image.size()});
  if (result == CUDA_SUCCESS) result = wire::library_load(call, shared.address(), shared.bytes(), handle, nullptr);
  for (const auto& [name, variable] : library->managed) {
    if (result == CUDA_SUCCESS) result = wire::library_bind_managed(call, *handle, variable.address, name);
  }
  if (result == CUDA_SUCCESS) library->elsewhere.emplace(call.gpu().part, *handle);
  return result;
}

CUresult library_kernel_on_device(Call& call, CodeRecord* library, const char* name, uint64_t* kernel) {
  uint64_t there = 0;
  CUresult result = library_on_device(call, library, &there);
  vgpu_function_info info{};
  std::vector<std::byte> parameters;
  if (result == CUDA_SUCCESS) result = wire::library_kernel(call, there, name, kernel, &info, &parameters);
  if (result != CUDA_SUCCESS) return result;
  return add_function(*kernel, library->handle, 0, 0, name, info, parameters) ? CUDA_SUCCESS : CUDA_ERROR_UNKNOWN;
}

CUresult unload_library(CodeRecord* library) {
  Call call;
  for (const auto& [part, handle] : library->elsewhere) {
    Call there(*gpu_of_part(part));
    static_cast<void>(wire::library_unload(there, handle));  // a device that is lost needs it no more
  }
  const CUresult result = wire::library_unload(call, library->handle);
  if (result != CUDA_SUCCESS) return result;
  forget_functions_of(library->handle);
  forget_globals_of(library->handle);
  release_managed(*library);
  code_tables().libraries.remove(library->handle);
  return CUDA_SUCCESS;
}

// What was loaded first on a device that has failed since: the others have it from its image.
static bool home_has_failed(const Call& call, const CodeRecord& library) {
  const VirtualGpu* const home = gpu_of_part(part_of_handle(library.handle));
  return !call.failed() && home && home != &call.gpu() && home->health() != CUDA_SUCCESS;
}

CUresult library_kernel(CodeRecord* library, const char* name, uint64_t* kernel) {
  if (Call here; home_has_failed(here, *library)) return library_kernel_on_device(here, library, name, kernel);
  std::lock_guard lock(library->mutex);
  if (const auto known = library->functions.find(std::string_view(name)); known != library->functions.end()) {
    *kernel = known->second;
    return CUDA_SUCCESS;
  }
  Call call;
  vgpu_function_info info{};
  std::vector<std::byte> parameters;
  const CUresult result = wire::library_kernel(call, library->handle, name, kernel, &info, &parameters);
  if (result != CUDA_SUCCESS) return result;
  if (!add_function(*kernel, library->handle, 0, 0, name, info, parameters)) return CUDA_ERROR_UNKNOWN;
  library->functions.emplace(name, *kernel);
  return CUDA_SUCCESS;
}

CUresult library_kernel_names(CodeRecord* library, std::vector<std::string>* names) {
  Call call;
  return list_names(
      [&](uint32_t first, uint32_t* count, std::vector<std::byte>* bytes) {
        return wire::library_kernels(call, library->handle, first, count, bytes);
      },
      names);
}

CUresult library_variable(CodeRecord* library, const char* name, CUdeviceptr* address, size_t* bytes) {
  if (const auto found = library->managed.find(std::string_view(name)); found != library->managed.end()) {
    if (address) *address = found->second.address;
    if (bytes) *bytes = found->second.bytes;
    return CUDA_SUCCESS;
  }
  Call call;
  uint64_t base = 0, size = 0, there = 0;
  CUresult result = library_on_device(call, library, &there);
  if (result == CUDA_SUCCESS) result = wire::library_global(call, there, name, &base, &size);
  if (result != CUDA_SUCCESS) return result;
  add_global(base, size, library->handle, call.context());
  if (address) *address = base;
  if (bytes) *bytes = size;
  return CUDA_SUCCESS;
}

namespace {

CUresult load(CUlibrary* library, const void* code, unsigned jit_count, CUjit_option* jit_options, void** jit_values,
              CUlibraryOption* options, void** values, unsigned count) {
  const CUresult state = health();
  if (state != CUDA_SUCCESS) return state;
  if (!library || (count && !options)) return CUDA_ERROR_INVALID_VALUE;
  for (unsigned i = 0; i < count; ++i) {
    // The image is always copied, so BINARY_IS_PRESERVED needs nothing. The other option offers host functions.
    if (options[i] != CU_LIBRARY_BINARY_IS_PRESERVED &&
        options[i] != CU_LIBRARY_HOST_UNIVERSAL_FUNCTION_AND_DATA_TABLE) {
      return CUDA_ERROR_INVALID_VALUE;
    }
  }
  Image image;
  CUresult result = find_image(code, &image);
  if (result != CUDA_SUCCESS) return result;
  JitOptions jit;
  result = jit.read(jit_count, jit_options, jit_values);
  if (result != CUDA_SUCCESS) return result;
  CodeRecord* record = nullptr;
  result = load_library(image, &jit, 0, &record);
  if (result == CUDA_SUCCESS) *library = from_wire<CUlibrary>(record->handle);
  return result;
}

}  // namespace
}  // namespace bandsaw::libcuda

using namespace bandsaw::libcuda;  // NOLINT: entry points below
namespace wire = bandsaw::wire;

extern "C" {

CUresult cuLibraryLoadData(CUlibrary* library, const void* code, CUjit_option* jit_options, void** jit_values,
                           unsigned jit_count, CUlibraryOption* options, void** values, unsigned count) {
  const CUresult result = load(library, code, jit_count, jit_options, jit_values, options, values, count);
  return explain(result, code, __builtin_return_address(0));
}

CUresult cuLibraryLoadFromFile(CUlibrary* library, const char* path, CUjit_option* jit_options, void** jit_values,
                               unsigned jit_count, CUlibraryOption* options, void** values, unsigned count) {
  const CUresult state = health();
  if (state != CUDA_SUCCESS) return state;
  if (!library || !path) return CUDA_ERROR_INVALID_VALUE;
  std::vector<char> bytes;
  const CUresult result = read_file(path, &bytes);
  if (result != CUDA_SUCCESS) return result;
  return load(library, bytes.data(), jit_count, jit_options, jit_values, options, values, count);
}

CUresult cuLibraryUnload(CUlibrary library) {
  Call call;
  if (call.failed()) return call.status();
  CodeRecord* const record = find_library(to_wire(library));
  return record ? unload_library(record) : CUDA_ERROR_INVALID_HANDLE;
}

CUresult cuLibraryGetKernel(CUkernel* kernel, CUlibrary library, const char* name) {
  const CUresult state = health();
  if (state != CUDA_SUCCESS) return state;
  if (!kernel || !name) return CUDA_ERROR_INVALID_VALUE;
  CodeRecord* const record = find_library(to_wire(library));
  if (!record) return CUDA_ERROR_INVALID_HANDLE;
  uint64_t handle = 0;
  const CUresult result = library_kernel(record, name, &handle);
  if (result == CUDA_SUCCESS) *kernel = from_wire<CUkernel>(handle);
  return result;
}

CUresult cuLibraryGetKernelCount(unsigned* count, CUlibrary library) {
  const CUresult state = health();
  if (state != CUDA_SUCCESS) return state;
  if (!count) return CUDA_ERROR_INVALID_VALUE;
  CodeRecord* const record = find_library(to_wire(library));
  if (!record) return CUDA_ERROR_INVALID_HANDLE;
  std::vector<std::string> names;
  const CUresult result = library_kernel_names(record, &names);
  if (result == CUDA_SUCCESS) *count = static_cast<unsigned>(names.size());
  return result;
}

CUresult cuLibraryEnumerateKernels(CUkernel* kernels, unsigned count, CUlibrary library) {
  const CUresult state = health();
  if (state != CUDA_SUCCESS) return state;
  if (!kernels || !count) return CUDA_ERROR_INVALID_VALUE;
  CodeRecord* const record = find_library(to_wire(library));
  if (!record) return CUDA_ERROR_INVALID_HANDLE;
  std::vector<std::string> names;
  CUresult result = library_kernel_names(record, &names);
  for (unsigned i = 0; i < count && i < names.size() && result == CUDA_SUCCESS; ++i) {
    uint64_t handle = 0;
    result = library_kernel(record, names[i].c_str(), &handle);
    kernels[i] = from_wire<CUkernel>(handle);
  }
  return result;
}

// The library's handle is its module in every context: see module.cc.
CUresult cuLibraryGetModule(CUmodule* module, CUlibrary library) {
  Call call;
  if (!call.require_context()) return call.status();
  if (!module) return CUDA_ERROR_INVALID_VALUE;
  if (!find_library(to_wire(library))) return CUDA_ERROR_INVALID_HANDLE;
  *module = from_wire<CUmodule>(to_wire(library));
  return CUDA_SUCCESS;
}

CUresult cuLibraryGetGlobal(CUdeviceptr* address, size_t* bytes, CUlibrary library, const char* name) {
  Call call;
  if (!call.require_context()) return call.status();
  if (!name || (!address && !bytes)) return CUDA_ERROR_INVALID_VALUE;
  CodeRecord* const record = find_library(to_wire(library));
  return record ? library_variable(record, name, address, bytes) : CUDA_ERROR_INVALID_HANDLE;
}

CUresult cuLibraryGetManaged(CUdeviceptr* address, size_t* bytes, CUlibrary library, const char* name) {
  const CUresult state = health();
  if (state != CUDA_SUCCESS) return state;
  if (!name || (!address && !bytes)) return CUDA_ERROR_INVALID_VALUE;
  CodeRecord* const record = find_library(to_wire(library));
  if (!record) return CUDA_ERROR_INVALID_HANDLE;
  if (!record->managed.contains(std::string_view(name))) return CUDA_ERROR_NOT_FOUND;
  return library_variable(record, name, address, bytes);
}

// Unified functions are host and device code at one address, which only coherent systems have.
CUresult cuLibraryGetUnifiedFunction(void** function, CUlibrary library, const char* name) {
  const CUresult state = health();
  if (state != CUDA_SUCCESS) return state;
  if (!function || !name) return CUDA_ERROR_INVALID_VALUE;
  return find_library(to_wire(library)) ? CUDA_ERROR_INVALID_VALUE : CUDA_ERROR_INVALID_HANDLE;
}

}  // extern "C"
