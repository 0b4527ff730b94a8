// Counts in managed memory, or what kernels allocate.
#include "save_kinds.cuh"

namespace {

__managed__ unsigned in_code[64] = {1};

// Small and large; some that the host has, some that the device has, and some that both use.
class Managed : public Kind {
 public:
  Managed() {
    CHECK(cudaMallocManaged(&small_, kWords * sizeof(unsigned)));
    CHECK(cudaMallocManaged(&large_, kLarge * sizeof(unsigned)));
    CHECK(cudaMallocManaged(&host_, kWords * sizeof(unsigned), cudaMemAttachHost));
    for (unsigned i = 0; i < kWords; ++i) small_[i] = host_[i] = 0;
    CHECK(cudaMemset(large_, 0, kLarge * sizeof(unsigned)));
  }
  void round(unsigned number) override {
    add_one(large_, kLarge);
    add_one(small_);
    add_one(in_code, 64);
    CHECK(cudaDeviceSynchronize());
    expect_all(small_, kWords, 2 * number - 1);
    for (unsigned i = 0; i < kWords; ++i) ++small_[i], ++host_[i];
    expect_all(host_, kWords, number);
    if (number % 3 == 0) expect_all(large_ + kLarge - kWords, kWords, number);
    EXPECT_EQ(in_code[0], 1 + number);
    unsigned* passing = nullptr;
    CHECK(cudaMallocManaged(&passing, 4096));
    *passing = number;
    CHECK(cudaFree(passing));
  }

 private:
  static constexpr unsigned kLarge = 6u << 20;
  unsigned *small_ = nullptr, *large_ = nullptr, *host_ = nullptr;
};

__global__ void allocate(unsigned** kept, unsigned number) {
  unsigned** const slot = &kept[number % 4];
  free(*slot);
  *slot = static_cast<unsigned*>(malloc(64 << number % 3));
  **slot = number;
  if (number % 4 == 0) ++*kept[4];
}

__global__ void allocate_counter(unsigned** kept) {
  kept[4] = static_cast<unsigned*>(malloc(sizeof(unsigned)));
  *kept[4] = 0;
}

__global__ void look(unsigned* const* kept, unsigned* seen) {
  for (int i = 0; i < 5; ++i) seen[i] = kept[i] ? *kept[i] : 0;
}

// Memory that kernels allocate, free and allocate again.
class Heap : public Kind {
 public:
  Heap() {
    CHECK(cudaDeviceSetLimit(cudaLimitMallocHeapSize, 1 << 20));
    CHECK(cudaMalloc(&kept_, 5 * sizeof *kept_));
    CHECK(cudaMemset(kept_, 0, 5 * sizeof *kept_));
    allocate_counter<<<1, 1>>>(kept_);
    CHECK(cudaMalloc(&seen_, 5 * sizeof *seen_));
  }
  void round(unsigned number) override {
    allocate<<<1, 1>>>(kept_, number);
    look<<<1, 1>>>(kept_, seen_);
    unsigned seen[5];
    CHECK(cudaMemcpy(seen, seen_, sizeof seen, cudaMemcpyDeviceToHost));
    for (unsigned i = 0; i < 4 && i < number; ++i) EXPECT_EQ(seen[(number - i) % 4], number - i);
    EXPECT_EQ(seen[4], number / 4);
  }

 private:
  unsigned **kept_ = nullptr, *seen_ = nullptr;
};

std::unique_ptr<Kind> make(const char* kind) {
  if (!std::strcmp(kind, "managed")) return std::make_unique<Managed>();
  if (!std::strcmp(kind, "heap")) return std::make_unique<Heap>();
  return nullptr;
}

}  // namespace

int main(int argc, char** argv) { return count(make(argc > 1 ? argv[1] : "")); }
