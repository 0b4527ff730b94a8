// A kernel taken out of its module, with all that it calls: reads of the block's index and of the grid's size become
// reads of registers, and variables of the original module are reached through addresses handed in as parameters.
// Inside of this folder only.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "vgpu-sched/ptx/program_facts.h"

namespace bandsaw::ptx {

// The registers that stand for what a kernel reads are, in every function, "%" + prefix + x, y, z (block) and
// gx, gy, gz (grid), .b32 all. The kernel's own are declared, but nothing sets them yet.
class Transplant {
 public:
  // Rewrites everything; afterwards either refusal() says why not, or the rest may be used.
  Transplant(const ProgramFacts& facts, const Closure& closure);

  const std::string& refusal() const { return refusal_; }
  uint8_t reads() const { return reads_; }
  const std::string& prefix() const { return prefix_; }
  Function& kernel() { return kernel_; }

  // Appends a parameter "prefix + suffix"; its offset in the packed block.
  size_t add_parameter(std::string_view suffix, Type type);
  // The same for the variables that the kernel goes on to use.
  std::vector<BorrowedVariable> add_variables();
  size_t parameter_bytes() const { return parameter_bytes_; }

  // Statements from text, in which $ stands for the prefix.
  std::vector<Statement> statements(std::string text) const;
  // What has to stand before the original body: declarations, and loads of borrowed addresses.
  const std::string& entry_text() const { return entry_text_; }

  // The module's text; refuses (empty text, refusal()) if there are more parameters than a launch takes.
  std::string finish();

 private:
  void declare_variables();
  void add_function(uint32_t function);

  const ProgramFacts& facts_;
  const Closure& closure_;
  Module module_;
  Function kernel_;
  std::vector<Item> definitions_;
  std::string prefix_, entry_text_, refusal_;
  uint8_t reads_ = 0;
  size_t parameter_bytes_ = 0, handed_ = 0;
};

// Text for statements(): registers for parts of the grid that the kernel does not read itself, with t, q, u to compute
// in; loads of the grid's size from the parameters grid_x, grid_y, grid_z. Both sets are of Reads.
std::string grid_declarations(uint8_t reads, uint8_t wanted);
std::string grid_loads(uint8_t wanted);

// 90 for sm_90a; 0 if the first target is none.
unsigned architecture_of(const Module& module);

}  // namespace bandsaw::ptx
