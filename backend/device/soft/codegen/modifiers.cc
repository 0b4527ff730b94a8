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
    "mbarrier_init", "launch_dependents", "wait", "L1", "L2", "tensormap", "bulk", "bulk_group", "read", "prefetch",
    "mbarrier", "init", "inval", "expect_tx", "complete_tx", "arrive_drop", "test_wait", "try_wait", "parity",
    "pending_count", "noComplete", "noinc", "mbarrier::complete_tx::bytes",
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
    "po", "shr7", "shr15", "row", "col", "m16n8k16", "m16n8k8", "m16n8k4", "m16n8k32", "m8n8k4", "m8n8k16", "m8n8k32",
    "m8n8k128", "m16n8k64", "m16n8k128", "m16n8k256", "m8n8", "x1", "x2", "x4", "trans", "m16n16k16", "m32n8k16",
    "m8n32k16", "m16n16k8", "load", "store", "mma", "a", "b", "c", "d"};

// Of instructions on textures and surfaces.
const std::set<std::string_view> kTexture = {"1d",
                                             "2d",
                                             "3d",
                                             "a1d",
                                             "a2d",
                                             "cube",
                                             "acube",
                                             "base",
                                             "level",
                                             "grad",
                                             "trap",
                                             "zero",
                                             "width",
                                             "height",
                                             "depth",
                                             "channel_data_type",
                                             "channel_order",
                                             "normalized_coords",
                                             "array_size",
                                             "num_mipmap_levels",
                                             "num_samples",
                                             "force_unnormalized_coords",
                                             "filter_mode",
                                             "addr_mode_0",
                                             "addr_mode_1",
                                             "addr_mode_2",
                                             "memory_layout",
                                             "r",
                                             "g",
                                             "b",
                                             "a",
                                             "p"};

// Of bulk copies, asynchronous stores and tensor maps.
const std::set<std::string_view> kCopies = {"1d",
                                            "2d",
                                            "3d",
                                            "4d",
                                            "5d",
                                            "tensor",
                                            "tile",
                                            "im2col",
                                            "im2col_no_offs",
                                            "reduce",
                                            "multicast::cluster",
                                            "replace",
                                            "cp_mask",
                                            "ignore_oob",
                                            "cp_fenceproxy",
                                            "tensormap::generic",
                                            "b1024",
                                            "global_address",
                                            "rank",
                                            "box_dim",
                                            "global_dim",
                                            "global_stride",
                                            "element_stride",
                                            "elemtype",
                                            "interleave_layout",
                                            "swizzle_mode",
                                            "fill_mode"};

const std::set<std::string_view> kLaunchControl = {"try_cancel", "query_cancel", "is_canceled", "get_first_ctaid"};

bool is_copy_opcode(std::string_view opcode) { return opcode == "cp" || opcode == "tensormap"; }

// What else PTX has, and this compiler has not.
const std::set<std::string_view> kElsewhere = {"2dms",
                                               "a2dms",
                                               "samplepos",
                                               "sp",
                                               "block_scale",
                                               "scale_vec",
                                               "kind",
                                               "cta_group",
                                               "ld_reduce",
                                               "st",
                                               "multimem",
                                               "noInc",
                                               "mma_async",
                                               "fence",
                                               "commit",
                                               "swizzle_atomicity",
                                               "b8",
                                               "b6x16_p32",
                                               "b4x16_p64",
                                               "rs",
                                               "scaled",
                                               "oob",
                                               "tex",
                                               "surf",
                                               "ptr",
                                               "ws",
                                               "alloc",
                                               "dealloc",
                                               "shift",
                                               "cluster_ctaid",
                                               "async_bulk",
                                               "unpack",
                                               "relinquish_alloc_permit",
                                               "mxf8f6f4",
                                               "cvt",
                                               "mask",
                                               "cp",
                                               "b8x16",
                                               "ld",
                                               "x8",
                                               "x16",
                                               "x32",
                                               "x64",
                                               "x128",
                                               "warpx4",
                                               "ashift",
                                               "u"};
const std::set<std::string_view> kElsewhereOpcodes = {"istypep", "wmma",      "stmatrix", "movmatrix", "mbarrier",
                                                      "wgmma",   "tensormap", "tcgen05",  "trap",      "ret",
                                                      "exit",    "bra",       "brx",      "prefetchu", "prefetch"};

// All fences are the strongest one.
bool is_of_fence(std::string_view word) {
  return word == "tensormap::generic" || word == "async::generic" || word.starts_with("sync_restrict::");
}

bool is_shape(std::string_view word) {
  return word.size() > 1 && (word[0] == 'm' || (word[0] >= '0' && word[0] <= '9')) &&
         word.find_first_not_of("mnkx0123456789b_p") == word.npos;
}

}  // namespace

void check_words(const ptx::Block& block, uint32_t first_line) {
  for (const ptx::Statement& statement : block.statements) {
    if (const auto* inner = statement.as<ptx::Block>()) check_words(*inner, first_line);
    const auto* in = statement.as<ptx::Instruction>();
    if (!in) continue;
    const uint32_t line = statement.place.line + first_line;
    if (!Emitter::knows(in->opcode) && !kElsewhereOpcodes.contains(in->opcode))
      throw CompileError(line, in->full_name() + ": not an instruction of PTX");
    for (const std::string& m : in->modifiers) {
      if (kKnown.contains(m) || kTexture.contains(m) || kCopies.contains(m) || kElsewhere.contains(m) ||
          kLaunchControl.contains(m) || ptx::type_of(m) || ptx::space_of(m) || is_shape(m) || m.find("::") != m.npos)
        continue;
      throw CompileError(line, in->full_name() + ": no instruction of PTX has ." + m);
    }
  }
}

void Emitter::check_modifiers(const Op& op) {
  for (const std::string& m : op.in->modifiers) {
    if (kKnown.contains(m) || ptx::type_of(m) || ptx::space_of(m)) continue;
    if (is_texture_opcode(op.in->opcode) && kTexture.contains(m)) continue;
    if (m.starts_with("L1::") || m.starts_with("L2::")) continue;
    if ((op.in->opcode == "mma" || op.in->opcode == "wgmma") && (m == "sp" || m == "sp::ordered_metadata")) continue;
    if (is_copy_opcode(op.in->opcode) && kCopies.contains(m)) continue;
    if (op.in->opcode == "fence" && is_of_fence(m)) continue;
    if ((op.in->opcode == "createpolicy" && m == "cvt") || (op.in->opcode == "pmevent" && m == "mask")) continue;
    if (op.in->opcode == "multimem" && (m == "ld_reduce" || m == "st" || m.starts_with("acc::"))) continue;
    if (op.in->opcode == "clusterlaunchcontrol" && (kLaunchControl.contains(m) || m.starts_with("get_first_ctaid::")))
      continue;
    if (op.in->opcode == "wgmma" && (is_shape(m) || m == "mma_async" || m == "fence")) continue;
    unsupported(op, "." + m);
  }
}

}  // namespace bandsaw::soft
