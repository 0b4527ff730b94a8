#include "backend/device/soft/codegen/flat.h"

#include <algorithm>
#include <set>

#include "backend/device/soft/sm_limits.h"
#include "vgpu-sched/ptx/parser.h"
#include "vgpu-sched/ptx/printer.h"
#include "vgpu-sched/ptx/register_parameters.h"

namespace bandsaw::soft {
namespace {

// CUDA's limits: of a kernel's parameters (taken for each list of a function's, too) and of a thread's local memory.
constexpr uint64_t kLargestParameters = 32764, kLargestLocal = 512 << 10;
constexpr uint64_t kLargestShared = 16 << 20;  // launches know what an SM has
constexpr uint64_t kLargestAlignment = 64 << 10;
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

class Flattener {
 public:
  Flattener(FlatModule* module, const ptx::Scope* globals, const ptx::Function& function)
      : module_(module), globals_(globals) {
    f_.source = &function;
  }

  FlatFunction run() {
    const ptx::Function& source = *f_.source;
    ptx::Scope scope(globals_, source);
    add_parameters(source);
    collect_labels(*source.body, &scope);
    f_.blocks.emplace_back();
    visit(*source.body, scope);
    finish();
    return std::move(f_);
  }

 private:
  Place* add_place(const ptx::Variable& v, const std::string& name) {
    auto place = std::make_unique<Place>();
    place->declaration = &v;
    place->name = name;
    place->space = v.space;
    place->bytes = v.bytes();
    Place* p = place.get();
    module_->places.push_back(std::move(place));
    f_.places.push_back(p);
    by_declaration_[{&v, name}] = p;
    switch (v.space) {
      case ptx::Space::kLocal:
        p->offset = place_behind(&local_end_, v, 4, kLargestLocal);
        f_.local_bytes = static_cast<uint32_t>(local_end_);
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

  void add_parameters(const ptx::Function& source) {
    uint64_t offset = 0;
    for (const auto& v : source.parameters) {
      if (v.space == ptx::Space::kReg)
        throw CompileError(v.place.line, ".reg parameters of functions are not supported");
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

  // Labels get unique numbers by declaration, since scopes may repeat names.
  void collect_labels(const ptx::Block&, const ptx::Scope*) {}

  std::string label_key(const ptx::Label* label) {
    auto [it, fresh] = label_names_.emplace(label, "");
    if (fresh) it->second = label->name + "#" + std::to_string(label_names_.size());
    return it->second;
  }

  void visit(const ptx::Block& block, const ptx::Scope& scope) {
    for (const auto& s : block.statements) {
      if (auto* in = s.as<ptx::Instruction>()) {
        add_instruction(*in, s.place.line, scope);
      } else if (auto* label = s.as<ptx::Label>()) {
        start_block();
        f_.labels[label_key(label)] = static_cast<int>(f_.blocks.size()) - 1;
      } else if (auto* inner = s.as<ptx::Block>()) {
        ptx::Scope nested(&scope, *inner);
        visit(*inner, nested);
      } else if (auto* v = s.as<ptx::Variable>()) {
        if (v->count) {
          if (*v->count > kMostNumbered - numbered_)
            throw CompileError(v->place.line, v->name + ": too many variables");
          numbered_ += *v->count;
          for (uint32_t i = 0; i < *v->count; ++i) add_place(*v, v->name + std::to_string(i));
        } else {
          add_place(*v, v->name);
        }
      } else if (auto* proto = s.as<ptx::CallPrototype>()) {
        Prototype p;
        for (auto& v2 : proto->returns) p.returns.push_back(&v2);
        for (auto& v2 : proto->parameters) p.parameters.push_back(&v2);
        f_.prototypes[proto->label] = std::move(p);
      } else if (auto* targets = s.as<ptx::Targets>()) {
        std::vector<std::string> names;
        for (auto& n : targets->names) {
          if (targets->branch) {
            auto d = scope.find(n);
            if (!d.label) throw CompileError(s.place.line, "unknown label " + n);
            names.push_back(label_key(d.label));
          } else {
            names.push_back(n);
          }
        }
        (targets->branch ? f_.branch_targets : f_.call_targets)[targets->label] = std::move(names);
      }
    }
  }

  void start_block() {
    if (!f_.blocks.back().ops.empty() || labelled_) f_.blocks.emplace_back();
    labelled_ = false;
    // A label on an empty block shares it.
  }

  void add_instruction(const ptx::Instruction& in, uint32_t line, const ptx::Scope& scope) {
    Op op;
    op.in = &in;
    op.line = line;
    if (in.guard) {
      op.guard = reg(in.guard->predicate, scope, line);
      op.guard_negated = in.guard->negated;
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
    if (gathers && !f_.blocks.back().ops.empty()) f_.blocks.emplace_back();
    if (gathers) f_.blocks.back().sync_head = true;
    if (names && !waits) f_.blocks.back().called_with = named->second;
    f_.blocks.back().ops.push_back(std::move(op));
    if (is_terminator(in)) f_.blocks.emplace_back();
  }

  void note(const ptx::Instruction& in, const Op& op) {
    if (in.opcode == "wgmma" && in.has("wait_group")) f_.uses_barrier = true;
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
  void note_place(const Place* p) {
    if (!p || p->space != ptx::Space::kShared) return;
    if (p->dynamic_shared) f_.dynamic_align = std::max<uint64_t>({f_.dynamic_align, p->declaration->alignment(), 16});
  }

  int reg(const ptx::Register& r, const ptx::Scope& scope, uint32_t line) {
    auto d = scope.find(r.name);
    if (!d.registers) throw CompileError(line, "unknown register " + r.name);
    if (d.registers->vector != 1) throw CompileError(line, "a vector register where one value is wanted: " + r.name);
    return numbered(*d.registers, r.name);
  }

  int numbered(const ptx::Registers& declared, const std::string& name) {
    auto [it, fresh] = registers_.emplace(std::pair{&declared, name}, static_cast<int>(f_.registers.size()));
    if (fresh) f_.registers.push_back({name, declared.type});
    return it->second;
  }

  // One register for each component: r is {r.x, r.y}.
  Arg vector_register(const ptx::Register& r, const ptx::Registers& declared, uint32_t line) {
    static constexpr std::string_view kComponents = "xyzw", kColours = "rgba";
    const auto component = [&](size_t i) {
      Arg a;
      a.kind = ArgKind::kReg;
      a.reg = numbered(declared, r.name + "." + kComponents[i]);
      return a;
    };
    if (!r.component.empty()) {
      const size_t i = std::min(kComponents.find(r.component), kColours.find(r.component));
      if (r.component.size() != 1 || i >= declared.vector) throw CompileError(line, "no such component: " + r.name);
      return component(i);
    }
    if (declared.vector > kComponents.size()) throw CompileError(line, "too long a vector: " + r.name);
    Arg a;
    a.kind = ArgKind::kVector;
    for (size_t i = 0; i < declared.vector; ++i) a.elements.push_back(component(i));
    return a;
  }

  const Place* find_place(const ptx::Declaration& d, const std::string& name) {
    auto it = by_declaration_.find({d.variable, name});
    if (it != by_declaration_.end()) return it->second;
    auto g = module_->globals.find(name);
    if (g == module_->globals.end()) return nullptr;
    if (g->second->space == ptx::Space::kShared && !g->second->dynamic_shared) f_.module_shared.insert(g->second);
    return g->second;
  }

  Arg symbol(const ptx::Symbol& s, const ptx::Scope& scope, uint32_t line) {
    Arg a;
    a.name = s.name;
    auto d = scope.find(s.name);
    if (d.label) {
      a.kind = ArgKind::kLabel;
      a.name = label_key(d.label);
    } else if (d.function) {
      a.kind = ArgKind::kFunction;
    } else if (d.variable) {
      a.kind = ArgKind::kVar;
      a.var = find_place(d, s.name);
      if (!a.var) throw CompileError(line, "unknown variable " + s.name);
      a.bits = static_cast<uint64_t>(s.offset);
    } else if (s.name == "WARP_SZ") {
      a.kind = ArgKind::kInt;
      a.bits = 32;
    } else {
      a.kind = ArgKind::kName;
    }
    return a;
  }

  Arg arg(const ptx::Operand& o, const ptx::Scope& scope, uint32_t line) {
    Arg a;
    if (auto* r = o.as<ptx::Register>()) {
      auto d = scope.find(r->name);
      if (d.registers && d.registers->vector > 1) return vector_register(*r, *d.registers, line);
      if (d.registers) {
        a.kind = ArgKind::kReg;
        a.reg = reg(*r, scope, line);
      } else {
        a.kind = ArgKind::kSreg;
        a.name = r->name;
      }
      a.component = r->component;
    } else if (auto* i = o.as<ptx::Integer>()) {
      a.kind = ArgKind::kInt;
      a.bits = i->bits;
    } else if (auto* f = o.as<ptx::Float>()) {
      a.kind = ArgKind::kFloat;
      a.bits = f->bits;
      a.is_double = f->is_double;
    } else if (auto* s = o.as<ptx::Symbol>()) {
      a = symbol(*s, scope, line);
    } else if (o.as<ptx::Sink>()) {
      a.kind = ArgKind::kSink;
    } else if (auto* ad = o.as<ptx::Address>()) {
      a.kind = ArgKind::kAddress;
      a.bits = static_cast<uint64_t>(ad->offset);
      if (auto* br = std::get_if<ptx::Register>(&ad->base)) {
        a.reg = reg(*br, scope, line);
      } else if (auto* bs = std::get_if<ptx::Symbol>(&ad->base)) {
        Arg v = symbol(*bs, scope, line);
        if (v.kind != ArgKind::kVar) throw CompileError(line, "not a variable: " + bs->name);
        a.var = v.var;
        a.bits += v.bits;
      }
      note_place(a.var);
      for (auto& e : ad->extra) a.elements.push_back(arg(e, scope, line));
    } else if (auto* v = o.as<ptx::Vector>()) {
      a.kind = ArgKind::kVector;
      for (auto& e : v->elements) a.elements.push_back(arg(e, scope, line));
    } else if (auto* g = o.as<ptx::Group>()) {
      a.kind = ArgKind::kVector;
      a.name = "(";
      for (auto& e : g->elements) a.elements.push_back(arg(e, scope, line));
    } else if (auto* n = o.as<ptx::Negated>()) {
      a = arg(n->element.at(0), scope, line);
      a.negated = true;
    } else if (auto* p = o.as<ptx::Pair>()) {
      throw CompileError(line, "unexpected pair of " + std::to_string(p->elements.size()));
    }
    return a;
  }

  int target(const std::string& key, uint32_t line) {
    auto it = f_.labels.find(key);
    if (it == f_.labels.end()) throw CompileError(line, "unknown label " + key.substr(0, key.find('#')));
    return it->second;
  }

  void finish() {
    if (!f_.blocks.back().ops.empty() || f_.blocks.size() == 1 || true) {
      // Falling off the end is a return: an empty last block has no successors.
    }
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
          if (it == f_.branch_targets.end()) throw CompileError(op.line, "unknown target list " + op.args[1].name);
          for (auto& name : it->second) block.successors.push_back(target(name, op.line));
        }
      }
      if (falls && b + 1 < n) block.successors.push_back(b + 1);
    }
  }

  FlatModule* module_;
  const ptx::Scope* globals_;
  FlatFunction f_;
  std::map<std::pair<const ptx::Registers*, std::string>, int> registers_;
  std::map<std::pair<const ptx::Variable*, std::string>, Place*> by_declaration_;
  std::map<const ptx::Label*, std::string> label_names_;
  uint32_t buffers_ = 0, numbered_ = 0;
  uint64_t local_end_ = 0, shared_end_ = 0;
  bool labelled_ = false;
};

}  // namespace

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

void check_shared_bytes(const std::string& kernel, uint32_t line, uint64_t bytes) {
  if (bytes <= kDefaultBlockShared) return;
  throw CompileError(line, kernel + ": uses too much shared data (" + std::to_string(bytes) + " bytes, of " +
                               std::to_string(kDefaultBlockShared) + " that static variables may take)");
}

void check_shared(const ptx::Function& kernel, uint32_t first_line) {
  uint64_t bytes = 0;
  const auto add = [&](const ptx::Block& block, const auto& again) -> void {
    for (const ptx::Statement& statement : block.statements) {
      if (const auto* inner = statement.as<ptx::Block>()) again(*inner, again);
      const auto* variable = statement.as<ptx::Variable>();
      if (!variable || variable->space != ptx::Space::kShared || variable->sized_by_launch()) continue;
      check_shared_bytes(kernel.name, statement.place.line + first_line, variable->bytes());  // sums do not wrap
      bytes += variable->bytes();
    }
  };
  add(*kernel.body, add);
  check_shared_bytes(kernel.name, kernel.place.line + first_line, bytes);
}

FlatModule flatten(const ptx::Module& source) {
  FlatModule m;
  m.source = &source;
  m.waiting_functions = functions_that_wait(source);
  m.gathering_functions = functions_that_gather(source);
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
