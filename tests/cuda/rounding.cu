// nvcc: -Xcompiler -frounding-math
// Floating-point arithmetic in all four rounding modes, bit for bit against the host's.
#include <cfenv>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <vector>

#include "check.h"

template <typename T>
struct Out {
  T add[4], mul[4], div[4], fma[4], sqrt[4], rcp[4];
};

__device__ void fill(float a, float b, float c, Out<float>& o) {
  o.add[0] = __fadd_rn(a, b), o.add[1] = __fadd_rz(a, b), o.add[2] = __fadd_ru(a, b), o.add[3] = __fadd_rd(a, b);
  o.mul[0] = __fmul_rn(a, b), o.mul[1] = __fmul_rz(a, b), o.mul[2] = __fmul_ru(a, b), o.mul[3] = __fmul_rd(a, b);
  o.div[0] = __fdiv_rn(a, b), o.div[1] = __fdiv_rz(a, b), o.div[2] = __fdiv_ru(a, b), o.div[3] = __fdiv_rd(a, b);
  o.fma[0] = __fmaf_rn(a, b, c), o.fma[1] = __fmaf_rz(a, b, c), o.fma[2] = __fmaf_ru(a, b, c),
  o.fma[3] = __fmaf_rd(a, b, c);
  const float p = fabsf(a);
  o.sqrt[0] = __fsqrt_rn(p), o.sqrt[1] = __fsqrt_rz(p), o.sqrt[2] = __fsqrt_ru(p), o.sqrt[3] = __fsqrt_rd(p);
  o.rcp[0] = __frcp_rn(a), o.rcp[1] = __frcp_rz(a), o.rcp[2] = __frcp_ru(a), o.rcp[3] = __frcp_rd(a);
}

__device__ void fill(double a, double b, double c, Out<double>& o) {
  o.add[0] = __dadd_rn(a, b), o.add[1] = __dadd_rz(a, b), o.add[2] = __dadd_ru(a, b), o.add[3] = __dadd_rd(a, b);
  o.mul[0] = __dmul_rn(a, b), o.mul[1] = __dmul_rz(a, b), o.mul[2] = __dmul_ru(a, b), o.mul[3] = __dmul_rd(a, b);
  o.div[0] = __ddiv_rn(a, b), o.div[1] = __ddiv_rz(a, b), o.div[2] = __ddiv_ru(a, b), o.div[3] = __ddiv_rd(a, b);
  o.fma[0] = __fma_rn(a, b, c), o.fma[1] = __fma_rz(a, b, c), o.fma[2] = __fma_ru(a, b, c),
  o.fma[3] = __fma_rd(a, b, c);
  const double p = fabs(a);
  o.sqrt[0] = __dsqrt_rn(p), o.sqrt[1] = __dsqrt_rz(p), o.sqrt[2] = __dsqrt_ru(p), o.sqrt[3] = __dsqrt_rd(p);
  o.rcp[0] = __drcp_rn(a), o.rcp[1] = __drcp_rz(a), o.rcp[2] = __drcp_ru(a), o.rcp[3] = __drcp_rd(a);
}

template <typename T>
__global__ void compute(const T* a, const T* b, const T* c, Out<T>* out, int n) {
  const int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) fill(a[i], b[i], c[i], out[i]);
}

template <typename T>
static bool same(T got, T wanted) {
  return std::isnan(wanted) ? std::isnan(got) : std::memcmp(&got, &wanted, sizeof(T)) == 0;
}

template <typename T>
static void check(T x, T y, T z, const Out<T>& o) {
  const int modes[4] = {FE_TONEAREST, FE_TOWARDZERO, FE_UPWARD, FE_DOWNWARD};
  for (int m = 0; m < 4; ++m) {
    volatile T a = x, b = y, c = z, p = std::fabs(x), one = 1;
    std::fesetround(modes[m]);
    volatile T sum = a + b, product = a * b, quotient = a / b, fused = std::fma(a, b, c), root = std::sqrt(p),
               inverse = one / a;
    std::fesetround(FE_TONEAREST);
    const bool good = same<T>(o.add[m], sum) && same<T>(o.mul[m], product) && same<T>(o.div[m], quotient) &&
                      same<T>(o.fma[m], fused) && same<T>(o.sqrt[m], root) && same<T>(o.rcp[m], inverse);
    if (!good) {
      std::printf("mode %d, a=%a b=%a c=%a: add %a %a, mul %a %a, div %a %a, fma %a %a, sqrt %a %a, rcp %a %a\n", m,
                  double(x), double(y), double(z), double(o.add[m]), double(sum), double(o.mul[m]), double(product),
                  double(o.div[m]), double(quotient), double(o.fma[m]), double(fused), double(o.sqrt[m]), double(root),
                  double(o.rcp[m]), double(inverse));
      std::exit(1);
    }
  }
}

template <typename T, typename Bits>
static void run(std::vector<T> edges) {
  std::vector<T> a, b, c;
  for (T x : edges)
    for (T y : edges) a.push_back(x), b.push_back(y), c.push_back(x - y);
  uint64_t state = 99;
  const auto next = [&state] {
    state = state * 6364136223846793005ull + 1442695040888963407ull;
    Bits bits = static_cast<Bits>(state >> (64 - 8 * sizeof(Bits)));
    T value;
    std::memcpy(&value, &bits, sizeof(T));
    return value;
  };
  for (int i = 0; i < 4000; ++i)
    a.push_back(next()), b.push_back(i % 2 ? next() : a.back() * T(1.0001)),
        c.push_back(i % 3 ? next() : -a.back() * b.back());
  const int n = static_cast<int>(a.size());
  T *da, *db, *dc;
  Out<T>* out;
  CHECK(cudaMalloc(&da, n * sizeof(T)));
  CHECK(cudaMalloc(&db, n * sizeof(T)));
  CHECK(cudaMalloc(&dc, n * sizeof(T)));
  CHECK(cudaMalloc(&out, n * sizeof(Out<T>)));
  CHECK(cudaMemcpy(da, a.data(), n * sizeof(T), cudaMemcpyHostToDevice));
  CHECK(cudaMemcpy(db, b.data(), n * sizeof(T), cudaMemcpyHostToDevice));
  CHECK(cudaMemcpy(dc, c.data(), n * sizeof(T), cudaMemcpyHostToDevice));
  compute<T><<<(n + 63) / 64, 64>>>(da, db, dc, out, n);
  std::vector<Out<T>> got(n);
  CHECK(cudaMemcpy(got.data(), out, n * sizeof(Out<T>), cudaMemcpyDeviceToHost));
  for (int i = 0; i < n; ++i) check<T>(a[i], b[i], c[i], got[i]);
}

int main() {
  run<float, uint32_t>({0.0f, -0.0f, 1.0f, -1.0f, 0.1f, 3.0f, 1e-38f, 1e-45f, 1.1754944e-38f, 3.4028235e38f, INFINITY,
                        -INFINITY, NAN, 16777217.0f, 0.33333334f});
  run<double, uint64_t>({0.0, -0.0, 1.0, -1.0, 0.1, 3.0, 1e-308, 5e-324, 2.2250738585072014e-308,
                         1.7976931348623157e308, INFINITY, -INFINITY, NAN, 9007199254740993.0, 1.0 / 3});
  return passed();
}
