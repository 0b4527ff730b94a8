#include "backend/device/soft/codegen/device_runtime.h"

#include <array>
#include <set>
#include <string_view>
#include <variant>

#include "vgpu-sched/ptx/outline.h"
#include "vgpu-sched/ptx/parser.h"

namespace bandsaw::soft {
namespace {

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

std::string_view name_of(const RuntimeFunction& function) { return function.name.substr(function.name.rfind(' ') + 1); }

}  // namespace

std::string with_device_runtime(std::string module) {
  if (module.find("cudaCG") == module.npos) return module;
  while (!module.empty() && module.back() == '\0') module.pop_back();
  std::set<std::string> declared, defined;
  for (const ptx::Item& item : ptx::parse(ptx::Outline(module).declarations()).items) {
    const auto* function = std::get_if<ptx::Function>(&item);
    if (function) (function->body ? defined : declared).insert(function->name);
  }
  for (const RuntimeFunction& function : kFunctions) {
    const std::string name(name_of(function));
    if (!declared.contains(name) || defined.contains(name)) continue;
    module += "\n.func ";
    module += function.name;
    module += function.text;
  }
  return module;
}

}  // namespace bandsaw::soft
