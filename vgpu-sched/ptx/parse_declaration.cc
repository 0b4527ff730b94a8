// Variables, parameters, registers and their initial values (PTX ISA, sections 5.1 to 5.4).
#include <limits>
#include <string>

#include "vgpu-sched/ptx/parser_impl.h"

namespace bandsaw::ptx {

void Parser::declare(const std::string& name, std::optional<uint32_t> count, bool is_register) {
  if (name.empty()) return;
  if (name[0] == '%' && !is_register) percent_variables_ = true;  // GCC's parameters
  if (name[0] == '%' && !percent_variables_) return;              // a register by its spelling
  Names& names = scopes_.back();
  if (count)
    names.ranges[name] = {*count, is_register};
  else
    names.is_register[name] = is_register;
}

bool Parser::is_register(std::string_view name) const {
  const bool percent = name[0] == '%';
  if (percent && !percent_variables_) return true;
  size_t digits = name.size();
  while (digits > 0 && name.size() - digits < 10 && name[digits - 1] >= '0' && name[digits - 1] <= '9') --digits;
  std::string key(name);
  for (auto scope = scopes_.rbegin(); scope != scopes_.rend(); ++scope) {
    auto found = scope->is_register.find(key);
    if (found != scope->is_register.end()) return found->second;
    if (scope->ranges.empty()) continue;
    for (size_t split = name.size(); split-- > std::max<size_t>(digits, 1);) {
      auto range = scope->ranges.find(std::string(name.substr(0, split)));
      if (range == scope->ranges.end()) continue;
      if (std::stoull(std::string(name.substr(split))) < range->second.count) return range->second.is_register;
    }
  }
  return percent;
}

std::vector<Variable> Parser::variables(Linkage linkage) {
  Variable common;
  common.place = token_.place;
  common.linkage = linkage;
  modifiers(&common);
  std::vector<Variable> list;
  do {
    list.push_back(common);
    declarator(&list.back());
  } while (accept(","));
  expect(";");
  return list;
}

std::vector<Variable> Parser::parameters() {
  std::vector<Variable> list;
  expect("(");
  if (accept(")")) return list;
  do {
    Variable variable;
    variable.place = token_.place;
    modifiers(&variable);
    declarator(&variable);
    list.push_back(std::move(variable));
  } while (accept(","));
  expect(")");
  return list;
}

// .space, .align, .v4, .type, .ptr .attribute in whatever order
void Parser::modifiers(Variable* variable) {
  while (token_.kind == TokenKind::kDirective) {
    Token token = token_;
    std::string_view word = take().text;
    if (word == "align") {
      auto& align = variable->pointer ? variable->pointer_align : variable->align;
      align = expect_count("an alignment", uint64_t{1} << 32);
    } else if (word == "attribute") {
      variable->attributes = attribute_list();
    } else if (!modifier(variable, word)) {
      throw ParseError(token.place.line, token.place.column,
                       "expected a state space, type or alignment, found '." + std::string(word) + "'");
    }
  }
  if (variable->space == Space::kNone) fail("a state space");
}

bool Parser::modifier(Variable* variable, std::string_view word) {
  if (word == "ptr") return variable->pointer = true;
  if (word == "v2" || word == "v4" || word == "v8") return (variable->vector = word[1] - '0');
  if (auto type = type_of(word)) {
    variable->type = *type;
    return true;
  }
  auto space = space_of(word);
  if (!space) return false;
  (variable->pointer ? variable->pointer_space : variable->space) = *space;
  if (*space == Space::kConst && !variable->pointer && accept("[")) {
    variable->const_bank = expect_count("a constant bank", 10);
    expect("]");
  }
  return true;
}

void Parser::declarator(Variable* variable) {
  if (variable->type == Type::kNone && variable->space != Space::kTex) fail("a type");
  variable->name = expect_name("a variable's name");
  if (accept("<")) {
    variable->count = expect_count("a count", std::numeric_limits<int32_t>::max());
    expect(">");
  }
  while (accept("[")) {
    std::optional<uint64_t> length;
    if (!token_.symbol("]")) length = constant().bits;
    variable->dimensions.push_back(length);
    expect("]");
  }
  declare(variable->name, variable->count, variable->space == Space::kReg);
  if (accept("=")) variable->initial = initializer();
}

Initializer Parser::initializer() {
  Nested nested(this);
  if (accept("{")) {
    InitializerList list;
    while (!accept("}")) {
      list.elements.push_back(initializer());
      if (!token_.symbol("}")) expect(",");
    }
    return {std::move(list)};
  }
  if (at_float()) return {signed_float()};
  if (token_.kind == TokenKind::kName && token_.text != "WARP_SZ") return {symbol_address()};
  if (token_.kind == TokenKind::kInteger && peek().symbol("(")) {  // 0xFF00(symbol)
    uint64_t mask = integer_literal(take()).bits;
    expect("(");
    SymbolAddress address = symbol_address();
    expect(")");
    address.mask = mask;
    return {std::move(address)};
  }
  return {constant()};
}

// symbol {+ offset} or generic(symbol) {+ offset}
SymbolAddress Parser::symbol_address() {
  SymbolAddress address;
  address.name = expect_name("a symbol");
  if (address.name == "generic" && accept("(")) {
    address.generic = true;
    address.name = expect_name("a symbol");
    address.offset = offset_tail();
    expect(")");
  }
  uint64_t inner = static_cast<uint64_t>(address.offset);
  address.offset = static_cast<int64_t>(inner + static_cast<uint64_t>(offset_tail()));
  return address;
}

Registers Parser::registers() {
  Registers result;
  while (token_.kind == TokenKind::kDirective) {
    std::string_view word = token_.text;
    if (auto type = type_of(word))
      result.type = *type;
    else if (word == "v2" || word == "v4" || word == "v8")
      result.vector = word[1] - '0';
    else
      fail("a register type");
    take();
  }
  if (result.type == Type::kNone) fail("a register type");
  do {
    Registers::Name name{.name = std::string(expect_name("a register's name")), .count = std::nullopt};
    if (accept("<")) {
      name.count = expect_count("a count", std::numeric_limits<int32_t>::max());
      expect(">");
    }
    declare(name.name, name.count, true);
    result.names.push_back(std::move(name));
  } while (accept(","));
  expect(";");
  return result;
}

// .attribute(.managed, .unified(1, 2))
std::vector<Directive> Parser::attribute_list() {
  std::vector<Directive> list;
  expect("(");
  do {
    Directive attribute;
    attribute.name = expect_directive("an attribute");
    if (accept("(")) {
      do attribute.values.push_back(constant().bits);
      while (accept(","));
      expect(")");
    }
    list.push_back(std::move(attribute));
  } while (accept(","));
  expect(")");
  return list;
}

// What follows `.name`: nothing, or constants between commas.
Directive Parser::directive_values(std::string_view name) {
  Directive directive;
  directive.name = name;
  if (token_.kind != TokenKind::kInteger && !token_.symbol("-")) return directive;
  do directive.values.push_back(constant().bits);
  while (accept(","));
  return directive;
}

// After `.pragma`: "text" {, "text"} ;
Directive Parser::pragma() {
  Directive directive;
  directive.name = "pragma";
  do {
    if (token_.kind != TokenKind::kString) fail("a string");
    directive.strings.emplace_back(take().text);
  } while (accept(","));
  expect(";");
  return directive;
}

}  // namespace bandsaw::ptx
