// How the emitter tells the helper of bulk copies what to do.
#pragma once

#include <cstdint>

namespace bandsaw::soft {

struct BulkForm {
  uint32_t from_space : 2 = 0, to_space : 2 = 0;  // AccessSpace
  uint32_t tells : 1 = 0;                         // a barrier hears of the bytes
  uint32_t reduces : 1 = 0;
  uint32_t reduction : 5 = 0, type : 5 = 0, element_bytes : 5 = 0;  // AtomicOp, AtomicType
  uint32_t masked : 1 = 0;                                          // .cp_mask: these bytes of each 16
  uint32_t trimmed : 1 = 0;                                         // .ignore_oob: not the first and last ones
  uint32_t unused : 9 = 0;
};
static_assert(sizeof(BulkForm) == 4);

}  // namespace bandsaw::soft
