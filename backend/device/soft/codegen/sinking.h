// What only slow paths use is computed there.
#pragma once

#include <llvm/IR/PassManager.h>

namespace bandsaw::soft {

// Moves instructions that only blocks use which are hardly ever reached (behind an unlikely branch) into these. LLVM's
// own pass moves them to any block that alone uses them: arithmetic between loads, say, behind all of the loads, whose
// values then wait for it in memory.
struct SinkingToSlowPaths : llvm::PassInfoMixin<SinkingToSlowPaths> {
  static llvm::PreservedAnalyses run(llvm::Function& function, llvm::FunctionAnalysisManager& analyses);
};

}  // namespace bandsaw::soft
