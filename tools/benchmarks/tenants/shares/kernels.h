// What the tenants compute. Work is counted in rounds, so that a task can be given any length; a task's result depends
// on every round, so that none is optimised away.
#pragma once

#include <cuda_runtime.h>

namespace tenant {

constexpr int kTile = 16;
constexpr int kTiles = 256;  // of the matrix that lu_like() walks over

// As the interior update of a blocked LU decomposition: a tile minus the product of one to its left and one above.
__global__ void lu_like(float* matrix, int rounds) {
  __shared__ float left[kTile][kTile], above[kTile][kTile];
  const int x = threadIdx.x, y = threadIdx.y;
  float sum = 0;
  for (int round = 0; round < rounds; ++round) {
    const int from = (blockIdx.x * 7 + round) % kTiles, to = (blockIdx.x * 3 + round * 5 + 1) % kTiles;
    left[y][x] = matrix[from * kTile * kTile + y * kTile + x];
    above[y][x] = matrix[to * kTile * kTile + y * kTile + x];
    __syncthreads();
    for (int k = 0; k < kTile; ++k) sum += left[y][k] * above[k][x];
    __syncthreads();
  }
  matrix[(kTiles + blockIdx.x) * kTile * kTile + y * kTile + x] -= sum * 1e-6f;
}

constexpr int kPoints = 51, kPointThreads = 128;
constexpr int kTemplate = 8, kReach = 8, kTries = 2 * kReach + 1, kWindow = kTemplate + 2 * kReach;
constexpr int kFilm = 1 << 16;  // bytes

// As the heart wall program's tracking: few blocks, one for each point, and a loop over frames inside.
__global__ void heart_like(const unsigned char* film, int* places, int frames) {
  __shared__ unsigned char wanted[kTemplate * kTemplate], window[kWindow * kWindow];
  __shared__ unsigned best;
  int place = places[blockIdx.x];
  for (int i = threadIdx.x; i < kTemplate * kTemplate; i += kPointThreads) wanted[i] = film[(place + i * 31) % kFilm];
  for (int frame = 0; frame < frames; ++frame) {
    for (int i = threadIdx.x; i < kWindow * kWindow; i += kPointThreads)
      window[i] = film[(place + frame * 977 + i) % kFilm];
    if (threadIdx.x == 0) best = ~0u;
    __syncthreads();
    for (int attempt = threadIdx.x; attempt < kTries * kTries; attempt += kPointThreads) {
      const unsigned char* from = window + attempt / kTries * kWindow + attempt % kTries;
      int difference = 0;
      for (int i = 0; i < kTemplate * kTemplate; ++i)
        difference += abs(from[i / kTemplate * kWindow + i % kTemplate] - wanted[i]);
      atomicMin(&best, static_cast<unsigned>(difference) << 10 | static_cast<unsigned>(attempt));
    }
    __syncthreads();
    place = (place + static_cast<int>(best & 1023)) % kFilm;
    __syncthreads();
  }
  if (threadIdx.x == 0) places[blockIdx.x] = place;
}

__global__ void nothing() {}

}  // namespace tenant
