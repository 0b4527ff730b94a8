// nvcc: -lcuda
// Counts in memory of the host that kernels use, or what it has created and mapped itself. Its code has no variables.
#include "save_kinds.cuh"

namespace {

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
    // NVIDIA's driver maps memory from its beginning only.
    CHECK_DRIVER(cuMemCreate(&twice_, 2 * unit_, &props_, 0));
    const size_t offset = cuMemMap(at_, unit_, unit_, twice_, 0) == CUDA_SUCCESS ? unit_ : 0;
    if (offset != 0) {
      CHECK_DRIVER(cuMemUnmap(at_, unit_));
    } else {
      CHECK_DRIVER(cuMemRelease(twice_));
      CHECK_DRIVER(cuMemCreate(&twice_, unit_, &props_, 0));
    }
    CHECK_DRIVER(cuMemCreate(&sometimes_, unit_, &props_, 0));
    map(at_, unit_, offset, twice_);
    map(at_ + unit_, unit_, offset, twice_);
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

std::unique_ptr<Kind> make(const char* kind) {
  if (!std::strcmp(kind, "host")) return std::make_unique<Host>();
  if (!std::strcmp(kind, "mapped")) return std::make_unique<Mapped>();
  return nullptr;
}

}  // namespace

int main(int argc, char** argv) { return count(make(argc > 1 ? argv[1] : "")); }
