#include "vgpu-sched/ptx/printer.h"

#include <charconv>
#include <type_traits>

namespace bandsaw::ptx {
namespace {

template <class... T>
struct Overload : T... {
  using T::operator()...;
};

class Printer {
 public:
  std::string text;

  // ---- operands ----
  void put(const Operand& operand) {
    std::visit([this](const auto& value) { put(value); }, operand.value);
  }
  void put(const Register& r) {
    text += r.name;
    if (!r.component.empty()) text.append(".").append(r.component);
  }
  void put(const Integer& i) {
    if (i.is_unsigned) {
      number(i.bits);
      text += 'U';
    } else {
      number(i.value());
    }
  }
  void put(const Float& f) {
    text += f.is_double ? "0d" : "0f";
    for (int shift = f.is_double ? 60 : 28; shift >= 0; shift -= 4) text += "0123456789ABCDEF"[f.bits >> shift & 15];
  }
  void put(const Symbol& s) {
    text += s.name;
    offset(s.offset);
  }
  void put(const Sink&) { text += '_'; }
  void put(const Address& a) {
    text += '[';
    std::visit(Overload{[&](std::monostate) { number(a.offset); },
                        [&](const auto& base) {
                          put(base);
                          offset(a.offset);
                        }},
               a.base);
    for (const Operand& e : a.extra) {
      text += ", ";
      put(e);
    }
    text += ']';
  }
  void put(const Vector& v) { list("{", v.elements, ", ", "}"); }
  void put(const Group& g) { list("(", g.elements, ", ", ")"); }
  void put(const Pair& p) { list("", p.elements, "|", ""); }
  void put(const Negated& n) { list(n.arithmetic ? "-" : "!", n.element, "", ""); }

  // ---- declarations ----
  void put(const Directive& d) {
    text.append(".").append(d.name);
    const char* before = " ";
    for (uint64_t value : d.values) {
      text += before;
      number(value);
      before = ", ";
    }
    for (const std::string& string : d.strings) {
      text.append(before).append("\"").append(string).append("\"");
      before = ", ";
    }
  }

  void attributes(const std::vector<Directive>& list) {
    if (list.empty()) return;
    text += ".attribute(";
    for (const Directive& d : list) {
      if (&d != &list.front()) text += ", ";
      text.append(".").append(d.name);
      if (d.values.empty()) continue;
      const char* before = "(";
      for (uint64_t value : d.values) {
        text += before;
        number(value);
        before = ", ";
      }
      text += ')';
    }
    text += ") ";
  }

  void put(const Initializer& initial) {
    std::visit(Overload{[&](const InitializerList& list) {
                          text += '{';
                          for (const Initializer& e : list.elements) {
                            if (&e != &list.elements.front()) text += ", ";
                            put(e);
                          }
                          text += '}';
                        },
                        [&](const auto& value) { put(value); }},
               initial.value);
  }

  void put(const SymbolAddress& a) {
    if (a.mask) {
      text += "0x";
      number(*a.mask, 16);
      text += '(';
    }
    text.append(a.generic ? "generic(" : "").append(a.name).append(a.generic ? ")" : "");
    offset(a.offset);
    if (a.mask) text += ')';
  }

  void put(const Variable& v) {
    word(spelling(v.linkage));
    text.append(".").append(spelling(v.space));
    if (v.const_bank) {
      text += '[';
      number(*v.const_bank);
      text += ']';
    }
    text += ' ';
    attributes(v.attributes);
    if (v.align) align(*v.align);
    if (v.vector > 1) {
      text += ".v";
      number(v.vector);
      text += ' ';
    }
    word(spelling(v.type));
    if (v.pointer) {
      text += ".ptr ";
      word(spelling(v.pointer_space));
      if (v.pointer_align) align(*v.pointer_align);
    }
    name(v.name, v.count);
    for (const auto& dimension : v.dimensions) {
      text += '[';
      if (dimension) number(*dimension);
      text += ']';
    }
    if (v.initial) {
      text += " = ";
      put(*v.initial);
    }
  }

  void parameters(const std::vector<Variable>& list) {
    text += '(';
    for (const Variable& v : list) {
      if (&v != &list.front()) text += ", ";
      put(v);
    }
    text += ')';
  }

  void put(const Function& f) {
    word(spelling(f.linkage));
    text += f.entry ? ".entry " : ".func ";
    attributes(f.attributes);
    if (!f.returns.empty()) {
      parameters(f.returns);
      text += ' ';
    }
    text += f.name;
    parameters(f.parameters);
    for (const Directive& d : f.directives) {
      text += '\n';
      put(d);
      if (d.name == "pragma") text += ';';
    }
    if (!f.body) return text.append(";\n"), void();
    text += '\n';
    put(*f.body);
    text += '\n';
  }

