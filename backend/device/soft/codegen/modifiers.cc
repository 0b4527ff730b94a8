// Modifiers that this compiler knows. An instruction with any other is refused: it may mean something else.
#include <set>

#include "backend/device/soft/codegen/emitter.h"

namespace bandsaw::soft {
namespace {

const std::set<std::string_view> kKnown = {
    // memory
    "weak", "relaxed", "acquire", "release", "acq_rel", "sc", "volatile", "mmio", "cta", "cluster", "gpu", "sys", "gl",
    "nc", "ca", "cg", "cs", "lu", "cv", "wb", "wt", "v2", "v4", "v8", "v16", "alias", "proxy", "async", "generic",
    "noftz", "global", "shared", "local", "const", "param", "to", "unified", "texture", "surface", "tensormap",
    "fractional", "range", "createpolicy", "evict_last", "evict_normal", "evict_first", "evict_unchanged", "b64",
    "wait_group", "commit_group", "wait_all", "from", "async_global", "async_shared::cta", "async_shared::cluster",
    "mbarrier_init", "launch_dependents", "wait",
    // arithmetic
    "lo", "hi", "wide", "sat", "cc", "ftz", "rn", "rz", "rm", "rp", "rna", "rni", "rzi", "rmi", "rpi", "approx", "full",
    "relu", "NaN", "xorsign", "abs", "satfinite", "pack", "finite", "infinite", "number", "notanumber", "normal",
    "subnormal", "shiftamt",
    // comparisons, logic, bits
    "eq", "ne", "lt", "le", "gt", "ge", "ls", "hs", "equ", "neu", "ltu", "leu", "gtu", "geu", "num", "nan", "and", "or",
    "xor", "l", "r", "clamp", "wrap", "f4e", "b4e", "rc8", "ecl", "ecr", "rc16",
    // lanes and barriers
    "sync", "aligned", "arrive", "red", "popc", "warp", "all", "any", "uni", "ballot", "up", "down", "bfly", "idx",
    // atomics
    "add", "inc", "dec", "min", "max", "exch", "cas",
    // video and matrices
    "po", "shr7", "shr15", "row", "col", "m16n8k16", "m16n8k8", "m16n8k4", "m16n8k32", "m8n8k4", "m8n8", "x1", "x2",
    "x4", "trans"};

}  // namespace

void Emitter::check_modifiers(const Op& op) {
  for (const std::string& m : op.in->modifiers) {
    if (kKnown.contains(m) || ptx::type_of(m) || ptx::space_of(m)) continue;
    if (m.starts_with("L1::") || m.starts_with("L2::")) continue;
    unsupported(op, "." + m);
  }
}

}  // namespace bandsaw::soft
