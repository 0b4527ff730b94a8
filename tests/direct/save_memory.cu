// nvcc: -lcuda
// Counts in managed memory, memory of the host that kernels use, what it has created and mapped itself, or what kernels
// allocate.
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

// Pinned and registered memory of the host that kernels count in.
class Host : public Kind {
 public:
  Host() {
    CHECK(cudaHostAlloc(&pinned_, kWords * sizeof(unsigned), cudaHostAllocMapped));
    registered_ = static_cast<unsigned*>(std::aligned_alloc(4096, 32768));
    CHECK(cudaHostRegister(registered_, 32768, cudaHostRegisterMapped));
    CHECK(cudaHostGetDevicePointer(&of_pinned_, pinned_, 0));
    CHECK(cudaHostGetDevicePointer(&of_registered_, registered_, 0));
    std::memset(pinned_, 0, kWords * sizeof(unsigned));
    std::memset(registered_, 0, kWords * sizeof(unsigned));
  }
  void round(unsigned number) override {
    add_one(of_pinned_);
    add_one(of_registered_);
    CHECK(cudaDeviceSynchronize());
    expect_all(pinned_, kWords, number);
    expect_all(registered_, kWords, number);
  }

 private:
  unsigned *pinned_ = nullptr, *registered_ = nullptr, *of_pinned_ = nullptr, *of_registered_ = nullptr;
};

// Memory that is mapped twice, one whose handle has gone, one that is not mapped now and then, and addresses without
// any.
class Mapped : public Kind {
 public:
  Mapped() {
    CHECK(cudaFree(nullptr));
    props_.type = CU_MEM_ALLOCATION_TYPE_PINNED;
    props_.location = {CU_MEM_LOCATION_TYPE_DEVICE, 0};
    CHECK_DRIVER(cuMemGetAllocationGranularity(&unit_, &props_, CU_MEM_ALLOC_GRANULARITY_MINIMUM));
    CHECK_DRIVER(cuMemAddressReserve(&unused_, unit_, 0, 0, 0));
    CHECK_DRIVER(cuMemAddressReserve(&at_, 4 * unit_, 0, 0, 0));
    CHECK_DRIVER(cuMemAddressFree(unused_, unit_));
    CHECK_DRIVER(cuMemCreate(&twice_, 2 * unit_, &props_, 0));
    CHECK_DRIVER(cuMemCreate(&sometimes_, unit_, &props_, 0));
    map(at_, unit_, unit_, twice_);
    map(at_ + unit_, unit_, unit_, twice_);
    CUmemGenericAllocationHandle released;
    CHECK_DRIVER(cuMemCreate(&released, unit_, &props_, 0));
    map(at_ + 2 * unit_, unit_, 0, released);
    CHECK_DRIVER(cuMemRelease(released));
    CHECK_DRIVER(cuMemsetD8(at_, 0, 3 * unit_));
    map(at_ + 3 * unit_, unit_, 0, sometimes_);
    CHECK_DRIVER(cuMemsetD8(at_ + 3 * unit_, 0, unit_));
    CHECK(cudaDeviceSynchronize());
    CHECK_DRIVER(cuMemUnmap(at_ + 3 * unit_, unit_));
  }
  void round(unsigned number) override {
    add_one(words(0));
    add_one(words(1));
    add_one(words(2));
    map(at_ + 3 * unit_, unit_, 0, sometimes_);
    add_one(words(3));
    CHECK(cudaDeviceSynchronize());
    expect_device(words(0), kWords, 2 * number);
    expect_device(words(1), kWords, 2 * number);
    expect_device(words(2), kWords, number);
    expect_device(words(3), kWords, number);
    CHECK_DRIVER(cuMemUnmap(at_ + 3 * unit_, unit_));
  }

 private:
  unsigned* words(unsigned place) const { return reinterpret_cast<unsigned*>(at_ + place * unit_); }
  static void map(CUdeviceptr at, size_t bytes, size_t offset, CUmemGenericAllocationHandle memory) {
    CUmemAccessDesc access{{CU_MEM_LOCATION_TYPE_DEVICE, 0}, CU_MEM_ACCESS_FLAGS_PROT_READWRITE};
    CHECK_DRIVER(cuMemMap(at, bytes, offset, memory, 0));
    CHECK_DRIVER(cuMemSetAccess(at, bytes, &access, 1));
  }
  size_t unit_ = 0;
  CUmemAllocationProp props_{};
  CUdeviceptr at_ = 0, unused_ = 0;
  CUmemGenericAllocationHandle twice_ = 0, sometimes_ = 0;
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
  if (!std::strcmp(kind, "host")) return std::make_unique<Host>();
  if (!std::strcmp(kind, "mapped")) return std::make_unique<Mapped>();
  if (!std::strcmp(kind, "heap")) return std::make_unique<Heap>();
  return nullptr;
}

}  // namespace

int main(int argc, char** argv) { return count(make(argc > 1 ? argv[1] : "")); }
