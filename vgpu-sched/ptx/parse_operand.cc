#include <string>

#include "vgpu-sched/ptx/parser_impl.h"

namespace bandsaw::ptx {

// `groups`: a parenthesis opens a call's list, not a constant expression.
Operand Parser::operand(bool groups) {
  Nested nested(this);
  if (groups && accept("(")) return {Group{operand_list(")")}};
  Operand first = simple_operand();
  bool paired = first.as<Register>() || first.as<Sink>() || first.as<Vector>() || first.as<Negated>();
  if (!paired || !accept("|")) return first;
  Pair pair;
  pair.elements.push_back(std::move(first));
  pair.elements.push_back(simple_operand());
  return {std::move(pair)};
}

std::vector<Operand> Parser::operand_list(std::string_view end) {
  std::vector<Operand> list;
  if (accept(end)) return list;
  do list.push_back(operand(false));
  while (accept(","));
  expect(end);
  return list;
}

Operand Parser::simple_operand() {
  if (token_.kind == TokenKind::kName && token_.text != "WARP_SZ") return named_operand();
  if (accept("{")) return {Vector{operand_list("}")}};
  if (token_.symbol("[")) return address();
  bool sign = token_.symbol("!") || token_.symbol("-");
  if (sign && peek().kind == TokenKind::kName && peek().text != "WARP_SZ") {
    Negated negated{.arithmetic = take().text == "-", .element = {}};
    negated.element.push_back(named_operand());
    return {std::move(negated)};
  }
  if (at_float()) return {signed_float()};
  bool number = token_.kind == TokenKind::kInteger || sign || token_.symbol("(") || token_.symbol("~") ||
                token_.symbol("+") || token_.kind == TokenKind::kName;
  if (!number) fail("an operand");
  return {constant()};
}

Operand Parser::named_operand() {
  std::string name(take().text);
  if (name == "_") return {Sink{}};
  if (is_register(name)) {
    Register found{.name = std::move(name), .component = {}};
    if (token_.kind == TokenKind::kDirective) found.component = take().text;
    return {std::move(found)};
  }
  Symbol symbol{.name = std::move(name), .offset = 0, .index = std::nullopt};
  if (accept("[")) {
    symbol.index = element_index();
    expect("]");
    has_elements_ = true;
  }
  symbol.offset = offset_tail();
  return {std::move(symbol)};
}

// A constant, a register, or a register and a constant
ElementIndex Parser::element_index() {
  if (token_.kind != TokenKind::kName || !is_register(token_.text)) return {"", constant().value()};
  ElementIndex index{std::string(take().text), 0};
  index.plus = offset_tail();
  return index;
}

// {+- constant}: what may follow a base
int64_t Parser::offset_tail() {
  uint64_t offset = 0;
  while (token_.symbol("+") || token_.symbol("-")) {
    bool minus = take().text == "-";
    uint64_t term = binary(9).bits;
    offset = minus ? offset - term : offset + term;
  }
  return static_cast<int64_t>(offset);
}

Operand Parser::address() {
  expect("[");
  Address address;
  if (token_.kind == TokenKind::kName && token_.text != "WARP_SZ") {
    std::string name(take().text);
    if (is_register(name))
      address.base = Register{.name = std::move(name), .component = {}};
    else
      address.base = Symbol{.name = std::move(name), .offset = 0, .index = std::nullopt};
    address.offset = offset_tail();
  } else {
    address.offset = constant().value();
  }
  while (accept(",")) address.extra.push_back(operand(false));
  expect("]");
  return {std::move(address)};
}

}  // namespace bandsaw::ptx
