// Blocked LU decomposition without pivoting, three kernels a step: the diagonal tile, its row and column, the rest.
#include "program.h"

constexpr int kTile = 32;

__device__ float& at(float* m, int n, int row, int column) { return m[size_t(row) * n + column]; }

__global__ void diagonal(float* m, int n, int first) {
  __shared__ float tile[kTile][kTile + 1];
  const int x = threadIdx.x;
  for (int row = 0; row < kTile; ++row) tile[row][x] = at(m, n, first + row, first + x);
  __syncthreads();
  for (int k = 0; k < kTile - 1; ++k) {
    if (x > k) {
      tile[x][k] /= tile[k][k];
      for (int column = k + 1; column < kTile; ++column) tile[x][column] -= tile[x][k] * tile[k][column];
    }
    __syncthreads();
  }
  for (int row = 0; row < kTile; ++row) at(m, n, first + row, first + x) = tile[row][x];
}

// y = 0: a tile to the right of the diagonal one, solved with L; y = 1: a tile below it, solved with U.
__global__ void border(float* m, int n, int first) {
  __shared__ float diagonal_tile[kTile][kTile + 1], tile[kTile][kTile + 1];
  const int x = threadIdx.x, other = first + (blockIdx.x + 1) * kTile;
  const int top = blockIdx.y ? other : first, left = blockIdx.y ? first : other;
  for (int row = 0; row < kTile; ++row) {
    diagonal_tile[row][x] = at(m, n, first + row, first + x);
    tile[row][x] = at(m, n, top + row, left + x);
  }
  __syncthreads();
  if (blockIdx.y == 0) {
    for (int row = 1; row < kTile; ++row)
      for (int k = 0; k < row; ++k) tile[row][x] -= diagonal_tile[row][k] * tile[k][x];
  } else {
    for (int column = 0; column < kTile; ++column) {
      for (int k = 0; k < column; ++k) tile[x][column] -= tile[x][k] * diagonal_tile[k][column];
      tile[x][column] /= diagonal_tile[column][column];
    }
  }
  __syncthreads();
  for (int row = 0; row < kTile; ++row) at(m, n, top + row, left + x) = tile[row][x];
}

__global__ void interior(float* m, int n, int first) {
  __shared__ float left[kTile][kTile], above[kTile][kTile];
  const int row = first + (blockIdx.y + 1) * kTile + threadIdx.y;
  const int column = first + (blockIdx.x + 1) * kTile + threadIdx.x;
  left[threadIdx.y][threadIdx.x] = at(m, n, row, first + threadIdx.x);
  above[threadIdx.y][threadIdx.x] = at(m, n, first + threadIdx.y, column);
  __syncthreads();
  float sum = 0;
  for (int k = 0; k < kTile; ++k) sum += left[threadIdx.y][k] * above[k][threadIdx.x];
  at(m, n, row, column) -= sum;
}

static void decompose(float* m, int n) {
  for (int first = 0; first < n; first += kTile) {
    const int rest = (n - first) / kTile - 1;
    diagonal<<<1, kTile>>>(m, n, first);
    if (rest == 0) break;
    border<<<dim3(rest, 2), kTile>>>(m, n, first);
    interior<<<dim3(rest, rest), dim3(kTile, kTile)>>>(m, n, first);
  }
}

// L times U must give the matrix again, at elements drawn at random.
static bool product_right(const std::vector<float>& lu, const std::vector<float>& m, int n) {
  Random random(9);
  for (int sample = 0; sample < 20000; ++sample) {
    const int row = random.below(n), column = random.below(n), last = std::min(row, column);
    double sum = row <= column ? lu[size_t(row) * n + column] : 0;
    for (int k = 0; k < (row <= column ? row : last + 1); ++k)
      sum += double{lu[size_t(row) * n + k]} * lu[size_t(k) * n + column];
    if (!close(sum, m[size_t(row) * n + column], 1e-4, 1e-2)) return false;
  }
  return true;
}

int main(int argc, char** argv) {
  const Scale scale(argc, argv);
  const int n = scale.of(4096, 3 * kTile, kTile), repeats = scale.of(60, 2);
  Random random(3);
  std::vector<float> m(size_t(n) * n);
  for (float& each : m) each = random.unit() - 0.5f;
  for (int i = 0; i < n; ++i) m[size_t(i) * n + i] += n / 8 + 16;
  const DeviceBuffer<float> original(m.size()), work(m.size());
  const double begin = begin_steady();
  original.put(m);
  for (int i = 0; i < repeats; ++i) {
    CHECK(cudaMemcpyAsync(work.get(), original.get(), m.size() * sizeof(float), cudaMemcpyDeviceToDevice));
    decompose(work.get(), n);
  }
  CHECK(cudaGetLastError());
  const auto lu = work.fetch();
  return finish(now_us() - begin, product_right(lu, m, n));
}
