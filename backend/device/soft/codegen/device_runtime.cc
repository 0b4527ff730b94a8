#include "backend/device/soft/codegen/device_runtime.h"

#include <algorithm>
#include <array>
#include <iterator>
#include <set>
#include <string_view>
#include <variant>

#include "vgpu-sched/ptx/outline.h"
#include "vgpu-sched/ptx/parser.h"

namespace bandsaw::soft {
namespace {

// One that is PTX alone.
struct RuntimeFunction {
  std::string_view name;
  std::string_view text;  // behind the name: parameters and body
};

// Cooperative groups. A handle is the address of the launch's workspace, as %envreg1 and %envreg2 have it; the word
// behind its first is the grid's barrier, which cooperative_groups.h uses too.
constexpr std::string_view kHandle = R"( (.param .b32 scope)
{
  .reg .pred %is_grid; .reg .b32 %scope, %low, %high; .reg .b64 %handle;
  ld.param.b32 %scope, [scope];
  mov.u32 %high, %envreg1;
  mov.u32 %low, %envreg2;
  mov.b64 %handle, {%low, %high};
  setp.eq.u32 %is_grid, %scope, 1;
  selp.b64 %handle, %handle, 0, %is_grid;
  st.param.b64 [result], %handle;
  ret;
}
)";

// The highest bit of the word turns over when the last block has come: block 0 adds what the others' ones lack to it.
constexpr std::string_view kSynchronize = R"( (.param .b64 handle, .param .b32 flags)
{
  .reg .pred %bad, %others, %first, %waiting; .reg .b32 %a<6>; .reg .b32 %error, %old, %now; .reg .b64 %handle, %own;
  ld.param.b64 %handle, [handle];
  mov.u32 %a0, %envreg1;
  mov.u32 %a1, %envreg2;
  mov.b64 %own, {%a1, %a0};
  mov.u32 %error, 1;
  setp.eq.u64 %bad, %own, 0;
  @%bad bra Done;
  setp.ne.u64 %bad, %own, %handle;
  @%bad bra Done;
  barrier.sync 0;
  mov.u32 %a0, %tid.x;
  mov.u32 %a1, %tid.y;
  mov.u32 %a2, %tid.z;
  or.b32 %a0, %a0, %a1;
  or.b32 %a0, %a0, %a2;
  setp.ne.u32 %others, %a0, 0;
  @%others bra Meet;
  mov.u32 %a0, %nctaid.x;
  mov.u32 %a1, %nctaid.y;
  mov.u32 %a2, %nctaid.z;
  mul.lo.u32 %a0, %a0, %a1;
  mul.lo.u32 %a0, %a0, %a2;
  sub.u32 %a0, 0x80000001, %a0;
  mov.u32 %a1, %ctaid.x;
  mov.u32 %a2, %ctaid.y;
  mov.u32 %a3, %ctaid.z;
  or.b32 %a1, %a1, %a2;
  or.b32 %a1, %a1, %a3;
  setp.eq.u32 %first, %a1, 0;
  selp.b32 %a0, %a0, 1, %first;
  atom.add.release.gpu.u32 %old, [%own+4], %a0;
Wait:
  ld.acquire.gpu.u32 %now, [%own+4];
  xor.b32 %now, %now, %old;
  setp.ge.s32 %waiting, %now, 0;
  @%waiting bra Wait;
Meet:
  barrier.sync 0;
  mov.u32 %error, 0;
Done:
  st.param.b32 [result], %error;
  ret;
}
)";

constexpr std::string_view kSize = R"( (.param .b64 threads, .param .b64 grids, .param .b64 handle)
{
  .reg .pred %absent; .reg .b32 %a, %b; .reg .b64 %to;
  mov.u32 %a, %nctaid.x;
  mov.u32 %b, %nctaid.y;
  mul.lo.u32 %a, %a, %b;
  mov.u32 %b, %nctaid.z;
  mul.lo.u32 %a, %a, %b;
  mov.u32 %b, %ntid.x;
  mul.lo.u32 %a, %a, %b;
  mov.u32 %b, %ntid.y;
  mul.lo.u32 %a, %a, %b;
  mov.u32 %b, %ntid.z;
  mul.lo.u32 %a, %a, %b;
  ld.param.b64 %to, [threads];
  setp.eq.u64 %absent, %to, 0;
  @!%absent st.u32 [%to], %a;
  ld.param.b64 %to, [grids];
  setp.eq.u64 %absent, %to, 0;
  @!%absent st.u32 [%to], 1;
  st.param.b32 [result], 0;
  ret;
}
)";

