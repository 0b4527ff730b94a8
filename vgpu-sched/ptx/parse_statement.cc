#include <limits>
#include <string>

#include "vgpu-sched/ptx/parser_impl.h"

namespace bandsaw::ptx {
namespace {

constexpr uint64_t kMax32 = std::numeric_limits<uint32_t>::max();

}  // namespace

Block Parser::block() {
  Nested nested(this);
  expect("{");
  scopes_.emplace_back();
  Block block;
  while (!token_.symbol("}")) {
    if (token_.kind == TokenKind::kEnd) fail("'}'");
    statement(&block.statements);
  }
  scopes_.pop_back();
  take();
  return block;
}

void Parser::statement(std::vector<Statement>* into) {
  Place place = token_.place;
  if (token_.symbol("{")) return into->push_back({place, block()}), void();
  if (accept(";")) return;
  if (token_.kind == TokenKind::kName && peek().symbol(":")) return labelled(into);
  if (token_.kind == TokenKind::kName || token_.symbol("@")) return into->push_back({place, instruction()}), void();
  if (token_.kind != TokenKind::kDirective) fail("a statement");
  if (accept_directive("reg")) return into->push_back({place, registers()}), void();
  if (accept_directive("loc")) return into->push_back({place, location()}), void();
  if (accept_directive("pragma")) return into->push_back({place, pragma()}), void();
  Linkage linkage = Linkage::kNone;
  if (auto found = linkage_of(token_.text)) {
    linkage = *found;
    take();
  }
  if (token_.kind != TokenKind::kDirective || !space_of(token_.text)) fail("a statement");
  for (Variable& variable : variables(linkage)) into->push_back({variable.place, std::move(variable)});
}

// label: alone, or before .callprototype, .calltargets, .branchtargets
void Parser::labelled(std::vector<Statement>* into) {
  Place place = token_.place;
  std::string label(take().text);
  expect(":");
  declare(label, std::nullopt, false);
  if (accept_directive("callprototype"))
    into->push_back({place, call_prototype(std::move(label))});
  else if (accept_directive("calltargets"))
    into->push_back({place, targets(std::move(label), false)});
  else if (accept_directive("branchtargets"))
    into->push_back({place, targets(std::move(label), true)});
  else
    into->push_back({place, Label{std::move(label)}});
}

Instruction Parser::instruction() {
  Instruction instruction;
  if (accept("@")) {
    Guard guard;
    guard.negated = accept("!");
    guard.predicate.name = expect_name("a predicate");
    if (token_.kind == TokenKind::kDirective) guard.predicate.component = take().text;
    instruction.guard = std::move(guard);
  }
  instruction.opcode = expect_name("an instruction");
  while (token_.kind == TokenKind::kDirective) instruction.modifiers.emplace_back(take().text);
  if (accept(";")) return instruction;
  bool call = instruction.opcode == "call";
  do instruction.operands.push_back(operand(call));
  while (accept(","));
  expect(";");
  return instruction;
}

// file line column [, function_name label {+ n}, inlined_at file line column]: nothing ends it but its grammar
Location Parser::location() {
  Location location;
  location.file = expect_count("a file's number", kMax32);
  location.line = expect_count("a line", kMax32);
  location.column = expect_count("a column", kMax32);
  if (!accept(",")) return location;
  if (!token_.is(TokenKind::kName, "function_name")) fail("function_name");
  take();
  location.tail.append("function_name ").append(expect_name("a label"));
  if (int64_t offset = offset_tail()) {
    location.tail.append(offset < 0 ? "-" : "+");
    location.tail.append(std::to_string(offset < 0 ? -static_cast<uint64_t>(offset) : static_cast<uint64_t>(offset)));
  }
  expect(",");
  if (!token_.is(TokenKind::kName, "inlined_at")) fail("inlined_at");
  take();
  location.tail.append(", inlined_at");
  for (const char* part : {"a file's number", "a line", "a column"})
    location.tail.append(" ").append(std::to_string(expect_count(part, kMax32)));
  return location;
}

// {(returns)} _ {(parameters)} {.noreturn} ...;
CallPrototype Parser::call_prototype(std::string label) {
  CallPrototype prototype;
  prototype.label = std::move(label);
  scopes_.emplace_back();  // its parameters name nothing outside
  if (token_.symbol("(")) prototype.returns = parameters();
  expect_name("_");
  if (token_.symbol("(")) prototype.parameters = parameters();
  scopes_.pop_back();
  while (token_.kind == TokenKind::kDirective) prototype.directives.push_back(directive_values(take().text));
  expect(";");
  return prototype;
}

Targets Parser::targets(std::string label, bool branch) {
  Targets targets{.label = std::move(label), .branch = branch, .names = {}};
  do targets.names.emplace_back(expect_name(branch ? "a label" : "a function"));
  while (accept(","));
  expect(";");
  return targets;
}

}  // namespace bandsaw::ptx
