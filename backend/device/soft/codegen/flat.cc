#include "backend/device/soft/codegen/flat.h"

#include <algorithm>
#include <set>

#include "backend/device/soft/codegen/flattener.h"
#include "vgpu-sched/ptx/parser.h"
#include "vgpu-sched/ptx/register_parameters.h"

namespace bandsaw::soft {
namespace {

// CUDA's limits: of a kernel's parameters (taken for each list of a function's, too) and of a thread's local memory.
constexpr uint64_t kLargestParameters = 32764, kLargestLocal = 512 << 10;
constexpr uint64_t kLargestShared = 16 << 20;  // launches know what an SM has
constexpr uint64_t kLargestAlignment = 64 << 10;
constexpr size_t kLongBlock = 200;
constexpr uint32_t kMostNumbered = 65536;  // variables of a function that name<count> makes

// Puts the variable behind what lies in [0, *end). No sum of sizes wraps: each part is held against the limit.
uint64_t place_behind(uint64_t* end, const ptx::Variable& v, uint64_t least_align, uint64_t limit) {
  const uint64_t align = std::max<uint64_t>(v.alignment(), least_align), bytes = v.bytes();
  if (align > kLargestAlignment) throw CompileError(v.place.line, v.name + ": alignment out of range");
  const uint64_t offset = (*end + align - 1) / align * align;
  if (bytes > limit || offset > limit - bytes) {
    throw CompileError(v.place.line, v.name + ": too large: there is room for " + std::to_string(limit) + " bytes");
  }
  *end = offset + bytes;
  return offset;
}

}  // namespace

FlatFunction Flattener::run() {
  const ptx::Function& source = *f_.source;
  ptx::Scope scope(globals_, source);
  add_parameters(source);
  f_.blocks.emplace_back();
  visit(*source.body, scope);
  finish();
  return std::move(f_);
}

Place* Flattener::new_place(const ptx::Variable& v, const std::string& name) {
  auto place = std::make_unique<Place>();
  place->declaration = &v;
  place->name = name;
  place->space = v.space;
  place->bytes = v.bytes();
  place->of_kernel = f_.source->entry && inlined_.depth == 0;
  module_->places.push_back(std::move(place));
  return module_->places.back().get();
}

// Of a function's shared memory there is one, wherever its code is.
Place* Flattener::shared_place(const ptx::Variable& v, const std::string& name) {
  Place*& place = module_->shared[{&v, name}];
  if (!place) place = new_place(v, name);
  return place;
}

Place* Flattener::add_place(const ptx::Variable& v, const std::string& name) {
  const bool shared = v.space == ptx::Space::kShared;
  Place* const p = shared ? shared_place(v, name) : new_place(v, name);
  names_.places[{&v, name}] = p;
  if (shared && inlined_.depth > 0) {
    f_.callees.push_back(inlined_.function);
    p->dynamic_shared = v.sized_by_launch();
    return p;
  }
  f_.places.push_back(p);
  switch (v.space) {
    case ptx::Space::kLocal:
      p->offset = place_behind(&local_end_, v, 4, kLargestLocal);
      f_.local_bytes = std::max(f_.local_bytes, static_cast<uint32_t>(local_end_));
      break;
    case ptx::Space::kShared:
      if (v.sized_by_launch()) {
        p->dynamic_shared = true;
        f_.shared_align = std::max<uint32_t>(f_.shared_align, 16);
      } else {
        p->offset = place_behind(&shared_end_, v, 1, kLargestShared);
        f_.shared_bytes = static_cast<uint32_t>(shared_end_);
        f_.shared_align = std::max<uint32_t>(f_.shared_align, v.alignment());
      }
      break;
    case ptx::Space::kParam:
      if (p->bytes > kLargestParameters) throw CompileError(v.place.line, v.name + ": too large");
      if (v.vector > 1 || (!v.is_array() && ptx::bits_of(v.type) < 8))
        throw CompileError(v.place.line, v.name + ": not a type that parameters have");
      p->number = buffers_++;
      break;
    default:
      break;
  }
  return p;
}

void Flattener::add_places(const ptx::Variable& v) {
  if (!v.count) {
    add_place(v, v.name);
    return;
  }
  if (*v.count > kMostNumbered - numbered_) throw CompileError(v.place.line, v.name + ": too many variables");
  numbered_ += *v.count;
  for (uint32_t i = 0; i < *v.count; ++i) add_place(v, v.name + std::to_string(i));
}

void Flattener::add_parameters(const ptx::Function& source) {
  uint64_t offset = 0;
  for (const auto& v : source.parameters) {
    if (v.space == ptx::Space::kReg) throw CompileError(v.place.line, ".reg parameters of functions are not supported");
    Place* p = add_place(v, v.name);
    p->offset = place_behind(&offset, v, 1, kLargestParameters);
    f_.parameters.push_back(p);
  }
  uint64_t returned = 0;
  for (const auto& v : source.returns) {
    place_behind(&returned, v, 1, kLargestParameters);
    if (v.space == ptx::Space::kReg) throw CompileError(v.place.line, ".reg return values are not supported");
    f_.returns.push_back(add_place(v, v.name));
  }
}

std::string Flattener::label_key(const ptx::Label* label) {
  auto [it, fresh] = names_.labels.emplace(label, "");
  if (fresh) it->second = new_label(label->name);
  return it->second;
}

void Flattener::visit(const ptx::Block& block, const ptx::Scope& scope) {
  for (const auto& s : block.statements) {
    if (auto* in = s.as<ptx::Instruction>()) {
      if (!inline_call(*in, s.place.line, scope)) add_instruction(*in, s.place.line, scope);
    } else if (auto* label = s.as<ptx::Label>()) {
      start_block(label_key(label));
    } else if (auto* inner = s.as<ptx::Block>()) {
      ptx::Scope nested(&scope, *inner);
      visit(*inner, nested);
    } else if (auto* v = s.as<ptx::Variable>()) {
      add_places(*v);
    } else if (auto* targets = s.as<ptx::Targets>(); targets && targets->branch) {
      add_targets(*targets, s.place.line, scope);
    }
  }
}

void Flattener::add_targets(const ptx::Targets& targets, uint32_t line, const ptx::Scope& scope) {
  auto& names = f_.branch_targets[target_list(targets.label)];
  for (const std::string& name : targets.names) {
    const auto d = scope.find(name);
    if (!d.label) throw CompileError(line, "unknown label " + name);
    names.push_back(label_key(d.label));
  }
}

// A piece of a long kernel ends with a block, so that long ones are cut too: not within a call, nor where a carry is
// handed on.
bool Flattener::ends_long_block(const ptx::Instruction& next) const {
  const std::vector<Op>& ops = f_.blocks.back().ops;
  return ops.size() >= kLongBlock && (next.opcode == "st" || next.opcode == "ld") && !next.has("param") &&
         std::none_of(ops.begin(), ops.end(), [](const Op& op) { return op.in->has("cc"); });
}

void Flattener::start_block(const std::string& label) {
  if (!f_.blocks.back().ops.empty()) f_.blocks.emplace_back();  // an empty one has several labels
  f_.labels[label] = static_cast<int>(f_.blocks.size()) - 1;
}

void Flattener::add_instruction(const ptx::Instruction& in, uint32_t line, const ptx::Scope& scope) {
  Op op;
  op.in = &in;
  op.line = line;
  if (in.guard) {
    op.guard = reg(in.guard->predicate, scope, line);
    op.guard_negated = in.guard->negated;
  }
  if (in.opcode == "ret" && inlined_.depth > 0) {
    if (&in != inlined_.last || in.guard) leave(&inlined_, op.guard, op.guard_negated, line);
    return;
  }
  for (size_t i = 0; i < in.operands.size(); ++i) {
    if (auto* pair = in.operands[i].as<ptx::Pair>()) {
      op.pair = true;
      for (auto& e : pair->elements) op.args.push_back(arg(e, scope, line));
    } else {
      op.args.push_back(arg(in.operands[i], scope, line));
    }
  }
  note(in, op);
  const std::string callee = called_function(in);
  const auto named = module_->gathering_functions.find(callee);
  const bool waits = module_->waiting_functions.contains(callee), names = named != module_->gathering_functions.end();
  const bool gathers = is_gathering(in) || waits || names;
  if ((gathers && !f_.blocks.back().ops.empty()) || ends_long_block(in)) f_.blocks.emplace_back();
  if (gathers) f_.blocks.back().sync_head = true;
  if (names && !waits) f_.blocks.back().called_with = named->second;
  f_.blocks.back().ops.push_back(std::move(op));
  if (is_terminator(in)) f_.blocks.emplace_back();
}

void Flattener::note(const ptx::Instruction& in, const Op& op) {
  if (in.opcode == "wgmma" && (in.has("fence") || in.has("wait_group"))) f_.uses_barrier = true;
  if (in.opcode == "alloca") f_.uses_alloca = true;
  if (in.opcode == "bar" || in.opcode == "barrier") {
    if (!in.has("warp")) f_.uses_barrier = true;
  } else if (in.opcode == "exit") {
    f_.uses_exit = true;
  } else if (in.opcode == "call") {
    for (auto& a : op.args) {
      if (a.kind == ArgKind::kFunction) {
        f_.callees.push_back(a.name);
        break;
      }
      if (a.kind == ArgKind::kReg) {
        f_.indirect_calls = true;
        break;
      }
    }
  }
  for (auto& a : op.args) {
    if (a.kind == ArgKind::kSreg && a.name.starts_with("%envreg")) f_.uses_grid_sync = true;
    if (a.kind == ArgKind::kSreg && a.name.starts_with("%reserved_smem")) f_.uses_reserved_shared = true;
    note_place(a.var);
  }
}

void Flattener::note_place(const Place* p) {
  if (!p || p->space != ptx::Space::kShared) return;
  if (p->dynamic_shared) f_.dynamic_align = std::max<uint64_t>({f_.dynamic_align, p->declaration->alignment(), 16});
}

int Flattener::target(const std::string& key, uint32_t line) {
  auto it = f_.labels.find(key);
  if (it == f_.labels.end()) throw CompileError(line, "unknown label " + name_of(key));
  return it->second;
}

void Flattener::finish() {
  // Falling off the end is a return: an empty last block has no successors.
  int n = static_cast<int>(f_.blocks.size());
  for (int b = 0; b < n; ++b) {
    auto& block = f_.blocks[b];
    bool falls = true;
    if (!block.ops.empty() && is_terminator(*block.ops.back().in)) {
      Op& op = block.ops.back();
      const std::string& code = op.in->opcode;
      falls = op.guard >= 0;
      if (code == "bra") {
        block.successors.push_back(target(op.args.at(0).name, op.line));
      } else if (code == "brx") {
        auto it = f_.branch_targets.find(op.args.at(1).name);
        if (it == f_.branch_targets.end())
          throw CompileError(op.line, "unknown target list " + name_of(op.args[1].name));
        for (auto& name : it->second) block.successors.push_back(target(name, op.line));
      }
    }
    if (falls && b + 1 < n) block.successors.push_back(b + 1);
  }
}

bool is_terminator(const ptx::Instruction& in) {
  return in.opcode == "bra" || in.opcode == "brx" || in.opcode == "ret" || in.opcode == "exit" || in.opcode == "trap";
}

namespace {

std::set<std::string> variables_defined(const ptx::Module& source) {
  std::set<std::string> defined;
  for (const auto& item : source.items) {
    auto* v = std::get_if<ptx::Variable>(&item);
    if (v && v->linkage != ptx::Linkage::kExtern) defined.insert(v->name);
  }
  return defined;
}

}  // namespace

ptx::Module parsed(std::string_view text) {
  ptx::Module module = ptx::parse(text);
  ptx::parameters_in_memory(&module);
  return module;
}

FlatModule flatten(const ptx::Module& source) {
  FlatModule m;
  m.source = &source;
  m.waiting_functions = functions_that_wait(source);
  m.gathering_functions = functions_that_gather(source);
  m.inlined = inlined_functions(source);
  ptx::Scope globals(source);
  const std::set<std::string> defined = variables_defined(source);
  for (const auto& item : source.items) {
    auto* v = std::get_if<ptx::Variable>(&item);
    if (!v) continue;
    auto& slot = m.globals[v->name];
    if (v->linkage == ptx::Linkage::kExtern && (slot || defined.contains(v->name))) continue;
    auto p = std::make_unique<Place>();
    p->declaration = v;
    p->name = v->name;
    p->space = v->space;
    p->bytes = v->bytes();
    p->extern_symbol = v->linkage == ptx::Linkage::kExtern && v->bytes() == 0;
    if (v->space == ptx::Space::kShared) {
      p->dynamic_shared = v->sized_by_launch();
      if (!p->dynamic_shared) {
        uint64_t end = m.fixed_shared_bytes;
        p->offset = place_behind(&end, *v, 1, kLargestShared);
        m.fixed_shared_bytes = static_cast<uint32_t>(end);
      }
    }
    slot = p.get();
    m.places.push_back(std::move(p));
  }
  for (const auto& item : source.items) {
    auto* f = std::get_if<ptx::Function>(&item);
    if (f && f->body) m.functions.push_back(Flattener(&m, &globals, *f).run());
  }
  return m;
}

}  // namespace bandsaw::soft
