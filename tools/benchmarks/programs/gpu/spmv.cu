// Sparse matrix (compressed rows) times vector, again and again, each product the next one's vector.
#include "program.h"

constexpr int kPerRow = 16;

struct Matrix {
  std::vector<int> first, column;
  std::vector<float> number;
};

// Every row sums to about one, so that the vector stays in range.
static Matrix random_matrix(int rows) {
  Random random(8);
  Matrix matrix;
  matrix.first.reserve(rows + 1);
  matrix.column.reserve(size_t(rows) * kPerRow);
  matrix.number.reserve(size_t(rows) * kPerRow);
  for (int row = 0; row < rows; ++row) {
    matrix.first.push_back(static_cast<int>(matrix.column.size()));
    const int entries = kPerRow / 2 + random.below(kPerRow + 1);
    for (int i = 0; i < entries; ++i) {
      matrix.column.push_back(random.below(rows));
      matrix.number.push_back((0.75f + 0.5f * random.unit()) / entries);
    }
  }
  matrix.first.push_back(static_cast<int>(matrix.column.size()));
  return matrix;
}

// Eight threads a row.
__global__ void multiply(const int* first, const int* column, const float* number, const float* x, float* y, int rows) {
  const int row = (blockIdx.x * blockDim.x + threadIdx.x) / 8, lane = threadIdx.x % 8;
  float sum = 0;
  if (row < rows)
    for (int i = first[row] + lane; i < first[row + 1]; i += 8) sum += number[i] * x[column[i]];
  for (int by = 4; by; by /= 2) sum += __shfl_down_sync(0xffffffffu, sum, by, 8);
  if (row < rows && lane == 0) y[row] = sum;
}

static bool product_right(const Matrix& matrix, const std::vector<float>& x, const std::vector<float>& y) {
  for (size_t row = 0; row < y.size(); ++row) {
    double sum = 0;
    for (int i = matrix.first[row]; i < matrix.first[row + 1]; ++i)
      sum += double{matrix.number[i]} * x[matrix.column[i]];
    if (!close(sum, y[row], 1e-4, 1e-6)) return false;
  }
  return true;
}

int main(int argc, char** argv) {
  const Scale scale(argc, argv);
  const int rows = scale.of(1 << 21, 1000), repeats = scale.of(4000, 3);
  const Matrix matrix = random_matrix(rows);
  std::vector<float> start(rows), before;
  for (int i = 0; i < rows; ++i) start[i] = 1 + i % 7 * 0.1f;
  const DeviceBuffer<int> first(matrix.first.size()), column(matrix.column.size());
  const DeviceBuffer<float> number(matrix.number.size());
  const DeviceBuffer<float> vectors[2] = {DeviceBuffer<float>(rows), DeviceBuffer<float>(rows)};
  const double begin = begin_steady();
  first.put(matrix.first);
  column.put(matrix.column);
  number.put(matrix.number);
  vectors[0].put(start);
  for (int i = 0; i < repeats; ++i) {
    if (i == repeats - 1) before = vectors[i % 2].fetch();
    multiply<<<(rows + 31) / 32, 256>>>(first.get(), column.get(), number.get(), vectors[i % 2].get(),
                                        vectors[(i + 1) % 2].get(), rows);
  }
  CHECK(cudaGetLastError());
  const auto after = vectors[repeats % 2].fetch();
  return finish(now_us() - begin, product_right(matrix, before, after));
}
