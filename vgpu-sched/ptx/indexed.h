// Elements of arrays as operands (PTX ISA, section 6.4.2): `ld.global.u64 %rd1, array[%r1+2]`, `mov.u64 %rd1,
// array[2]`.
#pragma once

#include "vgpu-sched/ptx/tree.h"

namespace bandsaw::ptx {

// Replaces each by an address, as ptxas computes it: the register, sign-extended or zero-extended to 32 bits by its own
// type or cut to them, and the constant make an unsigned 32-bit index; it counts scalars, also in arrays of vectors and
// of arrays. What is computed gets registers and instructions of its own before the one that has it. Throws ParseError
// where the name is no array or the index no integer register.
void address_elements(Module* module);

}  // namespace bandsaw::ptx