constexpr std::string_view kRank = R"( (.param .b64 thread, .param .b64 grid, .param .b64 handle)
{
  .reg .pred %absent; .reg .b32 %a, %b, %c; .reg .b64 %to;
  mov.u32 %a, %ctaid.z;
  mov.u32 %b, %nctaid.y;
  mov.u32 %c, %ctaid.y;
  mad.lo.u32 %a, %a, %b, %c;
  mov.u32 %b, %nctaid.x;
  mov.u32 %c, %ctaid.x;
  mad.lo.u32 %a, %a, %b, %c;
  mov.u32 %b, %ntid.z;
  mov.u32 %c, %tid.z;
  mad.lo.u32 %a, %a, %b, %c;
  mov.u32 %b, %ntid.y;
  mov.u32 %c, %tid.y;
  mad.lo.u32 %a, %a, %b, %c;
  mov.u32 %b, %ntid.x;
  mov.u32 %c, %tid.x;
  mad.lo.u32 %a, %a, %b, %c;
  ld.param.b64 %to, [thread];
  setp.eq.u64 %absent, %to, 0;
  @!%absent st.u32 [%to], %a;
  ld.param.b64 %to, [grid];
  setp.eq.u64 %absent, %to, 0;
  @!%absent st.u32 [%to], 0;
  st.param.b32 [result], 0;
  ret;
}
)";

constexpr std::array kFunctions = {
    RuntimeFunction{"(.param .b64 result) cudaCGGetIntrinsicHandle", kHandle},
    RuntimeFunction{"(.param .b32 result) cudaCGSynchronize", kSynchronize},
    RuntimeFunction{"(.param .b32 result) cudaCGSynchronizeGrid", kSynchronize},
    RuntimeFunction{"(.param .b32 result) cudaCGGetSize", kSize},
    RuntimeFunction{"(.param .b32 result) cudaCGGetRank", kRank},
};

constexpr std::array kDeviceFunctions = {
    DeviceFunction{"GetParameterBuffer", "ll", 'l', DeviceCall::kOldParameterBuffer},
    DeviceFunction{"GetParameterBufferV2", "lddi", 'l', DeviceCall::kParameterBuffer},
    DeviceFunction{"LaunchDevice", "llddil", 'i', DeviceCall::kOldLaunch},
    DeviceFunction{"LaunchDeviceV2", "ll", 'i', DeviceCall::kLaunch},
    DeviceFunction{"StreamCreateWithFlags", "li", 'i', DeviceCall::kStreamCreate},
    DeviceFunction{"StreamDestroy", "l", 'i', DeviceCall::kStreamDestroy},
    DeviceFunction{"StreamWaitEvent", "lli", 'i', DeviceCall::kStreamWait},
    DeviceFunction{"EventCreateWithFlags", "li", 'i', DeviceCall::kEventCreate},
    DeviceFunction{"EventRecord", "ll", 'i', DeviceCall::kEventRecord},
    DeviceFunction{"EventRecordWithFlags", "lli", 'i', DeviceCall::kEventRecord},
    DeviceFunction{"EventDestroy", "l", 'i', DeviceCall::kEventDestroy},
    DeviceFunction{"GetLastError", "", 'i', DeviceCall::kLastError},
    DeviceFunction{"PeekAtLastError", "", 'i', DeviceCall::kPeekError},
    DeviceFunction{"MemcpyAsync", "lllil", 'i', DeviceCall::kCopy},
    DeviceFunction{"Memcpy2DAsync", "llllllil", 'i', DeviceCall::kCopyRows},
    DeviceFunction{"MemsetAsync", "lill", 'i', DeviceCall::kFill},
    DeviceFunction{"Memset2DAsync", "llilll", 'i', DeviceCall::kFillRows},
    DeviceFunction{"Memset3DAsync", "piel", 'i', DeviceCall::kFillPlanes},
    DeviceFunction{"Malloc", "ll", 'i', DeviceCall::kMalloc},
    DeviceFunction{"Free", "l", 'i', DeviceCall::kFree},
    DeviceFunction{"DeviceGetAttribute", "lii", 'i', DeviceCall::kAttribute},
    DeviceFunction{"DeviceGetLimit", "li", 'i', DeviceCall::kLimit},
    DeviceFunction{"GetDevice", "l", 'i', DeviceCall::kDevice},
    DeviceFunction{"GetDeviceCount", "l", 'i', DeviceCall::kDeviceCount},
    DeviceFunction{"RuntimeGetVersion", "l", 'i', DeviceCall::kVersion},
    DeviceFunction{"FuncGetAttributes", "ll", 'i', DeviceCall::kFunctionAttributes},
    DeviceFunction{"OccupancyMaxActiveBlocksPerMultiprocessor", "llil", 'i', DeviceCall::kOccupancy},
    DeviceFunction{"OccupancyMaxActiveBlocksPerMultiprocessorWithFlags", "llili", 'i', DeviceCall::kOccupancyFlags},
    DeviceFunction{"GraphSetConditional", "li", 'v', DeviceCall::kSetConditional},
};

