#include "vgpu-sched/ptx/tree.h"

#include <algorithm>
#include <bit>
#include <limits>

namespace bandsaw::ptx {

bool operator==(const Address& a, const Address& b) {
  return a.base == b.base && a.offset == b.offset && a.extra == b.extra;
}
bool operator==(const Vector& a, const Vector& b) { return a.elements == b.elements; }
bool operator==(const Group& a, const Group& b) { return a.elements == b.elements; }
bool operator==(const Pair& a, const Pair& b) { return a.elements == b.elements; }
bool operator==(const Negated& a, const Negated& b) { return a.arithmetic == b.arithmetic && a.element == b.element; }
bool operator==(const InitializerList& a, const InitializerList& b) { return a.elements == b.elements; }
bool operator==(const Block& a, const Block& b) { return a.statements == b.statements; }

double Float::value() const {
  return is_double ? std::bit_cast<double>(bits) : std::bit_cast<float>(static_cast<uint32_t>(bits));
}

uint64_t Variable::element_bytes() const { return uint64_t{vector} * ((bits_of(type) + 7) / 8); }

uint64_t Variable::alignment() const { return std::max<uint64_t>(1, align ? *align : element_bytes()); }

uint64_t Variable::bytes() const {
  uint64_t total = element_bytes();
  for (const auto& dimension : dimensions) {
    uint64_t length = dimension.value_or(0);
    if (!dimension && initial)
      if (const auto* list = std::get_if<InitializerList>(&initial->value)) length = list->elements.size();
    if (__builtin_mul_overflow(total, length, &total)) return std::numeric_limits<uint64_t>::max();
  }
  return total;
}

bool Instruction::has(std::string_view modifier) const {
  return std::find(modifiers.begin(), modifiers.end(), modifier) != modifiers.end();
}

Type Instruction::type(size_t n) const {
  for (const std::string& modifier : modifiers)
    if (auto found = type_of(modifier))
      if (n-- == 0) return *found;
  return Type::kNone;
}

size_t Instruction::type_count() const {
  return std::count_if(modifiers.begin(), modifiers.end(), [](const auto& m) { return type_of(m).has_value(); });
}

Space Instruction::space() const {
  for (const std::string& modifier : modifiers)
    if (auto found = space_of(modifier)) return *found;
  return Space::kNone;
}

uint32_t Instruction::vector() const {
  for (const std::string& modifier : modifiers)
    if (modifier == "v2" || modifier == "v4" || modifier == "v8") return modifier[1] - '0';
  return 1;
}

std::string Instruction::full_name() const {
  std::string name = opcode;
  for (const std::string& modifier : modifiers) name.append(".").append(modifier);
  return name;
}

const Directive* Function::directive(std::string_view wanted) const {
  for (const Directive& d : directives)
    if (d.name == wanted) return &d;
  return nullptr;
}

const Function* Module::function(std::string_view wanted) const {
  const Function* found = nullptr;
  for (const Item& item : items) {
    const auto* f = std::get_if<Function>(&item);
    if (!f || f->name != wanted) continue;
    if (f->body) return f;
    if (!found) found = f;
  }
  return found;
}

const Variable* Module::variable(std::string_view wanted) const {
  const Variable* found = nullptr;
  for (const Item& item : items) {
    const auto* v = std::get_if<Variable>(&item);
    if (!v || v->name != wanted) continue;
    if (v->linkage != Linkage::kExtern) return v;
    if (!found) found = v;
  }
  return found;
}

}  // namespace bandsaw::ptx
