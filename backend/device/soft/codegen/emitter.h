// Turns one flattened PTX function into LLVM IR. Values are either scalars (the same for all lanes) or vectors of 32;
// registers live in stack slots that LLVM promotes. One class over several files by subject: emitter.cc (operands and
// registers), flow.cc, memory.cc, integer.cc, bits.cc, floats.cc, convert.cc, sync.cc, atomics.cc, calls.cc, moves.cc.
#pragma once

#include <llvm/IR/IRBuilder.h>
#include <llvm/IR/Module.h>

#include <functional>
#include <map>
#include <string>
#include <vector>

#include "backend/device/soft/codegen/analysis.h"
#include "backend/device/soft/codegen/flat.h"
#include "backend/device/soft/codegen/mbarrier.h"
#include "backend/device/soft/codegen/opinfo.h"
#include "backend/device/soft/codegen/pieces.h"
#include "backend/device/soft/warp.h"

namespace bandsaw::soft {

inline constexpr unsigned kLanes = kWarpLanes;

class CodeLayout;

// What all functions of a module share.
struct ModuleContext {
  llvm::LLVMContext* context;
  llvm::Module* module;
  const FlatModule* flat;
  uint64_t window_base;
  bool avx2, avx512;
  std::map<std::string, uint32_t> function_numbers;   // of .func definitions, for function pointers
  std::function<bool(const std::string&)> is_kernel;  // of the whole module, which this may be a part of
  bool by_finder = false;                             // pointers name functions in other objects
  const std::set<std::string>* apart = nullptr;       // functions in other objects that are called by name
  bool functions_may_exit = false;
  const CodeLayout* layout = nullptr;  // set: the code records what it does
};

// Equal for two functions that one call may call.
uint64_t function_signature(const ptx::Function& function);

using V = llvm::Value*;
struct DeviceFunction;
struct WgmmaForm;
enum class MatrixType : uint32_t;
enum class AtomicOp : uint32_t;
enum class HalfOp : uint32_t;
enum class AtomicType : uint32_t;

class Emitter {
 public:
  // `analysis` as of `function`; all must outlive this.
  Emitter(ModuleContext* module, const FlatFunction& function, const Analysis& analysis, uint32_t shared_base,
          uint32_t frame_bytes);
  // One of these, once. All throw CompileError.
  void run();
  void run_entry_of(const Pieces& pieces);               // of a kernel
  void run_piece(const Pieces& pieces, uint32_t piece);  // defines piece_symbol()
  // Throws CompileError if the function has an instruction or a modifier that no function may have.
  static void check(const FlatFunction& function);
  static bool knows(std::string_view opcode) { return handlers().contains(opcode); }

 private:
  using Handler = void (Emitter::*)(const Op&);
  static const std::map<std::string_view, Handler>& handlers();

