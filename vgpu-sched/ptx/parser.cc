// The module level (PTX ISA, section 11), and the parser's hold on its tokens.
#include "vgpu-sched/ptx/parser.h"

#include <limits>
#include <utility>

#include "vgpu-sched/ptx/indexed.h"
#include "vgpu-sched/ptx/parser_impl.h"

namespace bandsaw::ptx {

ParseError::ParseError(uint32_t at_line, uint32_t at_column, const std::string& what_was_expected)
    : std::runtime_error(std::to_string(at_line) + ":" + std::to_string(at_column) + ": " + what_was_expected),
      line(at_line),
      column(at_column),
      message(what_was_expected) {}

Module parse(std::string_view text, bool complete) {
  while (!text.empty() && text.back() == '\0') text.remove_suffix(1);
  Parser parser(text);
  Module module = parser.module();
  if (complete && parser.has_elements()) address_elements(&module);
  return module;
}

Parser::Nested::Nested(Parser* parser) : parser_(parser) {
  if (parser->depth_ >= kMaxNesting) parser->fail("less nesting");
  ++parser->depth_;
}

Token Parser::take() {
  Token taken = token_;
  token_ = has_ahead_ ? ahead_ : lexer_.next();
  has_ahead_ = false;
  return taken;
}

const Token& Parser::peek() {
  if (!has_ahead_) ahead_ = lexer_.next();
  has_ahead_ = true;
  return ahead_;
}

void Parser::fail(const std::string& expected) const {
  std::string found = token_.kind == TokenKind::kEnd ? "the end" : "'" + std::string(token_.text.substr(0, 80)) + "'";
  throw ParseError(token_.place.line, token_.place.column, "expected " + expected + ", found " + found);
}

bool Parser::accept(std::string_view symbol) {
  if (!token_.symbol(symbol)) return false;
  take();
  return true;
}

bool Parser::accept_directive(std::string_view word) {
  if (!token_.is(TokenKind::kDirective, word)) return false;
  take();
  return true;
}

void Parser::expect(std::string_view symbol) {
  if (!accept(symbol)) fail("'" + std::string(symbol) + "'");
}

std::string_view Parser::expect_name(const char* what) {
  if (token_.kind != TokenKind::kName) fail(what);
  return take().text;
}

std::string_view Parser::expect_directive(const char* what) {
  if (token_.kind != TokenKind::kDirective) fail(what);
  return take().text;
}

uint64_t Parser::expect_count(const char* what, uint64_t limit) {
  if (token_.kind != TokenKind::kInteger) fail(what);
  uint64_t value = integer_literal(token_).bits;
  if (value > limit) fail(std::string(what) + " of at most " + std::to_string(limit));
  take();
  return value;
}

Module Parser::module() {
  Module module;
  header(&module);
  while (token_.kind != TokenKind::kEnd) item(&module);
  return module;
}

// .version, .target, .address_size, in this order
void Parser::header(Module* module) {
  if (!accept_directive("version")) fail(".version");
  std::string_view version = token_.text;
  size_t dot = version.find('.');
  bool good = token_.kind == TokenKind::kFloat && dot >= 1 && dot <= 3 && version.size() > dot + 1 &&
              version.size() <= dot + 4 && version.find_first_not_of("0123456789.") == std::string_view::npos;
  if (!good) fail("a version, as 9.0");
  module->version_major = std::stoul(std::string(version.substr(0, dot)));
  module->version_minor = std::stoul(std::string(version.substr(dot + 1)));
  take();
  if (!accept_directive("target")) fail(".target");
  do module->targets.emplace_back(expect_name("a target"));
  while (accept(","));
  if (accept_directive("address_size")) module->address_size = expect_count("32 or 64", 64);
}

void Parser::item(Module* module) {
  auto add = [module](auto&& value) { module->items.emplace_back(std::forward<decltype(value)>(value)); };
  if (accept(";")) return;
  if (accept_directive("file")) return add(file());
  if (accept_directive("section")) return add(section());
  if (accept_directive("alias")) return add(alias());
  if (accept_directive("pragma")) return add(pragma());
  if (token_.kind != TokenKind::kDirective) fail("a directive");
  Linkage linkage = Linkage::kNone;
  if (auto found = linkage_of(token_.text)) {
    linkage = *found;
    take();
  }
  bool entry = accept_directive("entry");
  if (entry || accept_directive("func")) return add(function(linkage, entry));
  if (token_.kind != TokenKind::kDirective || !space_of(token_.text)) fail("a function, variable or directive");
  for (Variable& variable : variables(linkage)) add(std::move(variable));
}

Function Parser::function(Linkage linkage, bool entry) {
  Function function;
  function.place = token_.place;
  function.linkage = linkage;
  function.entry = entry;
  while (accept_directive("attribute"))
    for (Directive& attribute : attribute_list()) function.attributes.push_back(std::move(attribute));
  scopes_.emplace_back();
  if (!entry && token_.symbol("(")) function.returns = parameters();
  function.name = expect_name("a function's name");
  if (token_.symbol("(")) function.parameters = parameters();
  while (token_.kind == TokenKind::kDirective && !linkage_of(token_.text)) {
    std::string_view word = take().text;
    function.directives.push_back(word == "pragma" ? pragma() : directive_values(word));
  }
  // ptxas takes a prototype that nothing ends, as XLA has one.
  const bool ends_here = linkage == Linkage::kExtern && token_.kind == TokenKind::kDirective;
  if (!accept(";") && !ends_here) {
    if (!token_.symbol("{")) fail("'{' or ';'");
    function.body = block();
  }
  scopes_.pop_back();
  return function;
}

Section Parser::section() {
  Section section;
  if (token_.kind == TokenKind::kDirective)
    section.name = "." + std::string(take().text);
  else
    section.name = expect_name("a section's name");
  if (!token_.symbol("{")) fail("'{'");
  if (has_ahead_) fail("a section's data");  // cannot be: nothing here looks ahead
  section.text = lexer_.raw_until_brace();
  take();
  return section;
}

// number "name" [, time, size]
File Parser::file() {
  File file;
  file.index = expect_count("a file's number", std::numeric_limits<uint32_t>::max());
  if (token_.kind != TokenKind::kString) fail("a file's name");
  file.name = take().text;
  while (accept(",")) file.values.push_back(constant().bits);
  return file;
}

Alias Parser::alias() {
  Alias alias;
  alias.name = expect_name("a function's name");
  expect(",");
  alias.target = expect_name("a function's name");
  expect(";");
  return alias;
}

}  // namespace bandsaw::ptx
