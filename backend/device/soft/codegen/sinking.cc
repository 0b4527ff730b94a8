#include "backend/device/soft/codegen/sinking.h"

#include <llvm/ADT/DenseSet.h>
#include <llvm/ADT/DepthFirstIterator.h>
#include <llvm/ADT/PostOrderIterator.h>
#include <llvm/IR/Dominators.h>
#include <llvm/IR/Instructions.h>
#include <llvm/IR/ProfDataUtils.h>

namespace bandsaw::soft {
namespace {

using Blocks = llvm::DenseSet<const llvm::BasicBlock*>;

// Reached by nothing but the unlikely side of a branch.
bool is_unlikely(const llvm::BasicBlock* block) {
  const llvm::BasicBlock* const from = block->getSinglePredecessor();
  const auto* const branch = from ? llvm::dyn_cast<llvm::BranchInst>(from->getTerminator()) : nullptr;
  uint64_t yes = 0, no = 0;
  if (!branch || !branch->isConditional() || !llvm::extractBranchWeights(*branch, yes, no)) return false;
  constexpr uint64_t kMuch = 100;
  return branch->getSuccessor(0) == block ? yes * kMuch < no : no * kMuch < yes;
}

Blocks slow_blocks(const llvm::DominatorTree& tree) {
  Blocks slow;
  for (const auto* node : llvm::depth_first(tree.getRootNode())) {
    const auto* const above = node->getIDom();
    if (is_unlikely(node->getBlock()) || (above && slow.contains(above->getBlock()))) slow.insert(node->getBlock());
  }
  return slow;
}

bool may_move(const llvm::Instruction& one) {
  return !one.use_empty() && !one.isTerminator() && !one.isEHPad() &&
         !llvm::isa<llvm::PHINode, llvm::AllocaInst>(one) && !one.mayHaveSideEffects() && !one.mayReadFromMemory();
}

// The block before all of its uses.
llvm::BasicBlock* block_of_uses(const llvm::Instruction& one, const llvm::DominatorTree& tree) {
  llvm::BasicBlock* found = nullptr;
  for (const llvm::Use& use : one.uses()) {
    auto* const user = llvm::cast<llvm::Instruction>(use.getUser());
    const auto* const phi = llvm::dyn_cast<llvm::PHINode>(user);
    llvm::BasicBlock* const block = phi ? phi->getIncomingBlock(use) : user->getParent();
    if (!tree.isReachableFromEntry(block)) return nullptr;
    found = found ? tree.findNearestCommonDominator(found, block) : block;
  }
  return found;
}

}  // namespace

llvm::PreservedAnalyses SinkingToSlowPaths::run(llvm::Function& function, llvm::FunctionAnalysisManager& analyses) {
  const auto& tree = analyses.getResult<llvm::DominatorTreeAnalysis>(function);
  const Blocks slow = slow_blocks(tree);
  // Users before what they use.
  for (llvm::BasicBlock* block : llvm::post_order(&function)) {
    if (slow.contains(block)) continue;
    for (llvm::Instruction& one : llvm::make_early_inc_range(llvm::reverse(*block))) {
      if (!may_move(one)) continue;
      llvm::BasicBlock* const to = block_of_uses(one, tree);
      if (to && slow.contains(to)) one.moveBefore(*to, to->getFirstInsertionPt());
    }
  }
  llvm::PreservedAnalyses kept;
  kept.preserveSet<llvm::CFGAnalyses>();
  return kept;
}

}  // namespace bandsaw::soft
