#include "vgpu-sched/ptx/count.h"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "vgpu-sched/ptx/instruction_mix.h"
#include "vgpu-sched/ptx/slice.h"
#include "vgpu-sched/ptx/special.h"

namespace bandsaw::ptx {
namespace {

// Of one thread, in a piece of code that it runs from the first instruction to the last.
struct Counts {
  uint64_t instructions = 0, accesses = 0, bytes = 0;
};

Counts counts_of(const InstructionMix& mix) {
  const auto whole = [](double weight) { return static_cast<uint64_t>(std::llround(std::min(weight, 1e9))); };
  return {whole(mix.total()), whole(mix.load_global + mix.store_global + mix.atomic),
          whole(mix.load_global_bytes + mix.store_global_bytes)};
}

class Counter {
 public:
  Counter(const ProgramFacts& facts, const Closure& closure, const Transplant& moved)
      : facts_(facts), called_(instruction_mixes_of_called(facts, closure)), moved_(moved) {}

  void rewrite(Block* block) {
    std::vector<Statement> old = std::exchange(block->statements, {});
    std::vector<Statement>& made = block->statements;
    size_t begin = 0;  // of the piece of code that is read, in `made`
    const auto end_piece = [&] {
      insert(&made, begin, sum_text());
      begin = made.size();
    };
    for (Statement& statement : old) {
      auto* const inner = statement.as<Block>();
      const auto* const i = statement.as<Instruction>();
      const Kind kind = i ? kind_of(*i) : Kind::kOther;
      const bool between = inner || statement.as<Label>(), jumps = kind == Kind::kBranch || kind == Kind::kEnd;
      if (between) end_piece();
      if (inner) rewrite(inner);
      if (i) add(*i, kind);
      if (kind == Kind::kEnd && i->opcode != "trap") insert(&made, made.size(), flush_text(), i->guard);
      made.push_back(std::move(statement));
      if (between || jumps) end_piece();
    }
    end_piece();
  }

  // Where the kernel ends without saying so.
  void end(Block* body) { insert(&body->statements, body->statements.size(), flush_text()); }

 private:
  void add(const Instruction& i, Kind kind) {
    ++piece_.instructions;
    const Access access = access_of(i, kind);
    piece_.accesses += access.global;
    piece_.bytes += access.bytes;
    if (kind == Kind::kCall) add_called(i);
  }

  // What is called counts as its text has it: loops ten times.
  void add_called(const Instruction& call) {
    for (const Operand& operand : call.operands) {
      const auto* symbol = operand.as<Symbol>();
      const auto function = symbol ? facts_.function(symbol->name) : std::nullopt;
      const auto found = function ? called_.find(*function) : called_.end();
      if (found == called_.end()) continue;
      const Counts inner = counts_of(found->second);
      piece_.instructions += inner.instructions;
      piece_.accesses += inner.accesses;
      piece_.bytes += inner.bytes;
      return;
    }
  }

  std::string sum_text() {
    const Counts piece = std::exchange(piece_, {});
    std::string text;
    const auto line = [&text](const char* name, uint64_t count) {
      const std::string counter = name;
      if (count > 0) text += "add.u64 " + counter + ", " + counter + ", " + std::to_string(count) + ";\n";
    };
    line("%$instructions", piece.instructions);
    line("%$accesses", piece.accesses);
    line("%$bytes", piece.bytes);
    return text;
  }

  static std::string flush_text() {
    const auto line = [](const char* name, size_t at) {
      return "red.global.add.u64 [%$counts+" + std::to_string(at) + "], " + name + ";\n";
    };
    return line("%$instructions", offsetof(CountsOfBlocks, instructions)) +
           line("%$accesses", offsetof(CountsOfBlocks, accesses)) + line("%$bytes", offsetof(CountsOfBlocks, bytes));
  }

  void insert(std::vector<Statement>* to, size_t at, const std::string& text,
              const std::optional<Guard>& guard = std::nullopt) const {
    if (text.empty()) return;
    std::vector<Statement> added = moved_.statements(text);
    for (Statement& statement : added) statement.as<Instruction>()->guard = guard;
    to->insert(to->begin() + static_cast<ptrdiff_t>(at), std::make_move_iterator(added.begin()),
               std::make_move_iterator(added.end()));
  }

  const ProgramFacts& facts_;
  const std::map<uint32_t, InstructionMix> called_;
  const Transplant& moved_;
  Counts piece_;
};

}  // namespace

size_t add_counters(const ProgramFacts& facts, const Closure& closure, Transplant* moved) {
  const size_t at = moved->add_parameter("counts", Type::kU64);
  Block& body = *moved->kernel().body;
  Counter counter(facts, closure, *moved);
  counter.rewrite(&body);
  counter.end(&body);
  std::vector<Statement> entry = moved->statements(
      ".reg .b64 %$counts, %$instructions, %$accesses, %$bytes;\nld.param.b64 %$counts, [$counts];\n"
      "mov.b64 %$instructions, 0;\nmov.b64 %$accesses, 0;\nmov.b64 %$bytes, 0;\n");
  body.statements.insert(body.statements.begin(), std::make_move_iterator(entry.begin()),
                         std::make_move_iterator(entry.end()));
  return at;
}

}  // namespace bandsaw::ptx
