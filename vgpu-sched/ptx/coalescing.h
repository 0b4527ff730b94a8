// Which accesses of a function touch memory all over: the lanes of a warp do not ask for neighbouring bytes. Inside of
// this folder only.
#pragma once

#include <vector>

#include "vgpu-sched/ptx/flow.h"

namespace bandsaw::ptx {

// By step: whether it is an access whose address is not a known and small distance from lane to lane. An estimate: the
// x index of a thread counts its lanes, a mask or remainder keeps neighbours together, what was loaded by a lane of its
// own may be anything.
std::vector<bool> scattered(const Flow& flow);

}  // namespace bandsaw::ptx
