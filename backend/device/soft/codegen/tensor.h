// How the emitter tells the helpers of bulk copies what to do.
#pragma once

#include <cstdint>

namespace bandsaw::soft {

// Where the operands of a copy by a tensor map stand: arrays of 64-bit words, one a lane.
enum class TensorWord : uint32_t {
  kShared,      // address in shared memory
  kMap,         // generic address of the map
  kBarrier,     // of a load
  kBlocks,      // of a load: the blocks of the cluster that get it, by bits; 0: where the address says
  kCoordinate,  // five of them
  kOffset = 9,  // three, of im2col
  kCount = 12,
};

enum class TensorMove : uint8_t { kLoad, kStore, kReduce };

struct TensorForm {
  TensorMove move = TensorMove::kLoad;
  uint8_t rank = 1;
  uint8_t im2col = 0;
  uint8_t reduction = 0;  // AtomicOp
};
static_assert(sizeof(TensorForm) == 4);

// What tensormap.replace replaces.
enum class TensorField : uint32_t {
  kAddress,
  kRank,
  kBox,
  kDimension,
  kStride,
  kElementStride,
  kType,
  kInterleave,
  kSwizzle,
  kFill,
};

}  // namespace bandsaw::soft
