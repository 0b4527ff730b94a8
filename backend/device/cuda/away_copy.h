// Much memory between the device and pages of this process that are not registered.
#pragma once

#include <cstdint>
#include <vector>

#include "backend/device/cuda/driver.h"

namespace bandsaw::cuda {

struct AwayPiece {
  uint64_t address = 0;
  std::byte* pages = nullptr;
  uint64_t bytes = 0;
};

// So that several threads have something to do.
void add_pieces(uint64_t address, std::byte* pages, uint64_t bytes, std::vector<AwayPiece>* pieces);

// At the speed of the bus, by registered buffers and several threads. Returns when all of it is there; whatever the
// program captures meanwhile. The context becomes current.
CUresult copy_pieces(const Driver& driver, CUcontext context, const std::vector<AwayPiece>& pieces, bool to_device);

}  // namespace bandsaw::cuda
