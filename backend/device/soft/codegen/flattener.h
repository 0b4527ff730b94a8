// Makes a FlatFunction of one function of the tree. Inside of flat*.cc only.
#pragma once

#include <map>
#include <string>
#include <utility>
#include <vector>

#include "backend/device/soft/codegen/flat.h"

namespace bandsaw::soft {

// Labels and lists of them get unique names, since scopes and bodies of functions repeat them: "name#number".
inline std::string name_of(const std::string& key) { return key.substr(0, key.find('#')); }

class Flattener {
 public:
  Flattener(FlatModule* module, const ptx::Scope* globals, const ptx::Function& function)
      : module_(module), globals_(globals) {
    f_.source = &function;
  }
  FlatFunction run();

 private:
  // What the declarations of the function, or of one that is put into it, have become.
  struct Names {
    std::map<std::pair<const ptx::Registers*, std::string>, int> registers;
    std::map<std::pair<const ptx::Variable*, std::string>, Place*> places;
    std::map<const ptx::Label*, std::string> labels;
  };
  // What is put in the place of a call, if anything.
  struct Inlined {
    std::string function, end;               // the label behind it
    size_t number = 0, depth = 0;            // among all; in so many others, itself counted
    const ptx::Instruction* last = nullptr;  // of its body
    bool left = false;                       // something branches to its end
  };

  std::string new_label(const std::string& name) { return name + "#" + std::to_string(++labels_); }
  std::string target_list(const std::string& name) const { return name + "#" + std::to_string(inlined_.number); }

  // ---- variables: flat.cc ----
  Place* new_place(const ptx::Variable& v, const std::string& name);
  Place* shared_place(const ptx::Variable& v, const std::string& name);
  Place* add_place(const ptx::Variable& v, const std::string& name);
  void add_places(const ptx::Variable& v);
  void add_parameters(const ptx::Function& source);

  // ---- statements: flat.cc ----
  void visit(const ptx::Block& block, const ptx::Scope& scope);
  void add_targets(const ptx::Targets& targets, uint32_t line, const ptx::Scope& scope);
  std::string label_key(const ptx::Label* label);
  void start_block(const std::string& label);
  bool ends_long_block(const ptx::Instruction& next) const;
  void add_instruction(const ptx::Instruction& in, uint32_t line, const ptx::Scope& scope);
  void note(const ptx::Instruction& in, const Op& op);
  void note_place(const Place* p);
  int target(const std::string& key, uint32_t line);
  void finish();

  // ---- calls: flat_calls.cc ----
  // Puts the body of what is called in the place of the call; false: it stays a call.
  bool inline_call(const ptx::Instruction& in, uint32_t line, const ptx::Scope& scope);
  bool bind(const std::vector<ptx::Variable>& declared, const ptx::Group* passed, const ptx::Scope& scope, Names* to);
  bool is_buffer(const Place* place) const;
  void leave(Inlined* inlined, int guard, bool negated, uint32_t line);

  // ---- operands: flat_operands.cc ----
  int reg(const ptx::Register& r, const ptx::Scope& scope, uint32_t line);
  int numbered(const ptx::Registers& declared, const std::string& name);
  Arg vector_register(const ptx::Register& r, const ptx::Registers& declared, uint32_t line);
  const Place* find_place(const ptx::Declaration& d, const std::string& name);
  Arg symbol(const ptx::Symbol& s, const ptx::Scope& scope, uint32_t line);
  Arg arg(const ptx::Operand& o, const ptx::Scope& scope, uint32_t line);

  FlatModule* module_;
  const ptx::Scope* globals_;
  FlatFunction f_;
  Names names_;
  Inlined inlined_;               // the innermost
  size_t added_ = 0, calls_ = 0;  // instructions of other functions; calls that are replaced
  size_t labels_ = 0;
  uint32_t buffers_ = 0, numbered_ = 0;
  uint64_t local_end_ = 0, shared_end_ = 0;
};

}  // namespace bandsaw::soft
