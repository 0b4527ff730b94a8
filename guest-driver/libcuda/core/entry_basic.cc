// What needs neither device nor context: initialisation, versions, errors, symbol look-up.
#include <cuda.h>
#include <cudaProfiler.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>

#include "guest-driver/libcuda/core/error_text.h"
#include "guest-driver/libcuda/core/log.h"
#include "guest-driver/libcuda/core/proc_table.h"
#include "guest-driver/libcuda/core/process.h"
#include "guest-driver/libcuda/core/thread.h"

using namespace bandsaw::libcuda;

namespace bandsaw::libcuda {

const ErrorText* find_error(int value) {
  const ErrorText* const end = kErrorTexts + kErrorTextCount;
  const ErrorText* const found = std::lower_bound(
      kErrorTexts, end, value, [](const ErrorText& entry, int wanted) { return entry.value < wanted; });
  return found != end && found->value == value ? found : nullptr;
}

namespace {

// "13.5".
int read_driver_version() {
  const char* const text = std::getenv("BANDSAW_DRIVER_VERSION");
  if (!text) return kDriverVersion;
  int major = 0, minor = 0, length = 0;
  if (std::sscanf(text, "%2d.%1d%n", &major, &minor, &length) == 2 && !text[length] && major * 1000 >= kDriverVersion &&
      minor >= 0)
    return major * 1000 + minor * 10;
  notice("BANDSAW_DRIVER_VERSION is \"%s\": it is a version of CUDA from %d.%d on, as in 13.5; it is left out", text,
         kDriverVersion / 1000, kDriverVersion % 1000 / 10);
  return kDriverVersion;
}

}  // namespace

int driver_version() {
  static const int version = read_driver_version();
  return version;
}

const ProcEntry* find_proc(const char* name, int version, bool per_thread, CUdriverProcAddressQueryResult* status) {
  *status = CU_GET_PROC_ADDRESS_SYMBOL_NOT_FOUND;
  const ProcEntry* const end = kProcEntries + kProcEntryCount;
  const ProcEntry* entry = std::lower_bound(
      kProcEntries, end, name, [](const ProcEntry& e, const char* wanted) { return std::strcmp(e.name, wanted) < 0; });
  const ProcEntry *plain = nullptr, *own = nullptr;
  bool known = false;
  for (; entry != end && std::strcmp(entry->name, name) == 0; entry++) {
    known = true;
    if (entry->since <= version) (entry->per_thread ? own : plain) = entry;
  }
  if (known) *status = CU_GET_PROC_ADDRESS_VERSION_NOT_SUFFICIENT;
  const ProcEntry* const found = per_thread && own ? own : plain;
  if (!found) return nullptr;
  *status = found->is_found ? CU_GET_PROC_ADDRESS_SUCCESS : CU_GET_PROC_ADDRESS_SYMBOL_NOT_FOUND;
  return found->is_found ? found : nullptr;
}

}  // namespace bandsaw::libcuda

extern "C" {

CUresult CUDAAPI cuInit(unsigned int Flags) { return Flags ? CUDA_ERROR_INVALID_VALUE : initialise(); }

CUresult CUDAAPI cuDriverGetVersion(int* driverVersion) {
  if (!driverVersion) return CUDA_ERROR_INVALID_VALUE;
  *driverVersion = driver_version();
  return CUDA_SUCCESS;
}

CUresult CUDAAPI cuGetErrorName(CUresult error, const char** pStr) {
  if (!pStr) return CUDA_ERROR_INVALID_VALUE;
  const ErrorText* const found = find_error(error);
  *pStr = found ? found->name : nullptr;
  return found ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

CUresult CUDAAPI cuGetErrorString(CUresult error, const char** pStr) {
  if (!pStr) return CUDA_ERROR_INVALID_VALUE;
  const ErrorText* const found = find_error(error);
  *pStr = found ? found->text : nullptr;
  return found ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

// A function that is not there is no error, but a null pointer and a status: the runtime would keep an error as the
// program's last one. A version beyond this driver's is one for NVIDIA's; here it gives what there is.
CUresult CUDAAPI cuGetProcAddress_v2(const char* symbol, void** pfn, int cudaVersion, cuuint64_t flags,
                                     CUdriverProcAddressQueryResult* symbolStatus) {
  CUdriverProcAddressQueryResult status = CU_GET_PROC_ADDRESS_SYMBOL_NOT_FOUND;
  if (!symbol || !pfn || flags > CU_GET_PROC_ADDRESS_PER_THREAD_DEFAULT_STREAM) return CUDA_ERROR_INVALID_VALUE;
  const bool per_thread = flags == CU_GET_PROC_ADDRESS_PER_THREAD_DEFAULT_STREAM;
  const ProcEntry* const found = find_proc(symbol, cudaVersion, per_thread, &status);
  *pfn = found ? found->address : nullptr;
  if (symbolStatus) *symbolStatus = status;
  if (!found) log(Level::kDebug, "cuGetProcAddress: no %s of version %d", symbol, cudaVersion);
  return CUDA_SUCCESS;
}

// The form of CUDA 11 has no status to tell it by.
CUresult CUDAAPI cuGetProcAddress(const char* symbol, void** pfn, int cudaVersion, cuuint64_t flags) {
  void* found = nullptr;
  const CUresult result = cuGetProcAddress_v2(symbol, pfn ? &found : nullptr, cudaVersion, flags, nullptr);
  if (result != CUDA_SUCCESS) return result;
  if (!found) return CUDA_ERROR_NOT_FOUND;
  *pfn = found;
  return CUDA_SUCCESS;
}

CUresult CUDAAPI cuModuleGetLoadingMode(CUmoduleLoadingMode* mode) {
  if (!mode) return CUDA_ERROR_INVALID_VALUE;
  const char* wanted = std::getenv("CUDA_MODULE_LOADING");
  *mode = wanted && std::strcmp(wanted, "EAGER") == 0 ? CU_MODULE_EAGER_LOADING : CU_MODULE_LAZY_LOADING;
  return CUDA_SUCCESS;
}

// They control an attached profiler, and none can be attached here.
CUresult CUDAAPI cuProfilerStart(void) { return health(); }
CUresult CUDAAPI cuProfilerStop(void) { return health(); }

CUresult CUDAAPI cuThreadExchangeStreamCaptureMode(CUstreamCaptureMode* mode) {
  if (state() == State::kUninitialised) return CUDA_ERROR_NOT_INITIALIZED;
  if (!mode) return CUDA_ERROR_INVALID_VALUE;
  std::swap(*mode, this_thread().capture_mode);  // any number, as NVIDIA's driver
  return CUDA_SUCCESS;
}

}  // extern "C"
