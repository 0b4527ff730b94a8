#include "vgpu-sched/ptx/indexed.h"

#include <string>
#include <utility>
#include <vector>

#include "vgpu-sched/ptx/parser.h"
#include "vgpu-sched/ptx/scope.h"

namespace bandsaw::ptx {
namespace {

Instruction make(std::string opcode, std::vector<std::string> modifiers, std::vector<Operand> operands) {
  return {std::nullopt, std::move(opcode), std::move(modifiers), std::move(operands)};
}

Operand of(const std::string& name) { return {Register{name, ""}}; }
Operand of(uint64_t value) { return {Integer{value, false}}; }

// The instruction uses the address itself, not what lies there.
bool takes_address(const Instruction& i) { return i.opcode == "mov" || i.opcode == "cvta"; }

class FunctionAddresser {
 public:
  FunctionAddresser(const Scope& globals, Function* function)
      : globals_(globals), function_(*function), prefix_(unused_prefix(*function, "%element")) {}

  void run() {
    block(*function_.body, Scope(&globals_, function_));
    if (narrow_ + wide_ > 0) declare();
  }

 private:
  // What comes before a statement, and what its operand becomes.
  struct Found {
    size_t at, operand;
    Operand becomes;
    std::vector<Instruction> before;
  };

  // Statements move when all of the block are found: its scope points to them, inner ones' do not.
  void block(Block& block_, const Scope& scope) {
    std::vector<Found> all;
    for (size_t at = 0; at < block_.statements.size(); ++at) {
      Statement& statement = block_.statements[at];
      if (auto* inner = statement.as<Block>()) {
        block(*inner, Scope(&scope, *inner));
      } else if (const auto* instruction = statement.as<Instruction>()) {
        for (size_t o = 0; o < instruction->operands.size(); ++o) {
          const auto* symbol = instruction->operands[o].as<Symbol>();
          if (symbol && symbol->index) all.push_back(found(at, o, *instruction, *symbol, scope, statement.place));
        }
      }
    }
    if (!all.empty()) put(&block_.statements, &all);
  }

  // In one pass, since a block may have as many of them as statements.
  static void put(std::vector<Statement>* statements, std::vector<Found>* all) {
    std::vector<Statement> result;
    auto next = all->begin();
    for (size_t at = 0; at < statements->size(); ++at) {
      Statement& statement = (*statements)[at];
      for (; next != all->end() && next->at == at; ++next) {
        statement.as<Instruction>()->operands[next->operand] = std::move(next->becomes);
        for (Instruction& instruction : next->before) result.push_back({statement.place, std::move(instruction)});
      }
      result.push_back(std::move(statement));
    }
    *statements = std::move(result);
  }

  Found found(size_t at, size_t operand, const Instruction& i, const Symbol& symbol, const Scope& scope, Place place) {
    const Variable* variable = scope.find(symbol.name).variable;
    if (!variable || !variable->is_array()) fail(place, "an array", symbol.name);
    const uint64_t bytes = bits_of(variable->type) / 8;
    Found found{at, operand, {}, {}};
    if (symbol.index->by.empty()) {
      const auto offset = static_cast<int64_t>(static_cast<uint64_t>(symbol.offset) +
                                               static_cast<uint64_t>(symbol.index->plus) * bytes);
      if (takes_address(i))
        found.becomes = {Symbol{symbol.name, offset, std::nullopt}};
      else
        found.becomes = {Address{Symbol{symbol.name, 0, std::nullopt}, offset, {}}};
      return found;
    }
    const std::string address = computed(symbol, bytes, index_of(*symbol.index, scope, place), &found.before);
    if (takes_address(i))
      found.becomes = value_of(address, i, &found.before);
    else
      found.becomes = {Address{Register{address, ""}, 0, {}}};
    return found;
  }

  // The conversion of its register to 32 bits.
  std::vector<std::string> index_of(const ElementIndex& index, const Scope& scope, Place place) {
    const Registers* registers = scope.find(index.by).registers;
    const Type type = registers && registers->vector == 1 ? registers->type : Type::kNone;
    switch (is_float(type) || type == Type::kPred ? 0 : bits_of(type)) {
      case 16:
        return {"cvt", is_signed(type) ? "s32" : "u32", is_signed(type) ? "s16" : "u16"};
      case 32:
        return {"mov", "b32"};
      case 64:
        return {"cvt", "u32", "u64"};
    }
    fail(place, "an integer register as index", index.by);
  }

  // The register that has the element's address.
  std::string computed(const Symbol& symbol, uint64_t bytes, std::vector<std::string> conversion,
                       std::vector<Instruction>* before) {
    const std::string index = narrow(), offset = wide(), base = wide(), address = wide();
    std::string opcode = std::move(conversion.front());
    conversion.erase(conversion.begin());
    before->push_back(make(std::move(opcode), std::move(conversion), {of(index), of(symbol.index->by)}));
    std::string element = index;
    if (symbol.index->plus != 0) {
      element = narrow();
      const auto plus = static_cast<uint32_t>(symbol.index->plus);
      before->push_back(make("add", {"u32"}, {of(element), of(index), of(plus)}));
    }
    before->push_back(make("mul", {"wide", "u32"}, {of(offset), of(element), of(bytes)}));
    before->push_back(make("mov", {"u64"}, {of(base), {Symbol{symbol.name, symbol.offset, std::nullopt}}}));
    before->push_back(make("add", {"u64"}, {of(address), of(base), of(offset)}));
    return address;
  }

  // As wide as the instruction wants it: addresses of shared and local memory have 32 bits too.
  Operand value_of(const std::string& address, const Instruction& i, std::vector<Instruction>* before) {
    if (bits_of(i.type()) == 64) return of(address);
    const std::string value = narrow();
    before->push_back(make("cvt", {"u32", "u64"}, {of(value), of(address)}));
    return of(value);
  }

  void declare() {
    std::vector<Statement> declared;
    for (const auto& [type, name, count] :
         {std::tuple{Type::kB32, prefix_ + "_i", narrow_}, std::tuple{Type::kB64, prefix_ + "_a", wide_}}) {
      if (count == 0) continue;
      Registers registers;
      registers.type = type;
      registers.names.push_back({name, count});
      declared.push_back({function_.place, std::move(registers)});
    }
    auto& statements = function_.body->statements;
    statements.insert(statements.begin(), std::make_move_iterator(declared.begin()),
                      std::make_move_iterator(declared.end()));
  }

  std::string narrow() { return prefix_ + "_i" + std::to_string(narrow_++); }
  std::string wide() { return prefix_ + "_a" + std::to_string(wide_++); }

  [[noreturn]] static void fail(Place place, const std::string& expected, const std::string& found) {
    throw ParseError(place.line, place.column, "expected " + expected + ", found '" + found + "'");
  }

  const Scope& globals_;
  Function& function_;
  const std::string prefix_;
  uint32_t narrow_ = 0, wide_ = 0;  // registers of 32 and of 64 bits
};

}  // namespace

void address_elements(Module* module) {
  const Scope globals(*module);
  for (Item& item : module->items)
    if (auto* function = std::get_if<Function>(&item); function && function->body)
      FunctionAddresser(globals, function).run();
}

}  // namespace bandsaw::ptx
