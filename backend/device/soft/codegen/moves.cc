// mov and special registers, and the table from opcode to emitter.
#include <llvm/IR/Intrinsics.h>

#include "backend/device/soft/codegen/emitter.h"

namespace bandsaw::soft {

const std::map<std::string_view, Emitter::Handler>& Emitter::handlers() {
  using E = Emitter;
  // clang-format off: a line for each would hide what belongs together
  static const std::map<std::string_view, Handler> table = {
      {"mov", &E::op_mov}, {"ld", &E::op_ld}, {"ldu", &E::op_ld}, {"st", &E::op_st},
      {"prefetch", &E::op_nothing}, {"prefetchu", &E::op_nothing}, {"discard", &E::op_nothing},
      {"applypriority", &E::op_nothing}, {"pmevent", &E::op_nothing}, {"griddepcontrol", &E::op_nothing},
      {"setmaxnreg", &E::op_nothing}, {"membar", &E::op_fence}, {"fence", &E::op_fence}, {"cp", &E::op_cp_async},
      {"cvta", &E::op_cvta}, {"alloca", &E::op_alloca}, {"stacksave", &E::op_stack}, {"stackrestore", &E::op_stack},
      {"isspacep", &E::op_isspacep},
      {"add", &E::op_add_sub}, {"sub", &E::op_add_sub}, {"addc", &E::op_carry}, {"subc", &E::op_carry},
      {"madc", &E::op_carry}, {"mul", &E::op_mul}, {"mul24", &E::op_mul}, {"mad", &E::op_mad}, {"mad24", &E::op_mad},
      {"div", &E::op_div_rem}, {"rem", &E::op_div_rem}, {"abs", &E::op_abs_neg}, {"neg", &E::op_abs_neg},
      {"min", &E::op_min_max}, {"max", &E::op_min_max}, {"sad", &E::op_sad}, {"and", &E::op_logic}, {"or", &E::op_logic},
      {"xor", &E::op_logic}, {"not", &E::op_logic}, {"cnot", &E::op_logic}, {"shl", &E::op_shift}, {"shr", &E::op_shift},
      {"shf", &E::op_shf}, {"lop3", &E::op_lop3}, {"popc", &E::op_count}, {"clz", &E::op_count},
      {"brev", &E::op_count}, {"bfind", &E::op_count}, {"bfe", &E::op_bitfield}, {"bfi", &E::op_bitfield},
      {"bmsk", &E::op_bitfield}, {"szext", &E::op_bitfield}, {"prmt", &E::op_prmt}, {"dp4a", &E::op_dot},
      {"dp2a", &E::op_dot}, {"fns", &E::op_fns},
      {"fma", &E::op_fma}, {"rcp", &E::op_float_unary}, {"sqrt", &E::op_float_unary}, {"rsqrt", &E::op_float_unary},
      {"sin", &E::op_float_unary}, {"cos", &E::op_float_unary}, {"lg2", &E::op_float_unary},
      {"ex2", &E::op_float_unary}, {"tanh", &E::op_float_unary}, {"copysign", &E::op_copysign}, {"testp", &E::op_testp},
      {"set", &E::op_set}, {"setp", &E::op_setp}, {"selp", &E::op_selp}, {"slct", &E::op_slct},
      {"cvt", &E::op_cvt}, {"atom", &E::op_atom}, {"red", &E::op_atom},
      {"bar", &E::op_bar}, {"barrier", &E::op_bar}, {"shfl", &E::op_shfl}, {"vote", &E::op_vote}, {"match", &E::op_match},
      {"redux", &E::op_redux}, {"activemask", &E::op_activemask}, {"elect", &E::op_elect},
      {"createpolicy", &E::op_zero}, {"getctarank", &E::op_getctarank}, {"mapa", &E::op_mapa}, {"tensormap", &E::op_tensormap},
      {"clusterlaunchcontrol", &E::op_cluster_launch_control},
      {"nanosleep", &E::op_nanosleep}, {"brkpt", &E::op_trap}, {"multimem", &E::op_multimem}, {"call", &E::op_call},
      {"mma", &E::op_mma}, {"mbarrier", &E::op_mbarrier}, {"ldmatrix", &E::op_ldmatrix},
      {"stmatrix", &E::op_stmatrix}, {"movmatrix", &E::op_movmatrix}, {"wmma", &E::op_wmma}, {"wgmma", &E::op_wgmma},
      {"tex", &E::op_tex}, {"tld4", &E::op_tex}, {"txq", &E::op_texture_query}, {"suq", &E::op_texture_query},
      {"suld", &E::op_suld}, {"sust", &E::op_sust}, {"sured", &E::op_sured},
      {"vadd", &E::op_video}, {"vsub", &E::op_video}, {"vabsdiff", &E::op_video}, {"vmin", &E::op_video},
      {"vmax", &E::op_video}, {"vshl", &E::op_video}, {"vshr", &E::op_video}, {"vmad", &E::op_video}, {"vset", &E::op_video},
      {"vadd2", &E::op_video}, {"vsub2", &E::op_video}, {"vavrg2", &E::op_video}, {"vabsdiff2", &E::op_video},
      {"vmin2", &E::op_video}, {"vmax2", &E::op_video}, {"vset2", &E::op_video}, {"vadd4", &E::op_video},
      {"vsub4", &E::op_video}, {"vavrg4", &E::op_video}, {"vabsdiff4", &E::op_video}, {"vmin4", &E::op_video},
      {"vmax4", &E::op_video}, {"vset4", &E::op_video},
  };
  // clang-format on
  return table;
}

V Emitter::special(const Op& op, const Arg& arg) {
  const std::string& n = arg.name;
  int axis = arg.component == "x" ? 0 : arg.component == "y" ? 1 : arg.component == "z" ? 2 : 3;
  auto triple = [&](size_t offset) -> V {
    if (axis == 3) return i32(0);
    return state_field(offset + 4 * axis, b_.getInt32Ty(), n.c_str());
  };
  auto word = [&](size_t offset) -> V { return state_field(offset, b_.getInt32Ty(), n.c_str()); };
  auto lanes = [&](auto f) -> V {
    std::vector<llvm::Constant*> e;
    for (uint32_t i = 0; i < kLanes; ++i) e.push_back(i32(f(i)));
    return llvm::ConstantVector::get(e);
  };
  if (n == "%tid") {
    if (axis == 3) return llvm::Constant::getNullValue(int_type(32, true));
    static constexpr size_t at[] = {offsetof(WarpState, tid_x), offsetof(WarpState, tid_y), offsetof(WarpState, tid_z)};
    return b_.CreateAlignedLoad(int_type(32, true), state_ptr(at[axis]), llvm::Align(4), n);
  }
  if (n == "%ntid") return triple(offsetof(WarpState, ntid));
  if (n == "%ctaid") return triple(offsetof(WarpState, ctaid));
  if (n == "%nctaid") return triple(offsetof(WarpState, nctaid));
  if (n == "%cluster_nctaid") return axis == 3 ? i32(0) : triple(offsetof(WarpState, cluster));
  if (n == "%clusterid" || n == "%nclusterid" || n == "%cluster_ctaid") {
    if (axis == 3) return i32(0);
    V whole = triple(n == "%nclusterid" ? offsetof(WarpState, nctaid) : offsetof(WarpState, ctaid));
    V part = triple(offsetof(WarpState, cluster));
    return n == "%cluster_ctaid" ? b_.CreateURem(whole, part) : b_.CreateUDiv(whole, part);
  }
  if (n == "%cluster_ctarank" || n == "%cluster_nctarank") {
    V shape[3], at[3];
    for (unsigned i = 0; i < 3; ++i) {
      shape[i] = word(offsetof(WarpState, cluster) + 4 * i);
      at[i] = b_.CreateURem(word(offsetof(WarpState, ctaid) + 4 * i), shape[i]);
    }
    if (n == "%cluster_nctarank") return b_.CreateMul(b_.CreateMul(shape[0], shape[1]), shape[2]);
    return b_.CreateAdd(b_.CreateMul(b_.CreateAdd(b_.CreateMul(at[2], shape[1]), at[1]), shape[0]), at[0]);
  }
  if (n == "%laneid") return iota(32);
  if (n == "%warpid") return word(offsetof(WarpState, warp_id));
  if (n == "%nwarpid") return word(offsetof(WarpState, warps));
  if (n == "%smid") return word(offsetof(WarpState, sm_id));
  if (n == "%nsmid") return i32(1024);
  if (n == "%gridid") return state_field(offsetof(WarpState, grid_id), b_.getInt64Ty(), "gridid");
  if (n == "%lanemask_eq") return lanes([](uint32_t i) { return 1u << i; });
  if (n == "%lanemask_lt") return lanes([](uint32_t i) { return (1u << i) - 1; });
  if (n == "%lanemask_le") return lanes([](uint32_t i) { return (2u << i) - 1; });
  if (n == "%lanemask_gt") return lanes([](uint32_t i) { return ~((2u << i) - 1); });
  if (n == "%lanemask_ge") return lanes([](uint32_t i) { return ~((1u << i) - 1); });
  if (n == "%clock" || n == "%clock64" || n == "%clock_hi") {
    V t = b_.CreateIntrinsic(llvm::Intrinsic::readcyclecounter, {}, {});
    return n == "%clock_hi" ? b_.CreateLShr(t, 32) : t;
  }
  if (n == "%globaltimer" || n == "%globaltimer_lo" || n == "%globaltimer_hi") {
    V t = call_helper("bsw_globaltimer", b_.getInt64Ty(), {});
    return n == "%globaltimer_hi" ? b_.CreateLShr(t, 32) : t;
  }
  if (n == "%envreg1" || n == "%envreg2") {
    V w = state_field(offsetof(WarpState, grid_workspace), b_.getInt64Ty(), "workspace");
    return b_.CreateTrunc(n == "%envreg1" ? b_.CreateLShr(w, 32) : w, b_.getInt32Ty());
  }
  if (n.starts_with("%envreg") || n.starts_with("%pm") || n == "%current_graph_exec") return i64(0);
  if (n == "%dynamic_smem_size") return word(offsetof(WarpState, dynamic_shared_bytes));
  if (n == "%total_smem_size" || n == "%aggr_smem_size") return word(offsetof(WarpState, shared_bytes));
  if (n == "%reserved_smem_offset_cap") return i32(kReservedBytes);
  if (n == "%reserved_smem_offset_end") return i32(kReservedOffset + kReservedBytes);
  if (n == "%reserved_smem_offset_1") return i32(kReservedOffset + kReservedBytes / 2);
  if (n == "%reserved_smem_offset_begin" || n == "%reserved_smem_offset_0") return i32(kReservedOffset);
  if (n == "%is_explicit_cluster") return b_.CreateICmpNE(word(offsetof(WarpState, explicit_cluster)), i32(0));
  unsupported(op, n);
}

// Cache policies mean nothing here.
void Emitter::op_zero(const Op& op) { write(op, op.args.at(0), konst(0, 32)); }

// The offset of a shared memory address in its block: generic addresses lie in the window for it.
V Emitter::shared_offset(V address, bool generic) {
  const unsigned bits = address->getType()->getScalarSizeInBits();
  if (generic) address = b_.CreateSub(address, konst(kSharedWindow, bits));
  return address;
}

V Emitter::cluster_rank(const Op& op) {
  Arg rank;
  rank.kind = ArgKind::kSreg;
  rank.name = "%cluster_ctarank";
  return shape(special(op, rank));
}

// The same address in another block of the cluster, by its rank; in this one it is the plain offset.
void Emitter::op_mapa(const Op& op) {
  const unsigned bits = ptx::bits_of(op.in->type());
  const bool generic = op.in->space() == ptx::Space::kNone;
  if (generic && bits != 64) unsupported(op, "generic address of 32 bits");
  V offset = b_.CreateAnd(shared_offset(read(op.args.at(1), bits), generic), konst(kClusterStep - 1, bits));
  V rank = read(op.args.at(2), 32);
  V step = b_.CreateMul(b_.CreateAdd(b_.CreateZExtOrTrunc(rank, ity(bits)), konst(1, bits)), konst(kClusterStep, bits));
  step = b_.CreateSelect(b_.CreateICmpEQ(rank, cluster_rank(op)), konst(0, bits), step);
  write(op, op.args.at(0), b_.CreateAdd(b_.CreateAdd(offset, step), konst(generic ? kSharedWindow : 0, bits)));
}

// The rank of the block whose shared memory an address is in: addresses without one are this block's.
void Emitter::op_getctarank(const Op& op) {
  const unsigned bits = ptx::bits_of(op.in->type());
  const bool generic = op.in->space() == ptx::Space::kNone;
  if (generic && bits != 64) unsupported(op, "generic address of 32 bits");
  V step = b_.CreateUDiv(shared_offset(read(op.args.at(1), bits), generic), konst(kClusterStep, bits));
  step = b_.CreateTrunc(step, ity(32));
  write(op, op.args.at(0),
        b_.CreateSelect(b_.CreateICmpEQ(step, konst(0, 32)), cluster_rank(op), b_.CreateSub(step, konst(1, 32))));
}

void Emitter::op_mov(const Op& op) {
  const Arg& to = op.args.at(0);
  const Arg& from = op.args.at(1);
  ptx::Type type = op.in->type();
  unsigned bits = ptx::bits_of(type);
  if (type == ptx::Type::kPred) {
    if (from.kind == ArgKind::kSreg) {
      V v = special(op, from);
      return write(op, to, shape(v));
    }
    return write(op, to, read_pred(from));
  }
  if (op.in->vector() > 1) {  // mov.v4.u32 {..}, %tid
    Arg part = from;
    std::vector<V> values;  // all are read before one is written
    for (size_t i = 0; i < to.elements.size(); ++i) {
      if (from.kind == ArgKind::kSreg) part.component = std::string(1, "xyzw"[i % 4]);
      values.push_back(from.kind == ArgKind::kVector ? read(from.elements.at(i), bits) : read(part, bits));
    }
    for (size_t i = 0; i < to.elements.size(); ++i) write(op, to.elements[i], values[i]);
    return;
  }
  if (from.kind == ArgKind::kVar && from.var->space == ptx::Space::kNone) unsupported(op);
  write(op, to, read(from, bits));
}

}  // namespace bandsaw::soft
