// The recursive-descent parser behind parse(); only this folder's parse_*.cc files include it.
#pragma once

#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "vgpu-sched/ptx/lexer.h"
#include "vgpu-sched/ptx/parser.h"
#include "vgpu-sched/ptx/tree.h"

namespace bandsaw::ptx {

class Parser {
 public:
  explicit Parser(std::string_view text) : lexer_(text) { take(); }
  Module module();
  bool has_elements() const { return has_elements_; }

 private:
  // Tokens: one is current, one more can be looked at.
  Token take();
  const Token& peek();
  bool accept(std::string_view symbol);
  bool accept_directive(std::string_view word);
  void expect(std::string_view symbol);
  std::string_view expect_name(const char* what);
  std::string_view expect_directive(const char* what);
  uint64_t expect_count(const char* what, uint64_t limit);
  [[noreturn]] void fail(const std::string& expected) const;

  struct Nested {  // counts the depth of recursion
    explicit Nested(Parser* parser);
    ~Nested() { --parser_->depth_; }
    Nested(const Nested&) = delete;
    Nested& operator=(const Nested&) = delete;
    Parser* parser_;
  };

  // Which names are registers: a scope per block.
  struct Names {
    std::unordered_map<std::string, bool> is_register;  // false: something else that hides outer registers
    struct Range {
      uint32_t count = 0;
      bool is_register = false;
    };
    std::unordered_map<std::string, Range> ranges;  // .reg r<10>
  };
  void declare(const std::string& name, std::optional<uint32_t> count, bool is_register);
  bool is_register(std::string_view name) const;

  // parse_expression.cc
  Integer constant();  // a constant expression
  Integer conditional();
  Integer binary(int level);
  Integer unary();
  Integer primary();
  Integer apply(std::string_view op, Integer a, Integer b) const;
  Integer integer_literal(const Token& token) const;
  Float float_literal(const Token& token) const;
  bool at_float();
  Float signed_float();

  // parse_operand.cc
  Operand operand(bool groups);
  Operand simple_operand();
  Operand named_operand();
  Operand address();
  ElementIndex element_index();
  std::vector<Operand> operand_list(std::string_view end);
  int64_t offset_tail();

  // parse_declaration.cc
  void modifiers(Variable* variable);
  bool modifier(Variable* variable, std::string_view word);
  void declarator(Variable* variable);
  std::vector<Variable> variables(Linkage linkage);
  std::vector<Variable> parameters();
  Initializer initializer();
  SymbolAddress symbol_address();
  Registers registers();
  std::vector<Directive> attribute_list();
  Directive directive_values(std::string_view name);
  Directive pragma();

  // parse_statement.cc
  Block block();
  void statement(std::vector<Statement>* into);
  void labelled(std::vector<Statement>* into);
  Instruction instruction();
  Location location();
  CallPrototype call_prototype(std::string label);
  Targets targets(std::string label, bool branch);

  // parser.cc
  void header(Module* module);
  void item(Module* module);
  Function function(Linkage linkage, bool entry);
  Section section();
  File file();
  Alias alias();

  Lexer lexer_;
  Token token_, ahead_;
  bool has_ahead_ = false;
  int depth_ = 0;
  std::vector<Names> scopes_{1};
  bool has_elements_ = false;       // of arrays, as operands
  bool percent_variables_ = false;  // names that begin with % are not all registers
};

}  // namespace bandsaw::ptx
