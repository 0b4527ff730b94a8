// Elementary functions of the device's library within their documented errors.
#include <cmath>
#include <vector>

#include "check.h"

constexpr int kFunctions = 20;

__global__ void in_float(const float* in, float* out, int n) {
  const int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i >= n) return;
  const float x = in[i];
  float* o = out + i * kFunctions;
  o[0] = sinf(x), o[1] = cosf(x), o[2] = tanf(x), o[3] = expf(x), o[4] = logf(fabsf(x)), o[5] = exp2f(x),
  o[6] = log2f(fabsf(x));
  o[7] = sqrtf(fabsf(x)), o[8] = rsqrtf(fabsf(x)), o[9] = cbrtf(x), o[10] = tanhf(x), o[11] = atanf(x), o[12] = erff(x);
  o[13] = powf(fabsf(x), 1.7f), o[14] = fmodf(x, 0.7f), o[15] = hypotf(x, 3), o[16] = asinhf(x), o[17] = lgammaf(x),
  o[18] = atan2f(x, 2), o[19] = 1 / x;
}

__global__ void in_double(const double* in, double* out, int n) {
  const int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i >= n) return;
  const double x = in[i];
  double* o = out + i * kFunctions;
  o[0] = sin(x), o[1] = cos(x), o[2] = tan(x), o[3] = exp(x), o[4] = log(fabs(x)), o[5] = exp2(x), o[6] = log2(fabs(x));
  o[7] = sqrt(fabs(x)), o[8] = rsqrt(fabs(x)), o[9] = cbrt(x), o[10] = tanh(x), o[11] = atan(x), o[12] = erf(x);
  o[13] = pow(fabs(x), 1.7), o[14] = fmod(x, 0.7), o[15] = hypot(x, 3.0), o[16] = asinh(x), o[17] = lgamma(x),
  o[18] = atan2(x, 2.0), o[19] = 1 / x;
}

// The hardware's fast approximations, as ex2.approx and its kin.
__global__ void fast(const float* in, float* out, int n) {
  const int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i >= n) return;
  const float x = in[i];
  float* o = out + i * kFunctions;
  o[0] = __sinf(x), o[1] = __cosf(x), o[2] = __expf(x), o[3] = __logf(fabsf(x)), o[4] = __fdividef(x, 3),
  o[5] = __powf(fabsf(x), 1.5f);
  asm("tanh.approx.f32 %0, %1;" : "=f"(o[6]) : "f"(x));
  asm("rcp.approx.ftz.f32 %0, %1;" : "=f"(o[7]) : "f"(x));
  asm("sqrt.approx.f32 %0, %1;" : "=f"(o[8]) : "f"(fabsf(x)));
  asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(o[9]) : "f"(x));
}

static double reference(int f, double x) {
  switch (f) {
    case 0:
      return std::sin(x);
    case 1:
      return std::cos(x);
    case 2:
      return std::tan(x);
    case 3:
      return std::exp(x);
    case 4:
      return std::log(std::fabs(x));
    case 5:
      return std::exp2(x);
    case 6:
      return std::log2(std::fabs(x));
    case 7:
      return std::sqrt(std::fabs(x));
    case 8:
      return 1 / std::sqrt(std::fabs(x));
    case 9:
      return std::cbrt(x);
    case 10:
      return std::tanh(x);
    case 11:
      return std::atan(x);
    case 12:
      return std::erf(x);
    case 13:
      return std::pow(std::fabs(x), 1.7);
    case 14:
      return std::fmod(x, 0.7);
    case 15:
      return std::hypot(x, 3.0);
    case 16:
      return std::asinh(x);
    case 17:
      return std::lgamma(x);
    case 18:
      return std::atan2(x, 2.0);
    default:
      return 1 / x;
  }
}

static void near(int function, double x, double got, double wanted, double relative, double absolute) {
  if (std::isnan(wanted) ? std::isnan(got)
                         : got == wanted || std::fabs(got - wanted) <= relative * std::fabs(wanted) + absolute)
    return;
  std::printf("function %d of %.17g: %.17g, expected %.17g\n", function, x, got, wanted);
  std::exit(1);
}

int main() {
  std::vector<float> floats;
  std::vector<double> doubles;
  for (int i = 0; i < 4000; ++i) doubles.push_back((i - 2000.5) * 0.0071 * (1 + i % 3));
  for (double v : {1e-10, -1e-10, 80.0, -80.0, 1e-30, 5.0, 1.0, -1.0}) doubles.push_back(v);
  for (double v : doubles) floats.push_back(static_cast<float>(v));
  const int n = static_cast<int>(floats.size());
  float *in, *out;
  double *in_d, *out_d;
  CHECK(cudaMalloc(&in, n * 4));
  CHECK(cudaMalloc(&out, n * kFunctions * 4));
  CHECK(cudaMalloc(&in_d, n * 8));
  CHECK(cudaMalloc(&out_d, n * kFunctions * 8));
  CHECK(cudaMemcpy(in, floats.data(), n * 4, cudaMemcpyHostToDevice));
  CHECK(cudaMemcpy(in_d, doubles.data(), n * 8, cudaMemcpyHostToDevice));
  in_float<<<(n + 63) / 64, 64>>>(in, out, n);
  in_double<<<(n + 63) / 64, 64>>>(in_d, out_d, n);
  std::vector<float> got(n * kFunctions);
  std::vector<double> got_d(n * kFunctions);
  CHECK(cudaMemcpy(got.data(), out, n * kFunctions * 4, cudaMemcpyDeviceToHost));
  CHECK(cudaMemcpy(got_d.data(), out_d, n * kFunctions * 8, cudaMemcpyDeviceToHost));
  for (int i = 0; i < n; ++i)
    for (int f = 0; f < kFunctions; ++f) {
      const double x = f == 14 ? floats[i] : floats[i];
      double wanted = f == 14 ? std::fmod(floats[i], 0.7f) : reference(f, x);
      if (f == 13) wanted = std::pow(std::fabs(x), static_cast<double>(1.7f));
      near(f, x, got[i * kFunctions + f], static_cast<float>(wanted), f == 17 ? 1e-5 : 2e-6, f == 17 ? 1e-5 : 1e-30);
      near(f, doubles[i], got_d[i * kFunctions + f], reference(f, doubles[i]), f == 17 ? 1e-11 : 1e-14,
           f == 17 ? 1e-11 : 1e-300);
    }
  fast<<<(n + 63) / 64, 64>>>(in, out, n);
  CHECK(cudaMemcpy(got.data(), out, n * kFunctions * 4, cudaMemcpyDeviceToHost));
  for (int i = 0; i < n; ++i) {
    const float* o = &got[i * kFunctions];
    const double x = floats[i];
    if (std::fabs(x) < 3) near(100, x, o[0], std::sin(x), 0, 1e-6), near(101, x, o[1], std::cos(x), 0, 1e-6);
    near(102, x, o[2], std::exp(x), 1e-4, 1e-35);
    near(103, x, o[3], std::log(std::fabs(x)), 1e-5, 1e-5);
    near(104, x, o[4], x / 3, 1e-6, 0);
    near(105, x, o[5], std::pow(std::fabs(x), 1.5), 1e-4, 1e-30);
    near(106, x, o[6], std::tanh(x), 1e-3, 0);
    near(107, x, o[7], 1 / x, 1e-6, 0);
    near(108, x, o[8], std::sqrt(std::fabs(x)), 1e-6, 0);
    near(109, x, o[9], std::exp2(x), 1e-6, 1e-37);
  }
  return passed();
}
