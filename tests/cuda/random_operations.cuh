// Operations on random parts of a World's buffers, which may also be captured.
#pragma once

#include <atomic>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>

#include "random_world.cuh"

__global__ void affine(unsigned* to, size_t count, unsigned factor, unsigned summand) {
  for (size_t i = blockIdx.x * blockDim.x + threadIdx.x; i < count; i += gridDim.x * blockDim.x)
    to[i] = to[i] * factor + summand;
}

__global__ void add_product(unsigned* to, const unsigned* from, size_t count, unsigned factor) {
  for (size_t i = blockIdx.x * blockDim.x + threadIdx.x; i < count; i += gridDim.x * blockDim.x)
    to[i] += from[count - 1 - i] * factor;
}

// What is put on a stream, and what it does to the model. The model goes first: host functions compare with it.
struct Operation {
  std::function<void(cudaStream_t)> issue;
  std::function<void()> model;
};

// What a host function compares: a copy of a buffer's part with what the model held, once for each time it runs.
struct Look {
  const unsigned* host;
  std::mutex mutex;
  std::deque<Words> expected;
};

static void CUDART_CB compare(void* pointer) {
  Look* const look = static_cast<Look*>(pointer);
  std::lock_guard lock(look->mutex);
  EXPECT(!look->expected.empty());
  expect_equal(look->host, look->expected.front().data(), look->expected.front().size());
  look->expected.pop_front();
}

static void CUDART_CB count_call(void* pointer) { ++*static_cast<std::atomic<unsigned>*>(pointer); }

class Operations : public World {
 public:
  explicit Operations(unsigned seed) : World(seed) { CHECK(cudaMallocHost(&pinned_, kPinnedWords * sizeof(unsigned))); }

  void finish() {
    World::finish();
    CHECK(cudaFreeHost(pinned_));
  }

 protected:
  // Operations that may also be captured.
  Operation any_operation(int stream, Range of = {}) {
    switch (up_to(9)) {
      case 0:
        return kernel_on_two(stream, of);
      case 1:
        return copy(stream, of);
      case 2:
        return copy_rows(stream, of);
      case 3:
        return fill(stream, of);
      case 4:
        return host_function();
      case 5:
        return upload(stream, of);
      case 6:
        return look(stream, of);
      case 7:
        return through_ordered_memory(stream, of);
      default:
        return kernel(any_part(stream, of), static_cast<unsigned>(random_()), static_cast<unsigned>(random_()));
    }
  }

  Operation kernel(Part part, unsigned factor, unsigned summand) {
    const unsigned blocks = 1 + up_to(40);
    return {[=](cudaStream_t stream) {
              affine<<<blocks, 64, 0, stream>>>(part.at(), part.count, factor, summand);
              CHECK(cudaGetLastError());
            },
            [=] { model_affine(part, factor, summand); }};
  }
  static void model_affine(Part part, unsigned factor, unsigned summand) {
    for (size_t i = 0; i < part.count; ++i) part.model()[i] = part.model()[i] * factor + summand;
  }

  Operation kernel_on_two(int stream, Range of) {
    const auto [from, to] = two_parts(stream, of);
    const unsigned factor = static_cast<unsigned>(random_());
    return {[from = from, to = to, factor](cudaStream_t on) {
              add_product<<<5, 64, 0, on>>>(to.at(), from.at(), to.count, factor);
              CHECK(cudaGetLastError());
            },
            [from = from, to = to, factor] {
              for (size_t i = 0; i < to.count; ++i) to.model()[i] += from.model()[to.count - 1 - i] * factor;
            }};
  }

  Operation copy(int stream, Range of) {
    const auto [from, to] = two_parts(stream, of);
    return {[from = from, to = to](cudaStream_t on) {
              CHECK(cudaMemcpyAsync(to.at(), from.at(), to.bytes(), cudaMemcpyDefault, on));
            },
            [from = from, to = to] { std::copy_n(from.model(), to.count, to.model()); }};
  }

