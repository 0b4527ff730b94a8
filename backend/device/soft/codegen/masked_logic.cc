#include "backend/device/soft/codegen/masked_logic.h"

#include <llvm/IR/IRBuilder.h>
#include <llvm/IR/InstIterator.h>
#include <llvm/IR/IntrinsicInst.h>
#include <llvm/IR/Module.h>

#include <vector>

namespace bandsaw::soft {
namespace {

const llvm::Value* without_casts(const llvm::Value* value) {
  while (const auto* cast = llvm::dyn_cast<llvm::BitCastInst>(value)) value = cast->getOperand(0);
  return value;
}

bool is_logic(const llvm::Value* value) {
  const auto* instruction = llvm::dyn_cast<llvm::Instruction>(without_casts(value));
  if (!instruction) return false;
  if (instruction->isBitwiseLogicOp()) return true;
  const auto* call = llvm::dyn_cast<llvm::IntrinsicInst>(instruction);
  return instruction->getOpcode() == llvm::Instruction::FNeg ||
         (call && call->getIntrinsicID() == llvm::Intrinsic::fabs);
}

// It has three operands, once it is put together.
bool is_ternary_logic(const llvm::Value* value) {
  const auto* instruction = llvm::dyn_cast<llvm::Instruction>(without_casts(value));
  if (!instruction) return false;
  const auto* call = llvm::dyn_cast<llvm::IntrinsicInst>(instruction);
  if (call && call->getIntrinsicID() == llvm::Intrinsic::copysign) return true;
  return is_logic(instruction) &&
         llvm::any_of(instruction->operands(), [](const llvm::Use& use) { return is_logic(use); });
}

// Instructions that choose lanes have a mask for elements of 32 and of 64 bits.
bool chooses_lanes(const llvm::SelectInst& select) {
  const unsigned bits = select.getType()->getScalarSizeInBits();
  return select.getCondition()->getType()->isVectorTy() && (bits == 32 || bits == 64);
}

// The same value, behind what no instruction is joined across. It costs none itself.
llvm::Value* fenced(llvm::IRBuilder<>& builder, llvm::Value* value) {
  llvm::Type* const type = value->getType();
  llvm::Type* const element = type->getScalarSizeInBits() == 32 ? builder.getFloatTy() : builder.getDoubleTy();
  llvm::Type* const floats = type->getWithNewType(element);
  llvm::Value* const fence =
      builder.CreateUnaryIntrinsic(llvm::Intrinsic::arithmetic_fence, builder.CreateBitCast(value, floats));
  return builder.CreateBitCast(fence, type);
}

}  // namespace

void keep_logic_unmasked(llvm::Module* module) {
  std::vector<llvm::SelectInst*> selects;
  for (llvm::Function& function : *module) {
    for (llvm::Instruction& instruction : llvm::instructions(function)) {
      if (auto* select = llvm::dyn_cast<llvm::SelectInst>(&instruction); select && chooses_lanes(*select))
        selects.push_back(select);
    }
  }
  for (llvm::SelectInst* select : selects) {
    llvm::IRBuilder<> builder(select);
    for (const unsigned operand : {1u, 2u}) {
      llvm::Value* const value = select->getOperand(operand);
      if (is_ternary_logic(value)) select->setOperand(operand, fenced(builder, value));
    }
  }
}

}  // namespace bandsaw::soft
