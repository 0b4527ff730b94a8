// Matrices of four bits and of single bits in fragments of <mma.h>, against a plain product.
// nvcc: -arch=compute_80 -code=compute_80
#include <mma.h>

#include "check.h"

namespace wmma = nvcuda::wmma;
namespace precision = nvcuda::wmma::experimental::precision;

constexpr int M = 8, N = 8;

template <typename Operand, int K, typename Multiply>
__global__ void product(const unsigned* a, const unsigned* b, int* d, int stride, Multiply multiply) {
  wmma::fragment<wmma::matrix_a, M, N, K, Operand, wmma::row_major> left;
  wmma::fragment<wmma::matrix_b, M, N, K, Operand, wmma::col_major> right;
  wmma::fragment<wmma::accumulator, M, N, K, int> sum;
  wmma::fill_fragment(sum, 3);
  wmma::load_matrix_sync(left, a, stride);
  wmma::load_matrix_sync(right, b, stride);
  multiply(sum, left, right);
  wmma::store_matrix_sync(d, sum, N, wmma::mem_row_major);
}

struct Plain {
  template <typename C, typename A, typename B>
  __device__ void operator()(C& c, const A& a, const B& b) const {
    wmma::mma_sync(c, a, b, c);
  }
};

template <wmma::experimental::bmmaBitOp Op>
struct Bits {
  template <typename C, typename A, typename B>
  __device__ void operator()(C& c, const A& a, const B& b) const {
    wmma::bmma_sync(c, a, b, c, Op, wmma::experimental::bmmaAccumulateOpPOPC);
  }
};

// `value` of a row's (or column's) packed element, `times` what two of them make.
template <typename Operand, int K, int kBits, typename Multiply, typename Value, typename Times>
void check(Multiply multiply, Value value, Times times) {
  constexpr int kStride = 2 * K, kWords = 8 * kStride * kBits / 32;
  static unsigned words[2][kWords];
  for (int w = 0; w < kWords; ++w) {
    words[0][w] = w * 2654435761u + 12345;
    words[1][w] = w * 40503u * 69069u + 99;
  }
  const auto at = [&](int which, int line, int k) {
    const int bit = (line * kStride + k) * kBits;
    return value(words[which][bit / 32] >> (bit % 32) & ((1u << kBits) - 1));
  };
  unsigned *a, *b;
  int *d, got[M * N];
  CHECK(cudaMalloc(&a, sizeof(words[0])));
  CHECK(cudaMalloc(&b, sizeof(words[1])));
  CHECK(cudaMalloc(&d, sizeof(got)));
  CHECK(cudaMemcpy(a, words[0], sizeof(words[0]), cudaMemcpyHostToDevice));
  CHECK(cudaMemcpy(b, words[1], sizeof(words[1]), cudaMemcpyHostToDevice));
  product<Operand, K><<<1, 32>>>(a, b, d, kStride, multiply);
  CHECK(cudaMemcpy(got, d, sizeof(got), cudaMemcpyDeviceToHost));
  for (int i = 0; i < M; ++i)
    for (int j = 0; j < N; ++j) {
      int want = 3;
      for (int k = 0; k < K; ++k) want += times(at(0, i, k), at(1, j, k));
      EXPECT_EQ(got[i * N + j], want);
    }
  for (void* p : {(void*)a, (void*)b, (void*)d}) cudaFree(p);
}

int main() {
  const auto same = [](unsigned v) { return int(v); };
  const auto signed_value = [](unsigned v) { return int(v ^ 8) - 8; };
  const auto times = [](int x, int y) { return x * y; };
  check<precision::u4, 32, 4>(Plain{}, same, times);
  check<precision::s4, 32, 4>(Plain{}, signed_value, times);
  check<precision::b1, 128, 1>(Bits<wmma::experimental::bmmaBitOpXOR>{}, same, [](int x, int y) { return x ^ y; });
  check<precision::b1, 128, 1>(Bits<wmma::experimental::bmmaBitOpAND>{}, same, [](int x, int y) { return x & y; });
  return passed();
}
