// PTX registers in LLVM's IR: the emitter gives each a slot on the stack, and what is worth it becomes a value of
// LLVM's.
#pragma once

#include <cstddef>

namespace llvm {
class Function;
}  // namespace llvm

namespace bandsaw::soft {

// Of a fiber's stack, for registers that are not promoted; callees need some too.
inline constexpr size_t kMostSlotBytes = 4 << 20;

// Promotes the registers that lie in one block, which most do: no block merges their values. False: there are too many
// others for passes that would promote them, in too many blocks. Throws std::runtime_error where a fiber's stack has no
// room for those then.
bool promote_registers(llvm::Function* function);

}  // namespace bandsaw::soft
