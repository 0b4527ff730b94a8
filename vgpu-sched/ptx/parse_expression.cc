// Constant expressions (PTX ISA, section 4.5): 64-bit integers with C's operators, and floating point literals.
#include <algorithm>
#include <bit>
#include <cstdlib>
#include <iterator>
#include <string>

#include "vgpu-sched/ptx/parser_impl.h"

namespace bandsaw::ptx {
namespace {

struct Operator {
  std::string_view text;
  int level;
};
constexpr Operator kOperators[] = {{"||", 0}, {"&&", 1}, {"|", 2}, {"^", 3},  {"&", 4},  {"==", 5},
                                   {"!=", 5}, {"<", 6},  {">", 6}, {"<=", 6}, {">=", 6}, {"<<", 7},
                                   {">>", 7}, {"+", 8},  {"-", 8}, {"*", 9},  {"/", 9},  {"%", 9}};

const Operator* operator_of(std::string_view text) {
  const auto* const found = std::ranges::find(kOperators, text, &Operator::text);
  return found == std::end(kOperators) ? nullptr : found;
}

int digit_value(char c) {
  if (c >= '0' && c <= '9') return c - '0';
  if (c >= 'a' && c <= 'f') return c - 'a' + 10;
  if (c >= 'A' && c <= 'F') return c - 'A' + 10;
  return 99;
}

// False on an empty text, a foreign digit and overflow.
bool parse_digits(std::string_view digits, unsigned base, uint64_t* value) {
  *value = 0;
  for (char c : digits) {
    unsigned digit = digit_value(c);
    if (digit >= base) return false;
    if (__builtin_mul_overflow(*value, uint64_t{base}, value) || __builtin_add_overflow(*value, digit, value))
      return false;
  }
  return !digits.empty();
}

}  // namespace

Integer Parser::integer_literal(const Token& token) const {
  std::string_view digits = token.text;
  Integer result;
  if (!digits.empty() && (digits.back() == 'U' || digits.back() == 'u')) {
    result.is_unsigned = true;
    digits.remove_suffix(1);
  }
  unsigned base = 10;
  if (digits.size() > 1 && digits[0] == '0') {
    char prefix = digits[1];
    base = prefix == 'x' || prefix == 'X' ? 16 : prefix == 'b' || prefix == 'B' ? 2 : 8;
    digits.remove_prefix(base == 8 ? 1 : 2);
  }
  if (!parse_digits(digits, base, &result.bits))
    throw ParseError(token.place.line, token.place.column, "expected an integer of at most 64 bits");
  if (result.bits >> 63) result.is_unsigned = true;
  return result;
}

Float Parser::float_literal(const Token& token) const {
  std::string_view text = token.text;
  char kind = text.size() > 2 && text[0] == '0' ? text[1] : '\0';
  bool single = kind == 'f' || kind == 'F', hexadecimal = single || kind == 'd' || kind == 'D';
  Float result{.bits = 0, .is_double = !single};
  if (hexadecimal) {
    size_t digits = single ? 8 : 16;
    if (text.size() != digits + 2 || !parse_digits(text.substr(2), 16, &result.bits))
      throw ParseError(token.place.line, token.place.column, "expected " + std::to_string(digits) + " hex digits");
    return result;
  }
  std::string copy(text);
  char* end = nullptr;
  result.bits = std::bit_cast<uint64_t>(std::strtod(copy.c_str(), &end));
  if (*end) throw ParseError(token.place.line, token.place.column, "expected a floating point number");
  return result;
}

bool Parser::at_float() {
  if (token_.kind == TokenKind::kFloat) return true;
  return (token_.symbol("-") || token_.symbol("+")) && peek().kind == TokenKind::kFloat;
}

Float Parser::signed_float() {
  bool negative = accept("-");
  if (!negative) accept("+");
  Float value = float_literal(take());
  if (negative) value.bits ^= uint64_t{1} << (value.is_double ? 63 : 31);
  return value;
}

Integer Parser::constant() {
  Nested nested(this);
  return conditional();
}

Integer Parser::conditional() {
  Integer condition = binary(0);
  if (!accept("?")) return condition;
  Integer yes = constant();
  expect(":");
  Integer no = constant();
  Integer result = condition.bits ? yes : no;
  result.is_unsigned = yes.is_unsigned || no.is_unsigned;
  return result;
}

// What operators of this level and higher ones bind.
Integer Parser::binary(int level) {
  Integer left = unary();
  for (;;) {
    const Operator* const op = token_.kind == TokenKind::kSymbol ? operator_of(token_.text) : nullptr;
    if (!op || op->level < level) return left;
    take();
    left = apply(op->text, left, binary(op->level + 1));
  }
}

Integer Parser::apply(std::string_view op, Integer a, Integer b) const {
  bool is_unsigned = a.is_unsigned || b.is_unsigned;
  auto compare = [&](auto less) { return is_unsigned ? less(a.bits, b.bits) : less(a.value(), b.value()); };
  auto truth = [](bool value) { return Integer{value, false}; };
  if (op == "||") return truth(a.bits || b.bits);
  if (op == "&&") return truth(a.bits && b.bits);
  if (op == "==") return truth(a.bits == b.bits);
  if (op == "!=") return truth(a.bits != b.bits);
  if (op == "<") return truth(compare([](auto x, auto y) { return x < y; }));
  if (op == ">") return truth(compare([](auto x, auto y) { return x > y; }));
  if (op == "<=") return truth(compare([](auto x, auto y) { return x <= y; }));
  if (op == ">=") return truth(compare([](auto x, auto y) { return x >= y; }));
  if (op == "|") return {a.bits | b.bits, is_unsigned};
  if (op == "^") return {a.bits ^ b.bits, is_unsigned};
  if (op == "&") return {a.bits & b.bits, is_unsigned};
  if (op == "+") return {a.bits + b.bits, is_unsigned};
  if (op == "-") return {a.bits - b.bits, is_unsigned};
  if (op == "*") return {a.bits * b.bits, is_unsigned};
  if (op == "<<") return {b.bits > 63 ? 0 : a.bits << b.bits, a.is_unsigned};
  if (op == ">>") {
    if (a.is_unsigned) return {b.bits > 63 ? 0 : a.bits >> b.bits, true};
    return {static_cast<uint64_t>(a.value() >> (b.bits > 63 ? 63 : b.bits)), false};
  }
  if (b.bits == 0) fail("a divisor other than zero");
  if (is_unsigned) return {op == "/" ? a.bits / b.bits : a.bits % b.bits, true};
  if (b.value() == -1) return {op == "/" ? -a.bits : 0, false};  // INT64_MIN / -1 would trap
  return {static_cast<uint64_t>(op == "/" ? a.value() / b.value() : a.value() % b.value()), false};
}

Integer Parser::unary() {
  if (token_.kind != TokenKind::kSymbol) return primary();
  Nested nested(this);
  if (accept("-")) {
    Integer value = unary();
    return {-value.bits, value.is_unsigned && value.bits != uint64_t{1} << 63};
  }
  if (accept("+")) return unary();
  if (accept("~")) {
    Integer value = unary();
    return {~value.bits, value.is_unsigned};
  }
  if (accept("!")) return {unary().bits == 0, false};
  return primary();
}

Integer Parser::primary() {
  if (token_.kind == TokenKind::kInteger) return integer_literal(take());
  if (token_.is(TokenKind::kName, "WARP_SZ")) {
    take();
    return {32, false};
  }
  if (!token_.symbol("(")) fail("a constant");
  take();
  if (token_.is(TokenKind::kDirective, "s64") || token_.is(TokenKind::kDirective, "u64")) {  // a cast
    bool is_unsigned = take().text == "u64";
    expect(")");
    return {unary().bits, is_unsigned};
  }
  Integer value = constant();
  expect(")");
  return value;
}

}  // namespace bandsaw::ptx