  // emitter.cc
  void create_function();
  void begin(llvm::FunctionType* type, const std::string& name);
  void create_state();
  V variable(llvm::Type* type, const char* name);
  void create_slots();
  llvm::Type* register_type(size_t reg) const;
  std::vector<bool> registers_in_memory() const;
  void emit_op(const Op& op);
  static void check_modifiers(const Op& op);
  [[noreturn]] static void unsupported(const Op& op, const std::string& why = "");
  bool op_is_vector(const Op& op) const;
  llvm::Type* int_type(unsigned bits, bool vector) const;
  llvm::Type* ity(unsigned bits) const { return int_type(bits, vec_); }
  llvm::Type* float_type(unsigned bits, bool vector) const;
  llvm::Type* fty(unsigned bits) const { return float_type(bits, vec_); }
  V konst(uint64_t value, unsigned bits) { return llvm::ConstantInt::get(ity(bits), value); }
  V fkonst(double value, unsigned bits) { return llvm::ConstantFP::get(fty(bits), value); }
  llvm::ConstantInt* i32(uint32_t v) { return b_.getInt32(v); }
  llvm::ConstantInt* i64(uint64_t v) { return b_.getInt64(v); }
  V splat(V scalar) { return scalar->getType()->isVectorTy() ? scalar : b_.CreateVectorSplat(kLanes, scalar); }
  V shape(V v) { return vec_ ? splat(v) : v; }
  V iota(unsigned bits, unsigned groups = 1, uint64_t step = 1);
  V read_reg(int reg);
  V read(const Arg& arg, unsigned bits, bool sign = false);              // integer of the op's width
  V read_pred(const Arg& arg);                                           // i1
  V read_float(const Op& op, const Arg& arg, ptx::Type type);            // f32, f64; f16 and bf16 widened to f32
  V read_address_constant(const Op& op, const Arg& arg);                 // mov of a symbol
  V variable_address(const Place& place);                                // of a .global or .const one of the module
  V is_constant(V address);                                              // a generic address, in one of its .const ones
  void write(const Op& op, const Arg& arg, V value, bool sign = false);  // integer or i1, any width
  void write_float(const Op& op, const Arg& arg, V value, ptx::Type type);
  void store_reg(const Op& op, int reg, V value);
  V special(const Op& op, const Arg& arg);
  V int_of(V v);  // bit pattern of a float value
  V f32_of_half(V bits16, ptx::Type type);
  V odd_f32(V d);
  V flush_half(const Op& op, V bits16, ptx::Type type);  // where .ftz is said of f16 or bf16
  V half_of_f32(V f, ptx::Type type);
  V bits_of_vector(V i1_vector) { return b_.CreateBitCast(i1_vector, b_.getInt32Ty()); }
  V lanes_of(V mask) { return b_.CreateBitCast(mask, llvm::FixedVectorType::get(b_.getInt1Ty(), kLanes)); }
  V op_mask(const Op& op);  // lanes that execute the op, guard applied
  V guard_bits(const Op& op);
  V state_field(size_t offset, llvm::Type* type, const char* name);
  V state_ptr(size_t offset);
  V frame_scratch(const char* name, uint64_t bytes);
  V call_helper(const std::string& name, llvm::Type* result, std::vector<V> args);
  // A C++ helper over 32 lanes: inputs and outputs as arrays. Works for scalars too.
  V lane_helper(const std::string& name, std::vector<V> inputs, llvm::Type* element_result, std::vector<V> extra = {});
  V intrinsic(llvm::Intrinsic::ID id, std::vector<V> args);

  // piece.cc
  void create_frame();
  V frame_place(llvm::Type* type, const std::string& name);
  void create_piece_slots();
  void create_piece_blocks();
  bool is_elsewhere(int block) const { return pieces_ && !pieces_->has(piece_, block); }  // in another piece
  void leave_piece(const Region& region, V index);

  // pending.cc
  struct RegionState;
  static bool is_wide(const RegionState& region);
  llvm::ConstantInt* words_of(const RegionState& region);
  V any_pending(const RegionState& region);
  V none_until(const RegionState& region, unsigned index);
  void change_bit(const RegionState& region, V slot, unsigned index, bool set, V unless = nullptr);
  void start_behind(const RegionState& region, unsigned index, V when);
  V pick(const RegionState& region, const Region& of);
  V pick_wide(const RegionState& region, const Region& of);

  // flow.cc
  void create_blocks();
  void create_regions();
  void create_dispatchers();
  void emit_block(int block);
  void emit_terminator(int block, const Op* op);
  void emit_sync_head(int block);
  V named_lanes(const Arg& members);
  V lanes_called_with(const Op& call, const NamedLanes& named);
  void go(int from, int to, V mask);
  void leave(int from, V mask);  // lanes arrived at their region's stop or end
  void enter_region_or_go(int from, int to);
  void diverge(int from, const std::vector<std::pair<int, V>>& targets);
  void emit_dispatchers();
  void back_edge(int from);
  void kill_lanes(V mask, bool exit);
  void finish_if_empty();
  void emit_return();
  void branch_exit(const Op& op, int block, bool exit);
  void op_bra(const Op& op);

