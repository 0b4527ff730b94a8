#include "backend/device/soft/codegen/timing_code.h"

#include <set>

#include "backend/device/soft/codegen/opinfo.h"

namespace bandsaw::soft {
namespace {

using timing::Kind;

bool ends_stretch(const FlatBlock& block, size_t op) {
  return op + 1 == block.ops.size() || block.ops[op].in->opcode == "call";
}

Kind access_kind(const Op& op) {
  const std::string& code = op.in->opcode;
  if (!recorded_access(op)) return Kind::kOtherAccess;
  if (code == "st") return Kind::kStore;
  return code == "atom" || code == "red" ? Kind::kAtomic : Kind::kLoad;
}

Kind kind_of(const Op& op) {
  static const std::set<std::string, std::less<>> branches = {"bra", "brx", "call", "ret", "exit", "trap"},
                                                  special = {"sqrt", "rsqrt", "rcp", "sin",  "cos",
                                                             "lg2",  "ex2",   "div", "tanh", "rem"},
                                                  matrix = {"mma", "wgmma"},
                                                  other = {"tex",      "tld4",     "suld",     "sust",      "sured",
                                                           "multimem", "ldmatrix", "stmatrix", "tensormap", "ldu"};
  const ptx::Instruction& in = *op.in;
  const std::string& code = in.opcode;
  const ptx::Space space = in.space();
  if ((code == "ld" || code == "st") && space == ptx::Space::kParam) return Kind::kConstant;
  if (code == "ld" && space == ptx::Space::kConst) return Kind::kConstant;
  if (code == "ld" || code == "st" || code == "atom" || code == "red" || other.contains(code)) return access_kind(op);
  if (code == "cp") return recorded_access(op) || in.has("bulk") ? access_kind(op) : Kind::kSimple;
  if (code == "wmma") return in.has("mma") ? Kind::kMatrix : Kind::kOtherAccess;
  if (matrix.contains(code)) return Kind::kMatrix;
  if (branches.contains(code)) return Kind::kBranch;
  if ((code == "bar" || code == "barrier") && !in.has("warp") && !in.has("cluster"))
    return in.has("arrive") ? Kind::kArrive : Kind::kBarrier;
  const bool wide = in.type() == ptx::Type::kF64;
  if (special.contains(code)) return wide ? Kind::kDouble : Kind::kSpecial;
  return wide && code != "mov" ? Kind::kDouble : Kind::kSimple;
}

uint32_t number(const Op& op, size_t arg) {
  return arg < op.args.size() && op.args[arg].kind == ArgKind::kInt ? static_cast<uint32_t>(op.args[arg].bits) : 0;
}

}  // namespace

bool begins_stretch(const FlatBlock& block, size_t op) { return op == 0 || ends_stretch(block, op - 1); }

std::optional<RecordedAccess> recorded_access(const Op& op) {
  const ptx::Instruction& in = *op.in;
  const std::string& code = in.opcode;
  ptx::Space space = in.space();
  size_t address = 0;
  uint32_t bytes = ptx::bits_of(in.type()) / 8 * in.vector();
  if (code == "ld" || code == "atom") {
    address = 1;
  } else if (code == "cp") {
    if (!in.has("async") || in.has("bulk") || in.has("mbarrier") || op.args.size() < 3) return std::nullopt;
    address = 1;
    space = ptx::Space::kGlobal;
    bytes = number(op, 2);
  } else if ((code != "st" && code != "red") || in.has("async")) {
    return std::nullopt;
  }
  if (space == ptx::Space::kParam || space == ptx::Space::kConst || address >= op.args.size()) return std::nullopt;
  const Arg& arg = op.args[address];
  if (arg.kind != ArgKind::kAddress || !arg.elements.empty()) return std::nullopt;
  return RecordedAccess{&arg, space, bytes};
}

void CodeLayout::add(const FlatFunction& function) {
  Part part{&function, {}, registers_};
  for (const FlatBlock& block : function.blocks) {
    part.blocks.push_back(size_);
    size_ += static_cast<uint32_t>(block.ops.size());
  }
  registers_ += static_cast<uint32_t>(function.registers.size());
  places_[&function] = parts_.size();
  parts_.push_back(std::move(part));
}

uint32_t CodeLayout::counter(const FlatFunction& function, int block, size_t op) const {
  return parts_[places_.at(&function)].blocks[static_cast<size_t>(block)] + static_cast<uint32_t>(op);
}

timing::Instruction CodeLayout::instruction(const Part& part, int block, size_t at) const {
  const FlatBlock& all = part.function->blocks[static_cast<size_t>(block)];
  const Op& op = all.ops[at];
  timing::Instruction made;
  made.kind = kind_of(op);
  made.ends_stretch = ends_stretch(all, at);
  made.line = op.line;
  const auto access = recorded_access(op);
  made.global_load = made.kind == Kind::kLoad && access && access->space != ptx::Space::kShared;
  const OpInfo info = op_info(op, part.function->source->entry);
  const auto number_of = [&](int reg) { return part.first_register + static_cast<uint32_t>(reg); };
  for_uses(op, info.definitions, [&](int reg) { made.reads.push_back(number_of(reg)); });
  for_definitions(op, info.definitions, [&](int reg) { made.writes.push_back(number_of(reg)); });
  if (made.kind == Kind::kBarrier || made.kind == Kind::kArrive) {
    made.barrier = number(op, static_cast<size_t>(info.definitions));
    made.barrier_threads = op.in->has("red") ? 0 : number(op, static_cast<size_t>(info.definitions) + 1);
  }
  if (op.in->opcode == "bra" && !all.successors.empty()) {
    const auto target = static_cast<size_t>(all.successors.front());
    if (part.blocks[target] < size_) made.target = static_cast<int32_t>(part.blocks[target]);
  }
  return made;
}

timing::Code CodeLayout::code() const {
  timing::Code code;
  code.registers = registers_;
  for (const Part& part : parts_)
    for (size_t block = 0; block < part.function->blocks.size(); ++block)
      for (size_t op = 0; op < part.function->blocks[block].ops.size(); ++op)
        code.instructions.push_back(instruction(part, static_cast<int>(block), op));
  return code;
}

}  // namespace bandsaw::soft