// What kernels may get from the functions above, as cudaGetErrorName and cudaGetErrorString have it.
struct ErrorText {
  uint32_t code;
  std::string_view name, text;
};
constexpr ErrorText kErrors[] = {
    {~0u, "cudaErrorUnknown", "unrecognized error code"},  // all that are not below
    {0, "cudaSuccess", "no error"},
    {1, "cudaErrorInvalidValue", "invalid argument"},
    {2, "cudaErrorMemoryAllocation", "out of memory"},
    {9, "cudaErrorInvalidConfiguration", "invalid configuration argument"},
    {65, "cudaErrorLaunchMaxDepthExceeded", "launch would exceed maximum depth of nested launches"},
    {69, "cudaErrorLaunchPendingCountExceeded", "limit on number of pending launches exceeded"},
    {98, "cudaErrorInvalidDeviceFunction", "invalid device function"},
    {101, "cudaErrorInvalidDevice", "invalid device ordinal"},
    {218, "cudaErrorInvalidPtx", "a PTX JIT compilation failed"},
    {400, "cudaErrorInvalidResourceHandle", "invalid resource handle"},
    {701, "cudaErrorLaunchOutOfResources", "too many resources requested for launch"},
    {719, "cudaErrorLaunchFailure", "unspecified launch failure"},
    {801, "cudaErrorNotSupported", "operation not supported"},
};

// What may stand in a program's text if it needs any of these.
constexpr std::string_view kMarks[] = {"cudaCG", "__cudaCDP2", "cudaLaunchDevice", "cudaGetParameterBuffer",
                                       "cudaGraphSetConditional"};

struct Parameter {
  uint32_t words;
  bool wide;  // words of 64 bits
};

Parameter parameter(char letter) {
  switch (letter) {
    case 'i':
      return {1, false};
    case 'd':
      return {3, false};
    case 'e':
      return {3, true};
    case 'p':
      return {4, true};
    default:
      return {1, true};
  }
}

std::string_view name_of(const RuntimeFunction& function) { return function.name.substr(function.name.rfind(' ') + 1); }

// The function that a program calls by this name, if the device answers it. Streams of a thread's own are the block's
// here, which keeps more order than they ask for.
const DeviceFunction* answered(std::string_view name) {
  for (const std::string_view prefix : {"__cudaCDP2", "cuda"}) {
    if (!name.starts_with(prefix)) continue;
    name.remove_prefix(prefix.size());
    if (name.ends_with("_ptsz")) name.remove_suffix(5);
    for (const DeviceFunction& function : kDeviceFunctions)
      if (function.name == name) return &function;
    return nullptr;
  }
  return nullptr;
}

std::string bits(bool wide) { return wide ? ".b64" : ".b32"; }

std::string returned(const DeviceFunction& function, const char* name) {
  return function.result == 'v' ? "" : "(.param " + bits(function.result == 'l') + " " + name + ") ";
}