  // record.cc
  void record_stretch(int block, size_t op);
  void record_access(const Op& op);

  // memory.cc and access.cc
  struct Location {
    V address = nullptr;  // i64 or <32 x i64>; shared and local: offset in the space
    uint64_t offset = 0;  // added to it
    ptx::Space space{};
    bool narrow = false;  // a 32-bit address
    // Where the address is a uniform base plus scaled 32-bit lane indices (indexed.cc): the same thing in parts.
    V index = nullptr, base = nullptr;  // <32 x i32>, i64
    uint64_t scale = 0;
    bool index_signed = false;
  };
  void find_index(int reg, Location* l);
  const Op* definition(int reg) const;
  V consecutive_index(const Location& l, V mask, uint64_t step, V starts[2]);
  Location locate(const Op& op, const Arg& arg, ptx::Space space);
  V address_of(const Location& l);
  void keep_order(const Op& op);
  V add_offset(const Location& l, V address);  // generic address, offset included
  std::vector<V> load(const Op& op, const Location& l, unsigned bytes, unsigned count, bool vector_result);
  void store(const Op& op, const Location& l, unsigned bytes, const std::vector<V>& values);
  std::vector<V> load_scalar(const Op& op, const Location& l, unsigned bytes, unsigned count);
  std::vector<V> load_lanes(const Op& op, const Location& l, unsigned bytes, unsigned count);
  std::vector<V> load_local(const Op& op, const Location& l, unsigned bytes, unsigned count);
  void store_local(const Op& op, const Location& l, unsigned bytes, const std::vector<V>& values);
  std::vector<V> load_slow(const Op& op, const Location& l, unsigned bytes, unsigned count, V mask);
  void store_slow(const Op& op, const Location& l, unsigned bytes, const std::vector<V>& values, V mask);
  V in_window(V address, uint64_t bytes);
  V range_ok(const Location& l, V address, uint64_t bytes);
  V direct_pointer(const Location& l, V address);
  void prefetch(const Location& l, V address, bool write);
  V half_lanes(V mask, int half, unsigned bytes);
  bool can_scatter(unsigned bytes, unsigned count) const;
  V all_direct(const Location& l, V mask, uint64_t reach, uint64_t align);
  V lane_pointers(const Location& l);
  V likely(V condition, llvm::BasicBlock* yes, llvm::BasicBlock* no);
  V load_shared_window(const Op& op, const Location& l, V mask, llvm::BasicBlock* slow);
  V half_windows(V address, V mask, V heads[2], V* index);
  V permuted_halves(V heads[2], uint64_t offset, V index);
  // Loads of one width from one register.
  struct LoadGroup {
    std::vector<const Op*> ops;
    uint64_t first = 0, last = 0;  // offsets from the register
  };
  // One way to load them, and the block in which it ends.
  struct LoadWay {
    std::vector<V> values;
    llvm::BasicBlock* end = nullptr;
  };
  bool load_together(const Op& op, const Location& l);
  bool load_windows_together(const Op& op, const Location& l);
  bool load_scalars_together(const Op& op, const Location& l);
  bool load_rows_together(const Op& op, const Location& l);
  LoadGroup alike_together(const Op& op, size_t most) const;
  LoadWay load_group_slow(const LoadGroup& group, const Location& l, unsigned bytes, V mask);
  LoadWay gather_group(const LoadGroup& group, const Location& begin, unsigned bytes, V mask, llvm::BasicBlock* done);
  LoadWay halves_group(const LoadGroup& group, const Location& begin, unsigned bytes, V mask, llvm::BasicBlock* done);
  LoadWay way_if(V ok, const LoadGroup& group, llvm::BasicBlock* done, const std::function<V(uint64_t offset)>& load);
  void merge_group(const LoadGroup& group, const std::vector<LoadWay>& ways, llvm::BasicBlock* done);
  bool takes_all_lanes(unsigned bytes, unsigned count) const;
  unsigned lanes_of_register(unsigned bytes) const;
  std::vector<V> load_side_by_side(V places[2], unsigned bytes, unsigned count);
  void store_side_by_side(V places[2], unsigned bytes, const std::vector<V>& values);
  V masked_halves(V places[2], uint64_t further, unsigned bytes, V mask);
  V half_places(const Location& l, V mask, uint64_t reach, uint64_t align, V starts[2]);
  V splat_halves(V places[2], uint64_t further, unsigned bytes);
  V consecutive(const Location& l, V mask, uint64_t step, V starts[2]);
  std::vector<V> load_halves(const Location& l, V mask, unsigned bytes, unsigned count, llvm::BasicBlock* halves,
                             llvm::BasicBlock* other);
  V local_pointer(const Op& op, const Location& l, uint64_t bytes, V* checked = nullptr);
  void op_ld(const Op& op);
  void op_st(const Op& op);
  void op_nothing(const Op& op);
  void op_fence(const Op& op);
  void op_cp_async(const Op& op);
  void op_cvta(const Op& op);

