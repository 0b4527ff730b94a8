// What the emitter asks of the helper for mbarrier objects.
#pragma once

#include <cstdint>

namespace bandsaw::soft {

enum class MbarrierOp : uint32_t {
  kInit,
  kInval,
  kExpectTx,
  kCompleteTx,
  kArrive,        // count in a, bytes to expect first in b
  kArriveDrop,    // the same
  kWaitState,     // the phase of the state in a has ended
  kWaitParity,    // the phase of parity a has ended
  kPendingCount,  // of the state in a
};

}  // namespace bandsaw::soft
