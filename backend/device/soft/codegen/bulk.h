// How the emitter tells the helper of bulk copies what to do.
#pragma once

#include <cstdint>

namespace bandsaw::soft {

struct BulkForm {
  uint32_t from_space : 2 = 0, to_space : 2 = 0;  // AccessSpace
  uint32_t tells : 1 = 0;                         // a barrier hears of the bytes
  uint32_t reduces : 1 = 0;
  uint32_t reduction : 5 = 0, type : 5 = 0, element_bytes : 5 = 0;  // AtomicOp, AtomicType
  uint32_t unused : 11 = 0;
};
static_assert(sizeof(BulkForm) == 4);

}  // namespace bandsaw::soft