  // mbarrier.cc
  void op_mbarrier(const Op& op);
  void op_cp_async_arrive(const Op& op);
  void op_cp_async_bulk(const Op& op);
  void op_cluster_launch_control(const Op& op);
  V trimmed_ends(const Op& op);
  void bulk_copy(const Op& op, const Location& to, const Location& from, V size, V mask);
  void complete_barrier(const Op& op, const Arg& barrier, uint32_t bytes);
  V addresses_of(const Location& l, const char* name);
  void op_st_async(const Op& op);

  // tensor.cc
  void op_tensor_copy(const Op& op);
  void op_tensormap(const Op& op);
  void tensormap_copy(const Op& op);
  V call_mbarrier(const Op& op, MbarrierOp kind, const Location* l, V a, V b);

  void op_isspacep(const Op& op);

  // local.cc: what functions take of their stack
  void keep_stack();
  void give_stack_back();
  V stack_tops();
  void op_alloca(const Op& op);
  void op_stack(const Op& op);

  // params.cc
  void find_block_params();
  void clear_block_params(int block);
  void load_param(const Op& op);
  void store_param(const Op& op);
  V param_slot(const Place* place);
  unsigned param_words(const Place* place) const;
  llvm::Type* param_type(const Place* place) const;

  // integer.cc, bits.cc
  void op_add_sub(const Op& op);
  void op_mul(const Op& op);
  void op_mad(const Op& op);
  void op_carry(const Op& op);
  void op_div_rem(const Op& op);
  void op_abs_neg(const Op& op);
  void op_min_max(const Op& op);
  void op_sad(const Op& op);
  void op_logic(const Op& op);
  void op_shift(const Op& op);
  void op_shf(const Op& op);
  void op_lop3(const Op& op);
  void op_count(const Op& op);     // popc clz brev bfind
  void op_bitfield(const Op& op);  // bfe bfi bmsk szext
  void op_prmt(const Op& op);
  V permuted_bytes(V a, V b, V selectors);
  V shuffled_bytes(V words, V indices);
  void op_dot(const Op& op);
  void op_video(const Op& op);
  void op_fns(const Op& op);
  V video_operand(const Arg& a);
  void simd_video(const Op& op, unsigned elements);
  V multiply(const Op& op, V a, V b, ptx::Type type, unsigned* bits);
  V high_product64(V a, V b, bool sign);
  void packed_integers(const Op& op, int operands, const std::function<V(std::vector<V>)>& f);
  V carry_read();
  void carry_write(const Op& op, V carry);

