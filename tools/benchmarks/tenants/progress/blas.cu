// Tenants of tools/bench progress that call cuBLAS, whose kernels have no PTX:
//
//   blas run sgemm library= size=             one product of square matrices of floats a step
//   blas run step library= layers= width= tokens=   as a training step in bf16: some 300 products and passes over the
//                                             results, forwards, backwards and for the optimiser, and one synchronise
//
// steps.h has what they read and write.
#include <cuda_bf16.h>

#include "blas.h"
#include "steps.h"

namespace progress {
namespace {

constexpr int kThreads = 256;

__global__ void fill(float* values, size_t count) {
  for (size_t i = blockIdx.x * size_t{blockDim.x} + threadIdx.x; i < count; i += size_t{gridDim.x} * blockDim.x)
    values[i] = static_cast<float>(i % 1021) * 1e-3f - 0.5f;
}

// An activation, or an optimiser's update: reads and writes every value.
__global__ void pass(__nv_bfloat162* values, size_t count, float factor) {
  for (size_t i = blockIdx.x * size_t{blockDim.x} + threadIdx.x; i < count; i += size_t{gridDim.x} * blockDim.x) {
    const float2 value = __bfloat1622float2(values[i]);
    values[i] =
        __floats2bfloat162_rn(fminf(fmaxf(value.x * factor, -1.f), 1.f), fminf(fmaxf(value.y * factor, -1.f), 1.f));
  }
}

int sgemm(const Options& options) {
  const int size = static_cast<int>(options.number("size", 1024));
  const size_t count = size_t{1} * size * size;
  float* matrices[3];
  cudaStream_t stream;
  CHECK(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
  for (float*& matrix : matrices) {
    CHECK(cudaMalloc(&matrix, count * sizeof(float)));
    fill<<<1024, kThreads, 0, stream>>>(matrix, count);
    CHECK(cudaGetLastError());
  }
  const Blas blas(options.text("library"), stream);
  return serve(2, [&] {
    blas.sgemm(size, matrices[0], matrices[1], matrices[2]);
    CHECK(cudaStreamSynchronize(stream));
  });
}

// The weights of a stack of transformer layers and what flows through them.
class Training {
 public:
  Training(const Options& options, cudaStream_t stream)
      : stream_(stream),
        blas_(options.text("library"), stream),
        layers_(static_cast<int>(options.number("layers", 2))),
        width_(static_cast<int>(options.number("width", 256))),
        tokens_(static_cast<int>(options.number("tokens", 256))) {
    weights_ = make(size_t{12} * width_ * width_ * layers_);
    narrow_ = make(size_t{1} * tokens_ * width_);
    wide_ = make(size_t{4} * tokens_ * width_);
    gradient_ = make(size_t{4} * width_ * width_);
  }

  void step() {
    for (int layer = 0; layer < layers_; ++layer) forward(layer);
    for (int layer = layers_ - 1; layer >= 0; --layer) backward(layer);
    for (int layer = 0; layer < layers_; ++layer) touch(weights_ + layer * layer_size(), layer_size(), 1.f);
    CHECK(cudaStreamSynchronize(stream_));
  }

 private:
  size_t layer_size() const { return size_t{12} * width_ * width_; }

  __nv_bfloat16* make(size_t count) {
    __nv_bfloat16* made;
    CHECK(cudaMalloc(&made, count * sizeof(*made)));
    CHECK(cudaMemsetAsync(made, 0x3c, count * sizeof(*made), stream_));  // all the same, 0.0115
    return made;
  }
  void touch(__nv_bfloat16* values, size_t count, float factor) {
    pass<<<2048, kThreads, 0, stream_>>>(reinterpret_cast<__nv_bfloat162*>(values), count / 2, factor);
    CHECK(cudaGetLastError());
  }

  // Query, key, value and output projections, then up and down.
  void forward(int layer) {
    const __nv_bfloat16* weights = weights_ + layer * layer_size();
    for (int i = 0; i < 4; ++i) {
      blas_.bf16(width_, tokens_, width_, weights, narrow_, wide_);
      touch(wide_, size_t{1} * tokens_ * width_, 0.5f);
    }
    blas_.bf16(4 * width_, tokens_, width_, weights, narrow_, wide_);
    touch(wide_, size_t{4} * tokens_ * width_, 0.5f);
    blas_.bf16(width_, tokens_, 4 * width_, weights, wide_, narrow_);
    touch(narrow_, size_t{1} * tokens_ * width_, 0.5f);
  }

  // For each product of forward(), the gradient of its input and that of its weights.
  void backward(int layer) {
    const __nv_bfloat16* weights = weights_ + layer * layer_size();
    for (int i = 0; i < 4; ++i) {
      blas_.bf16(width_, tokens_, width_, weights, narrow_, wide_);
      blas_.bf16(width_, width_, tokens_, narrow_, wide_, gradient_);
    }
    blas_.bf16(4 * width_, tokens_, width_, weights, narrow_, wide_);
    blas_.bf16(width_, 4 * width_, tokens_, narrow_, wide_, gradient_);
    blas_.bf16(width_, tokens_, 4 * width_, weights, wide_, narrow_);
    blas_.bf16(4 * width_, width_, tokens_, wide_, narrow_, gradient_);
    touch(narrow_, size_t{1} * tokens_ * width_, 0.5f);
  }

  cudaStream_t stream_;
  Blas blas_;
  int layers_, width_, tokens_;
  __nv_bfloat16 *weights_, *narrow_, *wide_, *gradient_;
};

int training(const Options& options) {
  cudaStream_t stream;
  CHECK(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
  Training training(options, stream);
  return serve(3, [&] { training.step(); });
}

}  // namespace
}  // namespace progress

int main(int argc, char** argv) {
  const std::string kind = argc > 2 ? argv[2] : "";
  const Options options(argc, argv);
  if (kind == "sgemm") return progress::sgemm(options);
  if (kind == "step") return progress::training(options);
  std::fprintf(stderr, "blas run sgemm|step name=value...\n");
  return 2;
}
