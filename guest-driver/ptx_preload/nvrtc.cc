// NVRTC: what a program wants compiled to machine code (-arch=sm_90) is compiled to PTX for the same architecture
// (compute_90), and handed over where the program asks for the machine code: CUDA loads either.
#include <mutex>
#include <set>
#include <string>
#include <vector>

#include "guest-driver/ptx_preload/hooks.h"

struct NvrtcProgram;

// For programs that are linked with NVRTC; others find these through dlsym().
extern "C" {
#define EXPORTED __attribute__((visibility("default")))
EXPORTED int nvrtcCompileProgram(NvrtcProgram* program, int count, const char* const* options);
EXPORTED int nvrtcGetCUBINSize(NvrtcProgram* program, size_t* bytes);
EXPORTED int nvrtcGetCUBIN(NvrtcProgram* program, char* code);
EXPORTED int nvrtcDestroyProgram(NvrtcProgram** program);
}

namespace bandsaw::ptx_preload {
namespace {

constexpr int kNoLibrary = 7;  // NVRTC_ERROR_BUILTIN_OPERATION_FAILURE

struct Compiled {
  std::mutex mutex;
  std::set<NvrtcProgram*> to_ptx;  // asked for machine code, and compiled to PTX
};

// Leaked: programs call in while they end.
Compiled& compiled() {
  static auto* const created = new Compiled;
  return *created;
}

bool is_ptx(NvrtcProgram* program) {
  std::lock_guard lock(compiled().mutex);
  return compiled().to_ptx.contains(program);
}

void note(NvrtcProgram* program, bool to_ptx) {
  std::lock_guard lock(compiled().mutex);
  if (to_ptx) {
    compiled().to_ptx.insert(program);
  } else {
    compiled().to_ptx.erase(program);
  }
}

Hook hooks[] = {
    {"libnvrtc.so", "nvrtcCompileProgram", reinterpret_cast<void*>(nvrtcCompileProgram)},
    {"libnvrtc.so", "nvrtcGetCUBINSize", reinterpret_cast<void*>(nvrtcGetCUBINSize)},
    {"libnvrtc.so", "nvrtcGetCUBIN", reinterpret_cast<void*>(nvrtcGetCUBIN)},
    {"libnvrtc.so", "nvrtcDestroyProgram", reinterpret_cast<void*>(nvrtcDestroyProgram)},
};

// NVRTC's own function; nullptr if no NVRTC is loaded.
template <typename Function>
Function* real(Function* ours) {
  for (Hook& hook : hooks) {
    if (hook.ours == reinterpret_cast<void*>(ours)) return hook.as<Function>();
  }
  return nullptr;
}

// Whether an option names the architecture; `value` is what it says, empty if that is the next option.
bool names_architecture(std::string_view option, std::string_view* value) {
  for (const std::string_view name : {"--gpu-architecture", "-arch"}) {
    if (!option.starts_with(name)) continue;
    if (option.size() == name.size()) return *value = {}, true;
    if (option[name.size()] == '=') return *value = option.substr(name.size() + 1), true;
  }
  return false;
}

// The options, with sm_X replaced. False if the program did not ask for machine code.
bool for_ptx(int count, const char* const* options, std::vector<std::string>* changed) {
  bool replaced = false, value_follows = false;
  for (int i = 0; i < count; i++) {
    const std::string_view option = options[i];
    if (option == "-dlto" || option == "--dlink-time-opt" || option.starts_with("--optix-ir")) return false;
    std::string_view value;
    const bool named = names_architecture(option, &value);
    if (value_follows) value = option;
    const bool is_value = value_follows || (named && !value.empty());
    value_follows = named && value.empty();
    if (is_value && value.starts_with("sm_")) {
      const std::string_view before = option.substr(0, option.size() - value.size());
      changed->push_back(std::string(before) + "compute_" + std::string(value.substr(3)));
      replaced = true;
    } else {
      changed->emplace_back(option);
    }
  }
  return replaced;
}

}  // namespace

std::span<Hook> nvrtc_hooks() { return hooks; }

}  // namespace bandsaw::ptx_preload

using namespace bandsaw::ptx_preload;

int nvrtcCompileProgram(NvrtcProgram* program, int count, const char* const* options) {
  auto* const compile = real(nvrtcCompileProgram);
  if (!compile) return kNoLibrary;
  std::vector<std::string> changed;
  const bool to_ptx = options && for_ptx(count, options, &changed);
  note(program, to_ptx);
  if (!to_ptx) return compile(program, count, options);
  std::vector<const char*> texts;
  for (const std::string& option : changed) texts.push_back(option.c_str());
  return compile(program, count, texts.data());
}

int nvrtcGetCUBINSize(NvrtcProgram* program, size_t* bytes) {
  auto* get = real(nvrtcGetCUBINSize);
  if (get && is_ptx(program)) get = beside(get, "nvrtcGetPTXSize");
  return get ? get(program, bytes) : kNoLibrary;
}

int nvrtcGetCUBIN(NvrtcProgram* program, char* code) {
  auto* get = real(nvrtcGetCUBIN);
  if (get && is_ptx(program)) get = beside(get, "nvrtcGetPTX");
  return get ? get(program, code) : kNoLibrary;
}

int nvrtcDestroyProgram(NvrtcProgram** program) {
  auto* const destroy = real(nvrtcDestroyProgram);
  if (program) note(*program, false);
  return destroy ? destroy(program) : kNoLibrary;
}
