// The initial value of a variable as the bytes that ptxas puts there.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <stdexcept>

#include "vgpu-sched/ptx/tree.h"

namespace bandsaw::ptx {

// `what()` names the variable and what is wrong with its initial value.
struct InitialError : std::runtime_error {
  using std::runtime_error::runtime_error;
};

// Called for every address in an initial value: it belongs at `offset` and is `bytes` wide (with a mask: the chosen
// byte of it).
using AddressInitial = std::function<void(uint64_t offset, uint32_t bytes, const SymbolAddress& address)>;

// Called for every number in an initial value, with its bytes; they lie inside of the variable.
using BytesInitial = std::function<void(uint64_t offset, std::span<const std::byte> bytes)>;

// Hands over what the initial value names, each element once and in the order of the text. Throws InitialError when
// there are more values than elements.
void write_initial(const Variable& variable, const BytesInitial& bytes, const AddressInitial& address);

}  // namespace bandsaw::ptx