  // floats.cc
  V float_binary(const Op& op, const std::string& code, V a, V b, ptx::Type type);
  V odd_sum(V a, V b, V sum);
  V float_fma(const Op& op, V a, V b, V c, ptx::Type type);
  V rounded(const std::string& code, const std::string& mode, std::vector<V> args, unsigned bits);
  V flush(V v);
  V finish_float(const Op& op, V v);
  void float_arith(const Op& op);
  bool by_halves(const Op& op, HalfOp kind, int operands);
  void packed_halves(const Op& op, int operands, const std::function<V(std::vector<V>, ptx::Type)>& f);
  void op_float_unary(const Op& op);
  void op_float_div(const Op& op);
  V fast_quotient(const Op& op, V a, V b);
  void op_fma(const Op& op);
  void op_copysign(const Op& op);
  void op_testp(const Op& op);
  void float_min_max(const Op& op);
  V min_max_value(const Op& op, V a, V b, bool is_min);
  V unary_value(const Op& op, V a, ptx::Type type);

  // compare.cc
  V combine(const Op& op, V value, size_t third);
  V compare(const Op& op, const std::string& cmp, const Arg& a, const Arg& b, ptx::Type type);
  V compare_values(const Op& op, const std::string& cmp, V a, V b, ptx::Type type);
  void op_set(const Op& op);
  void op_setp(const Op& op);
  void op_selp(const Op& op);
  void op_slct(const Op& op);

  // convert.cc
  void op_cvt(const Op& op);
  void op_cvt_pack(const Op& op);
  void cvt_to_packed(const Op& op);
  void cvt_from_fp8(const Op& op);
  V float_to_int(const Op& op, V f, ptx::Type to, unsigned from_bits);
  V saturated_word(V f, bool is_signed, unsigned bits);
  V truncated_words(V f);
  V int_to_float(const Op& op, V i, ptx::Type from, unsigned to_bits);
  V round_to_integral(const Op& op, V f, const std::string& mode);
  V int_to_odd_f64(V i, ptx::Type from);
  V saturate_int(V v, ptx::Type from, ptx::Type to);
  V float_narrow(const Op& op, V f, ptx::Type to);

  // moves.cc
  void op_mov(const Op& op);
  void op_zero(const Op& op);
  void op_mapa(const Op& op);
  void op_getctarank(const Op& op);
  V shared_offset(V address, bool generic);
  V cluster_rank(const Op& op);

  // atomics.cc
  void op_atom(const Op& op);
  void wide_atom(const Op& op);
  bool is_read(const Arg& to) const;
  void shared_add(const Op& op, const Location& l, V value);

  // sync.cc
  V uniform_operand(const Arg& a, unsigned bits);
  V join_barriers(const Op& op, V mask);
  void op_bar(const Op& op);
  void op_shfl(const Op& op);
  std::vector<V> for_groups(const Op& op, const std::vector<llvm::Type*>& types,
                            const std::function<std::vector<V>(V lanes)>& make);
  V reduced(const Op& op, V a, V lanes);
  void op_vote(const Op& op);
  void op_match(const Op& op);
  void op_redux(const Op& op);
  void op_activemask(const Op& op);
  void op_elect(const Op& op);
  void op_nanosleep(const Op& op);
  void fault_if(V mask, Fault fault);
  void op_trap(const Op& op);
  void op_multimem(const Op& op);
  void op_mma(const Op& op);
  void mma_quads(const Op& op);
  std::pair<V, V> sparse_operands(const Op& op, size_t at, MatrixType type, uint32_t depth);
  static size_t fragment_registers(const Arg& arg);
  void op_ldmatrix(const Op& op);
  void op_stmatrix(const Op& op);
  void op_movmatrix(const Op& op);
  V pack_fragment(const Op& op, const Arg& arg, size_t n, unsigned bits, const char* name);
  void unpack_fragment(const Op& op, const Arg& arg, size_t n, unsigned bits, V slot);

  // textures.cc
  void op_tex(const Op& op);
  void op_texture_query(const Op& op);
  void op_suld(const Op& op);
  void op_sust(const Op& op);
  void op_sured(const Op& op);
  V texture_handles(const Op& op, const Arg& address);
  // Stores `count` words of the operand in a scratch of `room` words a lane, from word `at` on.
  V words_of(const Op& op, const Arg& arg, size_t count, const char* name, size_t at, size_t room);
  void write_words(const Op& op, const Arg& to, V from, size_t count, unsigned bits, bool sign);
  V surface_addresses(const Op& op, const Arg& address, unsigned bytes);

