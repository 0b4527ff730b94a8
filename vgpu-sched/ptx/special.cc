#include "vgpu-sched/ptx/special.h"

#include <algorithm>
#include <unordered_map>

namespace bandsaw::ptx {
namespace {

using Kinds = std::unordered_map<std::string_view, Kind>;

const Kinds& kinds() {
  static const Kinds table = [] {
    Kinds made;
    auto add = [&](Kind kind, std::initializer_list<std::string_view> opcodes) {
      for (std::string_view opcode : opcodes) made.emplace(opcode, kind);
    };
    add(Kind::kValue,
        {"mov",       "add",      "sub",   "mul",   "mad",        "mul24", "mad24",     "sad",       "div",
         "rem",       "abs",      "neg",   "min",   "max",        "popc",  "clz",       "bfind",     "fns",
         "brev",      "bfe",      "bfi",   "szext", "bmsk",       "dp4a",  "dp2a",      "addc",      "subc",
         "madc",      "fma",      "rcp",   "sqrt",  "rsqrt",      "sin",   "cos",       "lg2",       "ex2",
         "tanh",      "testp",    "set",   "setp",  "selp",       "slct",  "and",       "or",        "xor",
         "not",       "cnot",     "lop3",  "shf",   "shl",        "shr",   "prmt",      "cvt",       "cvta",
         "copysign",  "isspacep", "shfl",  "vote",  "match",      "redux", "vadd",      "vsub",      "vabsdiff",
         "vmin",      "vmax",     "vshl",  "vshr",  "vmad",       "vset",  "vadd2",     "vsub2",     "vavrg2",
         "vabsdiff2", "vmin2",    "vmax2", "vset2", "vadd4",      "vsub4", "vavrg4",    "vabsdiff4", "vmin4",
         "vmax4",     "vset4",    "mma",   "wmma",  "activemask", "elect", "movmatrix", "istypep",   "createpolicy"});
    add(Kind::kLoad, {"ld", "ldu", "ldmatrix"});
    add(Kind::kStore, {"st", "stmatrix"});
    add(Kind::kAtomic, {"atom", "red", "multimem"});
    add(Kind::kCopy, {"cp"});
    add(Kind::kBarrier, {"bar", "barrier"});
    add(Kind::kBranch, {"bra", "brx"});
    add(Kind::kEnd, {"ret", "exit", "trap"});
    add(Kind::kCall, {"call"});
    add(Kind::kFence, {"membar", "fence"});
    add(Kind::kTexture, {"tex", "tld4", "txq", "suld", "sust", "sured", "suq"});
    add(Kind::kOther, {"nanosleep", "pmevent", "brkpt", "griddepcontrol", "prefetch", "prefetchu", "applypriority"});
    return made;
  }();
  return table;
}

bool is_wmma_memory(const Instruction& i, std::string_view what) {
  return i.opcode == "wmma" && !i.modifiers.empty() && i.modifiers[0] == what;
}

}  // namespace

Special special_of(std::string_view name) {
  if (!name.starts_with('%')) return Special::kNone;
  if (name == "%ctaid") return Special::kCtaid;
  if (name == "%nctaid") return Special::kNctaid;
  if (name == "%gridid") return Special::kGridid;
  if (name.starts_with("%cluster_") || name == "%clusterid" || name == "%nclusterid" || name == "%is_explicit_cluster")
    return Special::kCluster;
  if (name.starts_with("%envreg")) return Special::kEnvironment;
  if (name.starts_with("%reserved_smem_offset")) return Special::kUniform;
  for (std::string_view uniform :
       {"%ntid", "%nwarpid", "%smid", "%nsmid", "%total_smem_size", "%dynamic_smem_size", "%aggr_smem_size"})
    if (name == uniform) return Special::kUniform;
  return Special::kThread;
}

Kind kind_of(const Instruction& i) {
  if (is_wmma_memory(i, "load")) return Kind::kLoad;
  if (is_wmma_memory(i, "store")) return Kind::kStore;
  if (i.opcode == "bar" && i.has("warp")) return Kind::kOther;
  if (i.opcode == "barrier" && i.has("cluster")) return Kind::kOther;
  const auto found = kinds().find(i.opcode);
  return found == kinds().end() ? Kind::kUnknown : found->second;
}

bool is_plain(const Instruction& i, std::string_view opcode, std::initializer_list<std::string_view> types) {
  return i.opcode == opcode && i.modifiers.size() == 1 &&
         std::find(types.begin(), types.end(), i.modifiers[0]) != types.end();
}

bool has_result(const Instruction& i, Kind kind) {
  if (i.operands.empty()) return false;
  const Operand& first = i.operands[0];
  if (first.as<Address>() || first.as<Symbol>() || first.as<Group>() || first.as<Integer>()) return false;
  switch (kind) {
    case Kind::kValue:
    case Kind::kLoad:
    case Kind::kUnknown:
      return true;
    case Kind::kAtomic:
      return i.opcode == "atom" || i.has("ld_reduce");
    case Kind::kTexture:
      return i.opcode != "sust" && i.opcode != "sured";
    case Kind::kBarrier:
      return i.has("red");
    default:
      return false;
  }
}

bool is_full_barrier(const Instruction& i) {
  if (kind_of(i) != Kind::kBarrier || i.has("arrive")) return false;
  // sync a [, b]; red.popc d, a [, b], p
  return i.operands.size() <= (i.has("red") ? 3u : 1u);
}

bool is_driver_function(std::string_view name) {
  return name == "vprintf" || name == "malloc" || name == "free" || name == "__assertfail";
}

}  // namespace bandsaw::ptx
