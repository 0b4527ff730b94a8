// Operands: what their names mean in a function.
#include "backend/device/soft/codegen/flattener.h"

namespace bandsaw::soft {

int Flattener::reg(const ptx::Register& r, const ptx::Scope& scope, uint32_t line) {
  auto d = scope.find(r.name);
  if (!d.registers) throw CompileError(line, "unknown register " + r.name);
  if (d.registers->vector != 1) throw CompileError(line, "a vector register where one value is wanted: " + r.name);
  return numbered(*d.registers, r.name);
}

int Flattener::numbered(const ptx::Registers& declared, const std::string& name) {
  auto [it, fresh] = names_.registers.emplace(std::pair{&declared, name}, static_cast<int>(f_.registers.size()));
  if (fresh) f_.registers.push_back({name, declared.type, inlined_.depth > 0});
  return it->second;
}

// One register for each component: r is {r.x, r.y}.
Arg Flattener::vector_register(const ptx::Register& r, const ptx::Registers& declared, uint32_t line) {
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

const Place* Flattener::find_place(const ptx::Declaration& d, const std::string& name) {
  auto it = names_.places.find({d.variable, name});
  if (it != names_.places.end()) return it->second;
  auto g = module_->globals.find(name);
  if (g == module_->globals.end()) return nullptr;
  if (g->second->space == ptx::Space::kShared && !g->second->dynamic_shared) f_.module_shared.insert(g->second);
  return g->second;
}

Arg Flattener::symbol(const ptx::Symbol& s, const ptx::Scope& scope, uint32_t line) {
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
    if (d.targets) a.name = target_list(s.name);
  }
  return a;
}

Arg Flattener::arg(const ptx::Operand& o, const ptx::Scope& scope, uint32_t line) {
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

}  // namespace bandsaw::soft
