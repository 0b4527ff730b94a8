// cuCoredump*: what a core dump would be like is kept and given back; that one is written is refused, as the registers
// of a kernel that faulted do not leave the host.
#include <unistd.h>

#include <cstring>
#include <map>
#include <mutex>
#include <string>

#include "guest-driver/libcuda/core/call.h"
#include "guest-driver/libcuda/core/context.h"
#include "guest-driver/libcuda/core/log.h"
#include "guest-driver/libcuda/core/process.h"

namespace bandsaw::libcuda {
namespace {

constexpr size_t kNameMost = 1023;

std::string dump_name(const char* kind) {
  char host[256] = {};
  static_cast<void>(gethostname(host, sizeof(host) - 1));  // stays empty if there is none
  return std::string(kind) + ".cuda." + host + "." + std::to_string(getpid());
}

struct CoredumpSettings {
  bool host_as_well = true, lightweight = false;
  std::string file = dump_name("core"), pipe = dump_name("corepipe");
  int generation_flags = CU_COREDUMP_DEFAULT_FLAGS;
};

struct Coredumps {
  std::mutex mutex;
  CoredumpSettings global;
  std::map<uint64_t, CoredumpSettings> of;  // by cuCtxGetId, of contexts with settings of their own
};

Coredumps& coredumps() {
  static Coredumps& all = *new Coredumps;
  return all;
}

// How large a value is, at most for texts; 0: there is no such attribute.
size_t value_bytes(CUcoredumpSettings attribute) {
  switch (attribute) {
    case CU_COREDUMP_ENABLE_ON_EXCEPTION:
    case CU_COREDUMP_TRIGGER_HOST:
    case CU_COREDUMP_LIGHTWEIGHT:
    case CU_COREDUMP_ENABLE_USER_TRIGGER:
      return sizeof(bool);
    case CU_COREDUMP_FILE:
    case CU_COREDUMP_PIPE:
      return kNameMost + 1;
    case CU_COREDUMP_GENERATION_FLAGS:
      return sizeof(int);
    default:
      return 0;
  }
}

bool is_text(CUcoredumpSettings attribute) { return attribute == CU_COREDUMP_FILE || attribute == CU_COREDUMP_PIPE; }

CUresult read_setting(const CoredumpSettings& settings, CUcoredumpSettings attribute, void* value, size_t* size) {
  const size_t bytes = value_bytes(attribute);
  if (!size || !bytes) return CUDA_ERROR_INVALID_VALUE;
  if (is_text(attribute)) {
    const std::string& text = attribute == CU_COREDUMP_FILE ? settings.file : settings.pipe;
    if (value && *size < text.size() + 1) return CUDA_ERROR_INVALID_VALUE;
    if (value) std::memcpy(value, text.c_str(), text.size() + 1);
    *size = text.size() + 1;
    return CUDA_SUCCESS;
  }
  if (value && *size < bytes) return CUDA_ERROR_INVALID_VALUE;
  const bool flag = attribute == CU_COREDUMP_TRIGGER_HOST  ? settings.host_as_well
                    : attribute == CU_COREDUMP_LIGHTWEIGHT ? settings.lightweight
                                                           : false;
  const void* const from = attribute == CU_COREDUMP_GENERATION_FLAGS
                               ? static_cast<const void*>(&settings.generation_flags)
                               : static_cast<const void*>(&flag);
  if (value) std::memcpy(value, from, bytes);
  *size = bytes;
  return CUDA_SUCCESS;
}

CUresult write_setting(CoredumpSettings* settings, CUcoredumpSettings attribute, const void* value, size_t size) {
  bool flag = false;
  if (value_bytes(attribute) == sizeof(flag)) std::memcpy(&flag, value, sizeof(flag));
  switch (attribute) {
    case CU_COREDUMP_ENABLE_ON_EXCEPTION:
    case CU_COREDUMP_ENABLE_USER_TRIGGER:
      if (flag) log_unsupported("writing core dumps of kernels");
      return flag ? CUDA_ERROR_NOT_SUPPORTED : CUDA_SUCCESS;
    case CU_COREDUMP_TRIGGER_HOST:
      settings->host_as_well = flag;
      return CUDA_SUCCESS;
    case CU_COREDUMP_LIGHTWEIGHT:
      settings->lightweight = flag;
      return CUDA_SUCCESS;
    case CU_COREDUMP_GENERATION_FLAGS:
      std::memcpy(&settings->generation_flags, value, sizeof(settings->generation_flags));
      return CUDA_SUCCESS;
    default: {
      const auto* const text = static_cast<const char*>(value);
      std::string& name = attribute == CU_COREDUMP_FILE ? settings->file : settings->pipe;
      name.assign(text, strnlen(text, size));
      return CUDA_SUCCESS;
    }
  }
}

CUresult set_setting(CoredumpSettings* settings, CUcoredumpSettings attribute, void* value, size_t* size) {
  const size_t bytes = value_bytes(attribute);
  if (!size || !bytes) return CUDA_ERROR_INVALID_VALUE;
  if (!value) {
    *size = bytes;
    return CUDA_SUCCESS;
  }
  if (is_text(attribute) ? *size == 0 || *size > bytes : *size != bytes) return CUDA_ERROR_INVALID_VALUE;
  return write_setting(settings, attribute, value, *size);
}

// The current context's, with the mutex held; those of all contexts where it has none.
CUresult with_context(CUresult (*work)(CoredumpSettings*, CUcoredumpSettings, void*, size_t*),
                      CUcoredumpSettings attribute, void* value, size_t* size, bool own) {
  Call call;
  if (!call.require_context()) return call.status();
  Coredumps& all = coredumps();
  std::lock_guard lock(all.mutex);
  const uint64_t id = current_context()->id;
  if (own) all.of.try_emplace(id, all.global);
  const auto found = all.of.find(id);
  return work(found == all.of.end() ? &all.global : &found->second, attribute, value, size);
}

}  // namespace
}  // namespace bandsaw::libcuda

using namespace bandsaw::libcuda;  // NOLINT: entry points below

extern "C" {

CUresult cuCoredumpGetAttribute(CUcoredumpSettings attribute, void* value, size_t* size) {
  const auto read = [](CoredumpSettings* settings, CUcoredumpSettings which, void* to, size_t* bytes) {
    return read_setting(*settings, which, to, bytes);
  };
  return with_context(read, attribute, value, size, false);
}

CUresult cuCoredumpSetAttribute(CUcoredumpSettings attribute, void* value, size_t* size) {
  // These two are for the whole process.
  if (attribute == CU_COREDUMP_ENABLE_USER_TRIGGER || attribute == CU_COREDUMP_PIPE) return CUDA_ERROR_NOT_PERMITTED;
  return with_context(set_setting, attribute, value, size, true);
}

CUresult cuCoredumpGetAttributeGlobal(CUcoredumpSettings attribute, void* value, size_t* size) {
  if (state() == State::kUninitialised) return CUDA_ERROR_NOT_INITIALIZED;
  std::lock_guard lock(coredumps().mutex);
  return read_setting(coredumps().global, attribute, value, size);
}

CUresult cuCoredumpSetAttributeGlobal(CUcoredumpSettings attribute, void* value, size_t* size) {
  if (state() == State::kUninitialised) return CUDA_ERROR_NOT_INITIALIZED;
  std::lock_guard lock(coredumps().mutex);
  return set_setting(&coredumps().global, attribute, value, size);
}

}  // extern "C"
