// A kernel's entry that runs its pieces, and the pieces (pieces.h): blocks as in a whole function, but with what
// several pieces share in a frame, and with the number of the next block as a way out.
#include "backend/device/soft/codegen/emitter.h"
#include "backend/device/soft/codegen/registers.h"

namespace bandsaw::soft {
namespace {

constexpr uint64_t kFrameAlignment = 256;  // of the widest register of all lanes

}  // namespace

void Emitter::run_entry_of(const Pieces& pieces) {
  pieces_ = &pieces;
  llvm::Type *ptr = b_.getPtrTy(), *word = b_.getInt32Ty();
  begin(llvm::FunctionType::get(b_.getVoidTy(), {ptr}, false), "k." + f_.source->name);
  auto* const frame = b_.CreateAlloca(b_.getInt8Ty(), i64(0), "frame");  // as large as it turns out to be
  frame->setAlignment(llvm::Align(kFrameAlignment));
  shared_frame_ = frame;
  create_frame();
  check_room_for_registers(f_.source->name, shared_frame_bytes_);
  frame->setOperand(0, i64(shared_frame_bytes_));
  b_.CreateMemSet(frame, b_.getInt8(0), shared_frame_bytes_, llvm::Align(kFrameAlignment));
  V live = state_field(offsetof(WarpState, live), word, "live");
  b_.CreateStore(live, active_slot_);
  b_.CreateStore(live, mask_slot_);
  V here = m_->module->getOrInsertGlobal("m.functions", b_.getInt8Ty());
  V kernel = b_.CreatePtrToInt(m_->module->getOrInsertGlobal("e." + f_.source->name, b_.getInt8Ty()), b_.getInt64Ty());
  call_helper("bsw_run_pieces", b_.getVoidTy(),
              {warp_, here, kernel, i32(pieces.count()), frame, i64(pieces.place(a_.order.front()))});
  emit_return();
}

void Emitter::run_piece(const Pieces& pieces, uint32_t piece) {
  pieces_ = &pieces;
  piece_ = piece;
  llvm::Type *ptr = b_.getPtrTy(), *place = b_.getInt64Ty();
  begin(llvm::FunctionType::get(place, {ptr, ptr, place}, false), piece_symbol(f_.source->name, piece));
  shared_frame_ = fn_->getArg(1);
  fn_->addParamAttr(1, llvm::Attribute::NoAlias);
  fn_->addParamAttr(1, llvm::Attribute::getWithAlignment(c_, llvm::Align(kFrameAlignment)));
  frame_ = i32(0);
  create_frame();
  create_piece_blocks();
  create_dispatchers();
  for (const int block : pieces.blocks(piece)) emit_block(block);
  emit_dispatchers();
  b_.SetInsertPoint(finish_);
  b_.CreateRet(i64(kNoPlace));
}

// The same places for all pieces of a kernel, as all of them come along here.
void Emitter::create_frame() {
  create_state();
  create_piece_slots();
  create_regions();
  find_block_params();
}

V Emitter::frame_place(llvm::Type* type, const std::string& name) {
  const llvm::DataLayout& layout = m_->module->getDataLayout();
  const uint64_t at = llvm::alignTo(shared_frame_bytes_, layout.getABITypeAlign(type));
  shared_frame_bytes_ = at + layout.getTypeAllocSize(type);
  return b_.CreateConstInBoundsGEP1_64(b_.getInt8Ty(), shared_frame_, at, name);
}

void Emitter::create_piece_slots() {
  for (size_t r = 0; r < f_.registers.size(); ++r) {
    slot_types_.push_back(register_type(r));
    slots_.push_back(nullptr);
    if (pieces_->shares(r)) {
      slots_[r] = frame_place(slot_types_[r], f_.registers[r].name);
    } else if (pieces_->owns(piece_, r)) {
      slots_[r] = b_.CreateAlloca(slot_types_[r], nullptr, f_.registers[r].name);
      b_.CreateStore(llvm::Constant::getNullValue(slot_types_[r]), slots_[r]);
    }
  }
}

// Those of other pieces are ways out.
void Emitter::create_piece_blocks() {
  auto* const nowhere = llvm::BasicBlock::Create(c_, "nowhere", fn_);
  auto* const choice = b_.CreateSwitch(fn_->getArg(2), nowhere);
  finish_ = llvm::BasicBlock::Create(c_, "finish", fn_);
  blocks_.assign(f_.blocks.size(), nullptr);
  for (const int block : a_.order) {
    blocks_[block] = llvm::BasicBlock::Create(c_, "b" + std::to_string(block), fn_);
    if (is_elsewhere(block)) {
      b_.SetInsertPoint(blocks_[block]);
      b_.CreateRet(i64(pieces_->place(block)));
    } else if (pieces_->is_entered(block)) {
      choice->addCase(i64(pieces_->place(block)), blocks_[block]);
    }
  }
  b_.SetInsertPoint(nowhere);
  b_.CreateUnreachable();
}

// To the block with this index in the region, wherever it is.
void Emitter::leave_piece(const Region& region, V index) {
  std::vector<uint64_t> places;
  for (const int block : region.blocks) places.push_back(pieces_->place(block));
  llvm::Constant* const values = llvm::ConstantDataArray::get(c_, places);
  auto* const table = new llvm::GlobalVariable(*m_->module, values->getType(), /*isConstant=*/true,
                                               llvm::GlobalValue::InternalLinkage, values, "places");
  V at = b_.CreateInBoundsGEP(b_.getInt64Ty(), table, b_.CreateZExt(index, b_.getInt64Ty()));
  b_.CreateRet(b_.CreateLoad(b_.getInt64Ty(), at));
}

}  // namespace bandsaw::soft
