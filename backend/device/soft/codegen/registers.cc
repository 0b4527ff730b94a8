#include "backend/device/soft/codegen/registers.h"

#include <fmt/format.h>
#include <llvm/ADT/STLExtras.h>
#include <llvm/IR/Dominators.h>
#include <llvm/IR/Function.h>
#include <llvm/IR/Instructions.h>
#include <llvm/IR/Module.h>
#include <llvm/Transforms/Utils/PromoteMemToReg.h>

#include <algorithm>
#include <stdexcept>
#include <string_view>
#include <vector>

namespace bandsaw::soft {
namespace {

// Above this, promoting registers takes many times as long as all the rest: at the start of each block LLVM may merge
// each register's values, and the time grows faster than their number.
constexpr size_t kMostMerges = 150'000;
// Of a fiber's stack, for registers that are not promoted; callees need some too.
constexpr size_t kMostSlotBytes = 4 << 20;

// Whether one block alone uses the slot, and writes it before it reads it; the entry block gives it its first value.
bool is_local(const llvm::AllocaInst& slot) {
  const llvm::BasicBlock* place = nullptr;
  for (const llvm::User* user : slot.users()) {
    const llvm::BasicBlock* block = llvm::cast<llvm::Instruction>(user)->getParent();
    if (block == slot.getParent()) continue;
    if (place && place != block) return false;
    place = block;
  }
  if (!place) return true;
  for (const llvm::Instruction& instruction : *place) {
    if (llvm::is_contained(instruction.operands(), &slot)) return llvm::isa<llvm::StoreInst>(instruction);
  }
  return true;
}

struct Slots {
  std::vector<llvm::AllocaInst*> local;
  size_t number = 0, bytes = 0;  // of the others
};

size_t bytes_of(const llvm::AllocaInst& slot) {
  const auto size = slot.getAllocationSize(slot.getModule()->getDataLayout());
  return size.value_or(llvm::TypeSize::getFixed(0)).getFixedValue();
}

Slots slots_of(llvm::Function* function) {
  Slots found;
  for (llvm::Instruction& instruction : function->getEntryBlock()) {
    auto* slot = llvm::dyn_cast<llvm::AllocaInst>(&instruction);
    if (!slot) continue;
    if (llvm::isAllocaPromotable(slot) && is_local(*slot)) {
      found.local.push_back(slot);
      continue;
    }
    found.number++;
    found.bytes += bytes_of(*slot);
  }
  return found;
}

void promote(llvm::Function* function, const std::vector<llvm::AllocaInst*>& slots) {
  if (slots.empty()) return;
  llvm::DominatorTree tree(*function);
  llvm::PromoteMemToReg(slots, tree);
}

// The value that the entry block gives a local slot is read by nobody. Without it one block has all that there is of
// the slot, and LLVM need not ask, slot by slot, where in the whole function blocks would merge two values.
void forget_first_values(const std::vector<llvm::AllocaInst*>& slots) {
  for (llvm::AllocaInst* slot : slots) {
    std::vector<llvm::Instruction*> first, others;
    for (llvm::User* user : slot->users()) {
      auto* instruction = llvm::cast<llvm::Instruction>(user);
      (instruction->getParent() == slot->getParent() ? first : others).push_back(instruction);
    }
    const bool only_stores =
        std::all_of(first.begin(), first.end(), [](const auto* use) { return llvm::isa<llvm::StoreInst>(use); });
    if (others.empty() || !only_stores) continue;
    for (llvm::Instruction* store : first) store->eraseFromParent();
  }
}

}  // namespace

void check_room_for_registers(std::string_view function, size_t bytes) {
  if (bytes <= kMostSlotBytes) return;
  throw std::runtime_error(
      fmt::format("{}: too large to be compiled: registers of a warp take {} bytes, and {} is most", function, bytes,
                  kMostSlotBytes));
}

bool promote_registers(llvm::Function* function) {
  const Slots slots = slots_of(function);
  forget_first_values(slots.local);
  const bool large = slots.number * function->size() > kMostMerges;
  if (large) check_room_for_registers(function->getName(), slots.bytes);
  promote(function, slots.local);
  return !large;
}

}  // namespace bandsaw::soft