  Operation copy_rows(int stream, Range of) {
    const auto [from, to] = two_parts(stream, of);
    const size_t pitch = 1 + up_to(200), width = 1 + up_to(pitch), rows = to.count / pitch;
    if (rows == 0) return host_function();
    return {
        [=, from = from, to = to](cudaStream_t on) {
          CHECK(cudaMemcpy2DAsync(to.at(), 4 * pitch, from.at(), 4 * pitch, 4 * width, rows, cudaMemcpyDefault, on));
        },
        [=, from = from, to = to] {
          for (size_t row = 0; row < rows; ++row)
            std::copy_n(from.model() + row * pitch, width, to.model() + row * pitch);
        }};
  }

  Operation fill(int stream, Range of) {
    const Part part = any_part(stream, of);
    if (part.buffer->kind == Kind::kMapped) return host_function();  // graphs have no such nodes natively
    const unsigned byte = up_to(256), word = up_to(2) ? byte * 0x01010101u : static_cast<unsigned>(random_());
    const bool bytes = word == byte * 0x01010101u;
    return {[=](cudaStream_t on) {
              if (bytes) CHECK(cudaMemsetAsync(part.at(), static_cast<int>(byte), part.bytes(), on));
              if (!bytes)
                CHECK_DRIVER(cuMemsetD32Async(reinterpret_cast<CUdeviceptr>(part.at()), word, part.count, on));
            },
            [=] { std::fill_n(part.model(), part.count, word); }};
  }

  Operation host_function() {
    return {[this](cudaStream_t on) { CHECK(cudaLaunchHostFunc(on, count_call, &calls_)); },
            [this] { ++calls_expected_; }};
  }

  Operation upload(int stream, Range of) {
    const Part part = any_part(stream, of);
    unsigned* const host = pinned(part.count);
    for (size_t i = 0; i < part.count; ++i) host[i] = static_cast<unsigned>(random_());
    return {[=](cudaStream_t on) { CHECK(cudaMemcpyAsync(part.at(), host, part.bytes(), cudaMemcpyDefault, on)); },
            [=] { std::copy_n(host, part.count, part.model()); }};
  }

  Operation look(int stream, Range of) {
    const Part part = any_part(stream, of);
    unsigned* const host = pinned(part.count);
    looks_.push_back(std::make_unique<Look>());
    Look* const look = looks_.back().get();
    look->host = host;
    return {[=](cudaStream_t on) {
              CHECK(cudaMemcpyAsync(host, part.at(), part.bytes(), cudaMemcpyDefault, on));
              CHECK(cudaLaunchHostFunc(on, compare, look));
            },
            [=] {
              std::lock_guard lock(look->mutex);
              look->expected.emplace_back(part.model(), part.model() + part.count);
            }};
  }

  Operation through_ordered_memory(int stream, Range of) {
    const auto [from, to] = two_parts(stream, of);
    return {[from = from, to = to](cudaStream_t on) {
              unsigned* memory;
              CHECK(cudaMallocAsync(&memory, to.bytes(), on));
              CHECK(cudaMemcpyAsync(memory, from.at(), to.bytes(), cudaMemcpyDefault, on));
              affine<<<3, 64, 0, on>>>(memory, to.count, 3, 5);
              CHECK(cudaGetLastError());
              CHECK(cudaMemcpyAsync(to.at(), memory, to.bytes(), cudaMemcpyDefault, on));
              CHECK(cudaFreeAsync(memory, on));
            },
            [from = from, to = to] {
              for (size_t i = 0; i < to.count; ++i) to.model()[i] = from.model()[i] * 3 + 5;
            }};
  }

  // Half of the pinned memory is enough for one step of a Player.
  bool needs_pinned() const { return pinned_used_ > kPinnedWords / 2; }
  // All that was begun is over.
  void operations_ended() {
    for (const auto& look : looks_) EXPECT(look->expected.empty());
    EXPECT_EQ(calls_.load(), calls_expected_);
    looks_.clear();
    pinned_used_ = 0;
  }

  static void run(const Operation& operation, cudaStream_t stream) {
    operation.model();
    operation.issue(stream);
  }

  void* calls() { return &calls_; }
  void expect_call() { ++calls_expected_; }

 private:
  static constexpr size_t kPinnedWords = 500000;

  unsigned* pinned(size_t count) { return pinned_ + std::exchange(pinned_used_, pinned_used_ + count); }

  unsigned* pinned_ = nullptr;
  size_t pinned_used_ = 0;
  std::vector<std::unique_ptr<Look>> looks_;
  std::atomic<unsigned> calls_{0};
  unsigned calls_expected_ = 0;
};
