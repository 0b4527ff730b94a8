// The inside of a Program; only this folder's rewriters and analyses include it.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "vgpu-sched/ptx/program.h"
#include "vgpu-sched/ptx/tree.h"

namespace bandsaw::ptx {

// What of the grid a function reads, as bits.
enum Reads : uint8_t { kReadsX = 1, kReadsY = 2, kReadsZ = 4, kReadsSizeX = 8, kReadsSizeY = 16, kReadsSizeZ = 32 };

struct FunctionFacts {
  const Function* function = nullptr;          // a definition
  std::vector<uint32_t> callees;               // functions called by name, each once
  std::vector<uint32_t> taken;                 // functions whose address is taken
  std::vector<uint32_t> variables;             // module-scope variables named, each once
  std::vector<std::string_view> declarations;  // functions called that have no definition
  std::string obstacle;                        // why this code cannot run as a part of a grid; "": nothing
  uint8_t reads = 0;                           // Reads
  std::string one_block;                       // why a block of threads cannot do the work of another afterwards; ""
  uint16_t barriers = 0;                       // a bit for each barrier that is named by number
  bool calls_pointer = false, full_barrier = false, exits = false, to_const = false;
  bool polls = false;  // reads memory that others may write meanwhile
  bool wide_fence = false, global_atomic = false;
};

struct VariableFacts {
  const Variable* variable = nullptr;
  bool may_copy = false;  // never written, and nobody but this module's code can name it
};

struct ProgramFacts {
  explicit ProgramFacts(Module from);
  ProgramFacts(const ProgramFacts&) = delete;
  ProgramFacts& operator=(const ProgramFacts&) = delete;

  // A function's index by its name or by an alias of it.
  std::optional<uint32_t> function(std::string_view name) const;

  const Module module;
  std::vector<FunctionFacts> functions;
  std::vector<VariableFacts> variables;
  std::unordered_map<std::string_view, uint32_t> function_index, variable_index;
  std::unordered_map<std::string_view, const Function*> declared;  // without a definition
  std::unordered_map<std::string_view, std::string_view> aliases;
  std::vector<const Directive*> directives;  // of the module
  std::string prefix;                        // no name of the module begins with it, nor with '%' and it
};

// A kernel with all that it calls.
struct Closure {
  std::vector<uint32_t> functions;                      // the kernel first
  std::map<uint32_t, uint8_t> reads;                    // by function, with what it calls
  std::map<uint32_t, std::vector<uint32_t>> variables;  // borrowed ones, by function, with what it calls; sorted
  std::vector<uint32_t> own_variables;                  // of any space, to be declared in the new module; sorted
  std::vector<std::string_view> declarations;
};
std::variant<Closure, Refusal> close_over(const ProgramFacts& facts, std::string_view kernel);
// For analyses, of a kernel that there is: functions, own variables and declarations also where close_over() refuses.
Closure reach(const ProgramFacts& facts, std::string_view kernel);

inline constexpr size_t kMaxBorrowed = 480;  // as many addresses as fit into a small parameter block
// Parameters that are added to functions and calls, all together: a rewrite must not be much longer than its original.
inline constexpr size_t kMaxHanded = 200000;

}  // namespace bandsaw::ptx