  // wmma.cc, wgmma.cc
  void op_wmma(const Op& op);
  void op_wgmma(const Op& op);
  static WgmmaForm wgmma_form(const Op& op);

  V scalar_of(V v);  // the value of the first active lane

  // calls.cc
  void op_call(const Op& op);
  bool call_builtin(const Op& op, const std::string& name, const std::vector<Arg>& returns,
                    const std::vector<Arg>& args);
  void call_device(const Op& op, const DeviceFunction& function, const std::vector<Arg>& returns,
                   const std::vector<Arg>& args);
  llvm::Function* indirect_function(const std::string& sig);
  V find_function(llvm::IRBuilder<>& b, V address, uint64_t signature);
  llvm::FunctionCallee found_function(const ptx::Function& function, llvm::FunctionType* type);
  void refresh_after_call(const Op& op);
  static std::vector<uint64_t> layout(const std::vector<const ptx::Variable*>& v, uint64_t* total);

  ModuleContext* m_;
  const FlatFunction& f_;
  const Analysis& a_;
  uint32_t shared_base_, frame_bytes_;
  bool entry_;
  std::map<const Op*, V> loaded_;  // by load_together(), of instructions that come later in the block
  bool short_code_ = false;        // helpers do what is long inline, as there is much of it
  size_t accesses_ = 0;            // ld and st instructions: many make inline gathers too long to compile
  llvm::LLVMContext& c_;
  llvm::IRBuilder<> b_;
  llvm::Function* fn_ = nullptr;
  V warp_ = nullptr, frame_ = nullptr, arguments_ = nullptr, results_ = nullptr;
  V active_slot_ = nullptr, mask_slot_ = nullptr, carry_slot_ = nullptr;
  V local_base_ = nullptr, shared_ptr_ = nullptr, shared_bytes_ = nullptr, cancelled_ = nullptr, parameters_ = nullptr;
  V spin_counter_ = nullptr, arrived_slot_ = nullptr;
  const Pieces* pieces_ = nullptr;  // set: this makes one piece of a kernel, or its entry
  uint32_t piece_ = 0;
  V shared_frame_ = nullptr;         // what pieces share,
  uint64_t shared_frame_bytes_ = 0;  // and how much of it has its place
  std::vector<V> slots_;             // of registers
  std::vector<llvm::Type*> slot_types_;
  mutable std::vector<std::pair<const Op*, int>>
      definitions_;  // per register: its only definition and that one's block
  std::vector<llvm::BasicBlock*> blocks_;
  struct RegionState {
    V pending = nullptr;  // i32 array
    V bits = nullptr;     // iN slot: which of them are not 0
    V parked = nullptr, force = nullptr, boost = nullptr, from = nullptr, picks = nullptr;
    llvm::Type* bits_type = nullptr;
    llvm::BasicBlock* dispatch = nullptr;
  };
  std::vector<RegionState> regions_;
  llvm::BasicBlock* finish_ = nullptr;
  std::map<const Place*, V> param_slots_;
  std::vector<std::vector<const Place*>> block_params_;  // by block: buffers that no other one uses
  std::map<std::string, V> scratch_;
  V mask_ = nullptr;  // i32: lanes that run the current block
  int block_ = -1;
  const Op* op_ = nullptr;
  V kept_stack_ = nullptr;  // of a function that takes of it
  bool vec_ = false;
  bool ended_ = false;  // the current op emitted a terminator
};

// What an atomic operation's modifiers say; null: nothing that atomics know.
const AtomicOp* atomic_op(const ptx::Instruction& in);
const AtomicType* atomic_type(ptx::Type type);

// tex and its like, whose modifiers no other instruction has.
bool is_texture_opcode(std::string_view opcode);

}  // namespace bandsaw::soft