  // ---- statements ----
  void put(const Block& block) {
    text += "{\n";
    ++indent_;
    for (const Statement& s : block.statements) put(s);
    --indent_;
    tabs();
    text += '}';
  }

  void put(const Statement& statement) {
    if (!statement.as<Label>()) tabs();
    std::visit(Overload{[&](const Block& block) { put(block); }, [&](const Label& l) { text.append(l.name) += ':'; },
                        [&](const Location& l) { put(l); },
                        [&](const auto& value) {
                          put(value);
                          text += ';';
                        }},
               statement.value);
    text += '\n';
  }

  void put(const Instruction& i) {
    if (i.guard) {
      text += i.guard->negated ? "@!" : "@";
      put(i.guard->predicate);
      text += ' ';
    }
    text += i.opcode;
    for (const std::string& modifier : i.modifiers) text.append(".").append(modifier);
    if (!i.operands.empty()) list(" ", i.operands, ", ", "");
  }

  void put(const Registers& r) {
    text += ".reg ";
    if (r.vector > 1) {
      text += ".v";
      number(r.vector);
      text += ' ';
    }
    word(spelling(r.type));
    for (const auto& n : r.names) {
      if (&n != &r.names.front()) text += ", ";
      name(n.name, n.count);
    }
  }

  void put(const Location& l) {
    text += ".loc ";
    number(l.file);
    text += ' ';
    number(l.line);
    text += ' ';
    number(l.column);
    if (!l.tail.empty()) text.append(", ").append(l.tail);
  }

  void put(const CallPrototype& p) {
    text.append(p.label).append(": .callprototype ");
    parameters(p.returns);
    text += " _ ";
    parameters(p.parameters);
    for (const Directive& d : p.directives) {
      text += ' ';
      put(d);
    }
  }

  void put(const Targets& t) {
    text.append(t.label).append(t.branch ? ": .branchtargets " : ": .calltargets ");
    for (const std::string& n : t.names) text.append(&n == &t.names.front() ? "" : ", ").append(n);
  }

  // ---- module ----
  void put(const File& f) {
    text += ".file ";
    number(f.index);
    text.append(" \"").append(f.name).append("\"");
    for (uint64_t value : f.values) {
      text += ", ";
      number(value);
    }
  }
  void put(const Section& s) { text.append(".section ").append(s.name).append(" {").append(s.text).append("}"); }
  void put(const Alias& a) { text.append(".alias ").append(a.name).append(", ").append(a.target) += ';'; }

  void put(const Item& item) {
    std::visit(Overload{[&](const Variable& v) {
                          put(v);
                          text += ';';
                        },
                        [&](const Directive& d) {
                          put(d);
                          text += ';';
                        },
                        [&](const auto& value) { put(value); }},
               item);
    text += '\n';
  }

  void put(const Module& m) {
    text += ".version ";
    number(m.version_major);
    text += '.';
    number(m.version_minor);
    text += "\n.target ";
    for (const std::string& t : m.targets) text.append(&t == &m.targets.front() ? "" : ", ").append(t);
    if (m.address_size) {
      text += "\n.address_size ";
      number(m.address_size);
    }
    text += "\n\n";
    for (const Item& item : m.items) put(item);
  }

 private:
  template <class T>
  void number(T value, int base = 10) {
    char digits[24];
    text.append(digits, std::to_chars(digits, digits + sizeof digits, value, base).ptr);
  }
  void offset(int64_t value) {
    if (value == 0) return;
    text += '+';  // ptxas takes [%rd1+-8] but not [%rd1-8]
    number(value);
  }
  void word(std::string_view spelled) {
    if (!spelled.empty()) text.append(".").append(spelled) += ' ';
  }
  void align(uint64_t bytes) {
    text += ".align ";
    number(bytes);
    text += ' ';
  }
  void name(const std::string& base, const std::optional<uint32_t>& count) {
    text += base;
    if (!count) return;
    text += '<';
    number(*count);
    text += '>';
  }
  void list(const char* begin, const std::vector<Operand>& elements, const char* between, const char* end) {
    text += begin;
    for (const Operand& e : elements) {
      if (&e != &elements.front()) text += between;
      put(e);
    }
    text += end;
  }
  void tabs() { text.append(indent_, '\t'); }

  size_t indent_ = 0;
};

template <class T>
std::string printed(const T& value) {
  Printer printer;
  printer.put(value);
  return std::move(printer.text);
}

}  // namespace

std::string print(const Module& module) { return printed(module); }
std::string print(const Function& function) { return printed(function); }
std::string print(const Variable& variable) { return printed(variable); }
std::string print(const Statement& statement) { return printed(statement); }
std::string print(const Operand& operand) { return printed(operand); }

}  // namespace bandsaw::ptx
