// Matrices in fragments: every type and shape of <mma.h> but the packed ones, against a plain product.
// nvcc: -arch=compute_90 -code=compute_90
#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <mma.h>

#include <vector>

#include "check.h"

namespace wmma = nvcuda::wmma;

template <typename Operand, typename Element, typename Sum, int M, int N, int K, typename LayoutA, typename LayoutB>
__global__ void product(const Element* a, const Element* b, const Sum* c, Sum* d, int lda, int ldb, bool columns) {
  wmma::fragment<wmma::matrix_a, M, N, K, Operand, LayoutA> left;
  wmma::fragment<wmma::matrix_b, M, N, K, Operand, LayoutB> right;
  wmma::fragment<wmma::accumulator, M, N, K, Sum> sum;
  const auto layout = columns ? wmma::mem_col_major : wmma::mem_row_major;
  wmma::load_matrix_sync(left, a, lda);
  wmma::load_matrix_sync(right, b, ldb);
  wmma::load_matrix_sync(sum, c, columns ? M : N, layout);
  wmma::mma_sync(sum, left, right, sum);
  for (int i = 0; i < sum.num_elements; ++i) sum.x[i] = sum.x[i] + sum.x[i];
  wmma::store_matrix_sync(d, sum, columns ? M : N, layout);
}

template <typename T>
T* managed(size_t n) {
  T* made = nullptr;
  cudaMallocManaged(&made, n * sizeof(T));
  return made;
}

// Small whole numbers: every sum is exact in every type.
template <typename Operand, typename Element, typename Sum, int M, int N, int K, typename LayoutA, typename LayoutB>
int check_product(bool columns) {
  constexpr bool a_rows = std::is_same_v<LayoutA, wmma::row_major>, b_rows = std::is_same_v<LayoutB, wmma::row_major>;
  const int lda = (a_rows ? K : M) + 16, ldb = (b_rows ? N : K) + 16;
  auto* a = managed<Element>(64 * 64);
  auto* b = managed<Element>(64 * 64);
  auto* c = managed<Sum>(M * N);
  auto* d = managed<Sum>(M * N);
  const auto left = [](int i, int k) { return (i * 3 + k * 5) % 7; };
  const auto right = [](int k, int j) { return (k * 2 + j * 3) % 5; };
  for (int i = 0; i < M; ++i)
    for (int k = 0; k < K; ++k) a[a_rows ? i * lda + k : k * lda + i] = Element(float(left(i, k)));
  for (int k = 0; k < K; ++k)
    for (int j = 0; j < N; ++j) b[b_rows ? k * ldb + j : j * ldb + k] = Element(float(right(k, j)));
  for (int i = 0; i < M; ++i)
    for (int j = 0; j < N; ++j) c[columns ? j * M + i : i * N + j] = Sum(float(i - j));
  product<Operand, Element, Sum, M, N, K, LayoutA, LayoutB><<<1, 32>>>(a, b, c, d, lda, ldb, columns);
  CHECK(cudaDeviceSynchronize());
  for (int i = 0; i < M; ++i)
    for (int j = 0; j < N; ++j) {
      int want = i - j;
      for (int k = 0; k < K; ++k) want += left(i, k) * right(k, j);
      EXPECT_EQ(float(d[columns ? j * M + i : i * N + j]), float(2 * want));
    }
  for (void* p : {(void*)a, (void*)b, (void*)c, (void*)d}) cudaFree(p);
  return 0;
}

template <typename Operand, typename Element, typename Sum, int M, int N, int K>
void check_layouts() {
  using Row = wmma::row_major;
  using Column = wmma::col_major;
  check_product<Operand, Element, Sum, M, N, K, Row, Row>(false);
  check_product<Operand, Element, Sum, M, N, K, Row, Column>(true);
  check_product<Operand, Element, Sum, M, N, K, Column, Row>(false);
  check_product<Operand, Element, Sum, M, N, K, Column, Column>(true);
}

template <typename Operand, typename Element, typename Sum>
void check_shapes() {
  check_layouts<Operand, Element, Sum, 16, 16, 16>();
  check_layouts<Operand, Element, Sum, 32, 8, 16>();
  check_layouts<Operand, Element, Sum, 8, 32, 16>();
}

int main() {
  check_shapes<__half, __half, float>();
  check_shapes<__half, __half, __half>();
  check_shapes<__nv_bfloat16, __nv_bfloat16, float>();
  check_shapes<signed char, signed char, int>();
  check_shapes<unsigned char, unsigned char, int>();
  check_layouts<wmma::precision::tf32, float, float, 16, 16, 8>();
  check_layouts<double, double, double, 8, 8, 4>();
  return passed();
}
