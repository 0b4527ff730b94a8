// A PTX function as the code generator works on it: names resolved to numbers, nested scopes gone, control flow cut
// into basic blocks. Made from the parser's tree, which must outlive it.
#pragma once

#include <algorithm>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <stdexcept>
#include <string>
#include <vector>

#include "backend/device/soft/codegen/gathering.h"
#include "backend/device/soft/codegen/inlining.h"
#include "vgpu-sched/ptx/scope.h"
#include "vgpu-sched/ptx/tree.h"

namespace bandsaw::soft {

// What is wrong with the program, with its place. The message ends up in the load log.
struct CompileError : std::runtime_error {
  CompileError(uint32_t at_line, const std::string& what)
      : std::runtime_error("line " + std::to_string(at_line) + ": " + what) {}
};

// A variable of a module or function in any state space but .reg. Places: offset in the space's frame (shared, local,
// kernel parameters); globals have a name that load() resolves.
struct Place {
  const ptx::Variable* declaration = nullptr;
  std::string name;
  ptx::Space space{};
  uint64_t offset = 0, bytes = 0;
  uint32_t number = 0;  // among the function's .param buffers
  bool dynamic_shared = false, extern_symbol = false;
  bool of_kernel = false;  // declared in one
};

enum class ArgKind : uint8_t {
  kNone,
  kReg,
  kInt,
  kFloat,
  kSreg,
  kVar,
  kFunction,
  kLabel,
  kSink,
  kVector,
  kAddress,
  kName
};

struct Arg {
  ArgKind kind = ArgKind::kNone;
  int reg = -1;                // kReg, or the base of kAddress
  const Place* var = nullptr;  // kVar, or the base of kAddress
  uint64_t bits = 0;           // kInt; kFloat's bits; kAddress's and kVar's byte offset
  bool is_double = false;      // kFloat
  bool negated = false;        // !p, or -a
  std::string name;            // kSreg, kFunction, kLabel, kName
  std::string component;       // "x", "b0", "h1"
  std::vector<Arg> elements;   // kVector; kAddress's extra operands
};

struct Op {
  const ptx::Instruction* in = nullptr;
  uint32_t line = 0;
  int guard = -1;
  bool guard_negated = false;
  std::vector<Arg> args;  // pairs p|q are two args with `pair` set
  bool pair = false;
  const ptx::Variable* param_declaration = nullptr;
};

struct Register {
  std::string name;
  ptx::Type type{};
  bool inlined = false;  // of a function that is put into it
};

struct FlatBlock {
  std::vector<Op> ops;          // the terminator, if any, is the last one
  std::vector<int> successors;  // branch target(s) first, fallthrough last
  bool sync_head = false;       // begins with an instruction that gathers lanes, or a call of a function that does
  std::optional<NamedLanes> called_with;  // of that call: the lanes that come together, where they are not the block's
};

struct FlatFunction {
  const ptx::Function* source = nullptr;
  std::vector<Register> registers;
  std::vector<FlatBlock> blocks;      // 0 is the entry
  std::map<std::string, int> labels;  // unique label -> block
  std::map<std::string, std::vector<std::string>> branch_targets;
  std::vector<Place*> places;  // owned by the module
  std::vector<Place*> parameters, returns;
  uint32_t local_bytes = 0, shared_bytes = 0, shared_align = 1;
  std::vector<std::string> callees;  // by name, and those whose shared variables it has with their code
  bool indirect_calls = false;
  std::set<Place*> module_shared;  // static shared variables of the module that it names
  bool uses_fixed_shared = false;  // those, or its own where it is no kernel
  uint64_t dynamic_align = 0;      // of the dynamic shared memory; 0: it uses none
  bool uses_barrier = false, uses_exit = false, uses_grid_sync = false, uses_reserved_shared = false,
       uses_alloca = false;

  size_t instructions() const {
    size_t count = 0;
    for (const FlatBlock& block : blocks) count += block.ops.size();
    return count;
  }
};

// Where a function's own shared variables begin, behind `end` bytes of others.
inline uint64_t shared_behind(uint64_t end, const FlatFunction& f) {
  const uint64_t align = std::max<uint64_t>(f.shared_align, 16);
  return (end + align - 1) / align * align;
}

// Every place of a module, with stable addresses.
struct FlatModule {
  const ptx::Module* source = nullptr;
  std::vector<std::unique_ptr<Place>> places;
  std::map<std::string, Place*> globals;                                  // module scope, by name
  std::map<std::pair<const ptx::Variable*, std::string>, Place*> shared;  // that functions declare
  std::vector<FlatFunction> functions;                                    // with bodies
  std::set<std::string> waiting_functions;  // in which, or in whose callees, threads wait for others of their block
  std::map<std::string, NamedLanes> gathering_functions;
  std::map<std::string, InlinedFunction> inlined;
  uint32_t fixed_shared_bytes = 0;  // static shared variables in front of a kernel's own
};

// The tree that flatten() takes: arguments and results of functions are in memory. Throws ptx::ParseError.
ptx::Module parsed(std::string_view text);

// Throws CompileError.
FlatModule flatten(const ptx::Module& module);

// Throws CompileError for an instruction whose opcode or modifier PTX does not have, so that a module with one is
// refused as a whole. Those that PTX has and this compiler has not only refuse their kernel. `first_line`: of the
// block's text.
void check_words(const ptx::Block& block, uint32_t first_line);

// Whether the instruction ends a block.
bool is_terminator(const ptx::Instruction& in);

}  // namespace bandsaw::soft
