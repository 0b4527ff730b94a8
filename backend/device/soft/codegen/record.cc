// Code that records what its warps do: calls of helpers before stretches and accesses (timing/trace.h).
#include "backend/device/soft/codegen/emitter.h"
#include "backend/device/soft/codegen/timing_code.h"
#include "backend/device/soft/guest_pointer.h"

namespace bandsaw::soft {
namespace {

AccessSpace access_space(ptx::Space space) {
  switch (space) {
    case ptx::Space::kShared:
      return AccessSpace::kShared;
    case ptx::Space::kLocal:
      return AccessSpace::kLocal;
    case ptx::Space::kGlobal:
      return AccessSpace::kGlobal;
    default:
      return AccessSpace::kGeneric;
  }
}

}  // namespace

void Emitter::record_stretch(int block, size_t op) {
  if (!m_->layout || !begins_stretch(f_.blocks[static_cast<size_t>(block)], op)) return;
  call_helper("bsw_record_stretch", b_.getVoidTy(), {warp_, mask_, i32(m_->layout->counter(f_, block, op))});
}

void Emitter::record_access(const Op& op) {
  if (!m_->layout) return;
  const auto access = recorded_access(op);
  if (!access) return;
  const Location l = locate(op, *access->address, access->space);
  V addresses = frame_scratch("recorded", 8ull * kLanes);
  b_.CreateStore(splat(address_of(l)), addresses);
  const auto space = static_cast<uint32_t>(access_space(l.space));
  call_helper("bsw_record_access", b_.getVoidTy(), {warp_, op_mask(op), addresses, i32(access->bytes), i32(space)});
}

}  // namespace bandsaw::soft