// `name` takes its parameters apart into words and hands them on.
std::string forwarder(const std::string& name, const DeviceFunction& function) {
  std::string parameters, body, arguments, given, declared;
  uint32_t word = 0;
  for (size_t p = 0; p < function.parameters.size(); ++p) {
    const Parameter one = parameter(function.parameters[p]);
    const std::string number = std::to_string(p), type = bits(one.wide);
    const uint32_t size = one.wide ? 8 : 4;
    if (p) parameters += ", ";
    parameters += one.words == 1 ? ".param " + type + " p" + number
                                 : ".param .align " + std::to_string(size) + " .b8 p" + number + "[" +
                                       std::to_string(size * one.words) + "]";
    for (uint32_t w = 0; w < one.words; ++w, ++word) {
      const std::string at = std::to_string(word), reg = (one.wide ? "%l" : "%i") + at;
      body += "  ld.param" + type + " " + reg + ", [p" + number + "+" + std::to_string(w * size) + "];\n";
      given += "  .param " + type + " a" + at + ";\n  st.param" + type + " [a" + at + "], " + reg + ";\n";
      arguments += (word ? ", a" : "a") + at;
      declared += (word ? ", .param " : ".param ") + type + " a" + at;
    }
  }
  const std::string target = std::string(kDevicePrefix) + std::string(function.name);
  const bool wide = function.result == 'l', value = function.result != 'v';
  std::string text = "\n.extern .func " + returned(function, "r") + target + " (" + declared + ");\n";
  text += ".func " + returned(function, "result") + name + " (" + parameters + ")\n{\n";
  text += "  .reg .b32 %i<" + std::to_string(word + 1) + ">;\n  .reg .b64 %l<" + std::to_string(word + 1) + ">;\n";
  text += body + "  {\n" + given;
  if (value) text += "  .param " + bits(wide) + " r;\n";
  text += std::string("  call ") + (value ? "(r), " : "") + target + ", (" + arguments + ");\n";
  const std::string got = (wide ? "%l" : "%i") + std::to_string(word);
  if (value) text += "  ld.param" + bits(wide) + " " + got + ", [r];\n";
  text += "  }\n";
  if (value) text += "  st.param" + bits(wide) + " [result], " + got + ";\n";
  return text + "  ret;\n}\n";
}

// A function from a code to its text; `part` is which one.
std::string error_function(const std::string& name, std::string_view ErrorText::* part) {
  std::string texts, body;
  for (const ErrorText& error : kErrors) {
    const std::string variable = name + "_" + std::to_string(error.code);
    texts += "\n.global .b8 " + variable + "[" + std::to_string((error.*part).size() + 1) + "] = {";
    for (const char c : error.*part) texts += std::to_string(int(c)) + ", ";
    texts += "0};";
    const bool all = error.code == ~0u;
    if (!all) body += "  setp.eq.u32 %is, %code, " + std::to_string(error.code) + ";\n";
    body += std::string("  ") + (all ? "" : "@%is ") + "mov.u64 %text, " + variable + ";\n";
  }
  return texts + "\n.func (.param .b64 result) " + name +
         " (.param .b32 code)\n{\n  .reg .pred %is; .reg .b32 %code; .reg .b64 %text;\n  ld.param.b32 %code, "
         "[code];\n" +
         body + "  st.param.b64 [result], %text;\n  ret;\n}\n";
}

}  // namespace

uint32_t DeviceFunction::words() const {
  uint32_t sum = 0;
  for (const char letter : parameters) sum += parameter(letter).words;
  return sum;
}

const DeviceFunction* device_function(std::string_view called) {
  if (!called.starts_with(kDevicePrefix)) return nullptr;
  called.remove_prefix(kDevicePrefix.size());
  for (const DeviceFunction& function : kDeviceFunctions)
    if (function.name == called) return &function;
  return nullptr;
}

std::string with_device_runtime(std::string module) {
  const auto stands = [&](std::string_view mark) { return module.find(mark) != module.npos; };
  if (std::none_of(std::begin(kMarks), std::end(kMarks), stands)) return module;
  while (!module.empty() && module.back() == '\0') module.pop_back();
  std::set<std::string> declared, defined;
  for (const ptx::Item& item : ptx::parse(ptx::Outline(module).declarations()).items) {
    const auto* function = std::get_if<ptx::Function>(&item);
    if (function) (function->body ? defined : declared).insert(function->name);
  }
  for (const std::string& name : declared) {
    if (defined.contains(name)) continue;
    if (const DeviceFunction* function = answered(name)) module += forwarder(name, *function);
    if (name == "__cudaCDP2GetErrorName") module += error_function(name, &ErrorText::name);
    if (name == "__cudaCDP2GetErrorString") module += error_function(name, &ErrorText::text);
    for (const RuntimeFunction& function : kFunctions)
      if (name_of(function) == name) module.append("\n.func ").append(function.name).append(function.text);
  }
  return module;
}

}  // namespace bandsaw::soft
