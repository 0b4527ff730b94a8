// PTX registers in LLVM's IR: the emitter gives each a slot on the stack, and what is worth it becomes a value of
// LLVM's.
#pragma once

#include <cstddef>
#include <string_view>

namespace llvm {
class Function;
}  // namespace llvm

namespace bandsaw::soft {

// Throws std::runtime_error where a fiber's stack has no room for so many bytes of registers that are not promoted.
void check_room_for_registers(std::string_view function, size_t bytes);

// Promotes the registers that lie in one block, which most do: no block merges their values. False: there are too many
// others for passes that would promote them, in too many blocks. Throws std::runtime_error where a fiber's stack has no
// room for those then.
bool promote_registers(llvm::Function* function);

}  // namespace bandsaw::soft
