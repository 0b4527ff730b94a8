// Keeps LLVM from joining a logic operation of three operands with the choice of lanes that follows it.
//
// AVX-512 does both in one instruction (vpternlog with a mask). Where one operand is in memory and lanes that are not
// chosen keep another of them, LLVM up to 22 computes the wrong function: it exchanges the permutations 231 and 312 of
// the truth table (llvm-project, issue 157929).
#pragma once

namespace llvm {
class Module;
}

namespace bandsaw::soft {

// Call after all passes on IR.
void keep_logic_unmasked(llvm::Module* module);

}  // namespace bandsaw::soft
