// Scalar and SIMD video instructions (PTX ISA 9.7.17).
#include "backend/device/soft/codegen/emitter.h"

namespace bandsaw::soft {

void Emitter::op_video(const Op& op) { unsupported(op); }

}  // namespace bandsaw::soft
