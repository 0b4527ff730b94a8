// Copies by tensor maps: one to five dimensions, every swizzling, what lies outside of the tensor, steps between
// elements, stores, reductions, im2col, maps that kernels change, and what the encoder refuses.
// nvcc: -arch=compute_90a -code=compute_90a -lcuda
#include <cuda.h>

#include <algorithm>
#include <cstring>
#include <vector>

#include "check.h"

namespace {

constexpr int kShared = 48 * 1024;

__device__ unsigned shared_of(const void* p) { return static_cast<unsigned>(__cvta_generic_to_shared(p)); }

struct Place {
  int at[5];
  unsigned short offset[3];  // im2col
};

#define LOAD(dims, mode, coordinates, more, ...)                                                     \
  asm volatile("cp.async.bulk.tensor." dims ".shared::cluster.global." mode                          \
               ".mbarrier::complete_tx::bytes [%0], [%1, " coordinates "], [%2]" more ";" ::"r"(to), \
               "l"(map), "r"(bar), __VA_ARGS__                                                       \
               : "memory")
#define STORE(what, dims, coordinates, ...)                                                                         \
  asm volatile(what ".async.bulk.tensor." dims ".tile.bulk_group [%0, " coordinates "], [%1];" ::"l"(map), "r"(to), \
               __VA_ARGS__                                                                                          \
               : "memory")
#define C1 "r"(p.at[0])
#define C2 C1, "r"(p.at[1])
#define C3 C2, "r"(p.at[2])
#define C4 C3, "r"(p.at[3])
#define C5 C4, "r"(p.at[4])

__device__ void load(unsigned to, const CUtensorMap* map, unsigned bar, const Place& p, int rank, bool im2col) {
  if (im2col) {
    if (rank == 3) LOAD("3d", "im2col", "{%3, %4, %5}", ", {%6}", C3, "h"(p.offset[0]));
    if (rank == 4) LOAD("4d", "im2col", "{%3, %4, %5, %6}", ", {%7, %8}", C4, "h"(p.offset[0]), "h"(p.offset[1]));
    if (rank == 5)
      LOAD("5d", "im2col", "{%3, %4, %5, %6, %7}", ", {%8, %9, %10}", C5, "h"(p.offset[0]), "h"(p.offset[1]),
           "h"(p.offset[2]));
    return;
  }
  if (rank == 1) LOAD("1d", "tile", "{%3}", "", C1);
  if (rank == 2) LOAD("2d", "tile", "{%3, %4}", "", C2);
  if (rank == 3) LOAD("3d", "tile", "{%3, %4, %5}", "", C3);
  if (rank == 4) LOAD("4d", "tile", "{%3, %4, %5, %6}", "", C4);
  if (rank == 5) LOAD("5d", "tile", "{%3, %4, %5, %6, %7}", "", C5);
}

__device__ void wait(unsigned bar, unsigned parity) {
  unsigned done = 0;
  while (!done)
    asm volatile("{.reg .pred p; mbarrier.try_wait.parity.shared::cta.b64 p, [%1], %2; selp.u32 %0, 1, 0, p;}"
                 : "=r"(done)
                 : "r"(bar), "r"(parity)
                 : "memory");
}

// One box into shared memory and out as it lies there.
__global__ void fetch(const __grid_constant__ CUtensorMap map, Place place, int rank, bool im2col, unsigned bytes,
                      uint8_t* out) {
  extern __shared__ __align__(1024) uint8_t box[];
  __shared__ __align__(8) unsigned long long bar;
  if (threadIdx.x == 0) {
    asm volatile("mbarrier.init.shared::cta.b64 [%0], 1;" ::"r"(shared_of(&bar)) : "memory");
    asm volatile("fence.proxy.async;" ::: "memory");
    asm volatile("prefetch.tensormap [%0];" ::"l"(&map) : "memory");
    asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(shared_of(&bar)), "r"(bytes)
                 : "memory");
    load(shared_of(box), &map, shared_of(&bar), place, rank, im2col);
  }
  __syncthreads();
  wait(shared_of(&bar), 0);
  for (unsigned i = threadIdx.x; i < bytes; i += blockDim.x) out[i] = box[i];
}

// Numbers from 1 on as a box into the tensor: a store, or an addition.
__global__ void send(const __grid_constant__ CUtensorMap map, Place p, int rank, bool adds, unsigned words) {
  extern __shared__ __align__(1024) uint8_t box[];
  for (unsigned i = threadIdx.x; i < words; i += blockDim.x) reinterpret_cast<unsigned*>(box)[i] = i + 1;
  asm volatile("fence.proxy.async;" ::: "memory");
  __syncthreads();
  if (threadIdx.x) return;
  const unsigned to = shared_of(box);
  const CUtensorMap* m = &map;
  [&](const CUtensorMap* map) {
    if (rank == 2 && !adds) STORE("cp", "2d.global.shared::cta", "{%2, %3}", C2);
    if (rank == 3 && !adds) STORE("cp", "3d.global.shared::cta", "{%2, %3, %4}", C3);
    if (rank == 2 && adds) STORE("cp.reduce", "2d.global.shared::cta.add", "{%2, %3}", C2);
    if (rank == 3 && adds) STORE("cp.reduce", "3d.global.shared::cta.max", "{%2, %3, %4}", C3);
  }(m);
  asm volatile("cp.async.bulk.commit_group;\ncp.async.bulk.wait_group 0;" ::: "memory");
}

// A map for another place and size, made by the kernel from one that the host encoded.
__global__ void remake(const __grid_constant__ CUtensorMap from, CUtensorMap* to, const void* address,
                       unsigned columns) {
  __shared__ __align__(128) CUtensorMap work;
  if (threadIdx.x < 32)
    reinterpret_cast<unsigned*>(&work)[threadIdx.x] = reinterpret_cast<const unsigned*>(&from)[threadIdx.x];
  __syncwarp();
  const unsigned at = shared_of(&work);
  if (threadIdx.x == 0) {
    asm volatile("tensormap.replace.tile.global_address.shared::cta.b1024.b64 [%0], %1;" ::"r"(at), "l"(address)
                 : "memory");
    asm volatile("tensormap.replace.tile.global_dim.shared::cta.b1024.b32 [%0], 0, %1;" ::"r"(at), "r"(columns)
                 : "memory");
    asm volatile("tensormap.replace.tile.fill_mode.shared::cta.b1024.b32 [%0], 1;" ::"r"(at) : "memory");
    asm volatile("tensormap.replace.tile.elemtype.shared::cta.b1024.b32 [%0], 7;" ::"r"(at) : "memory");
  }
  __syncwarp();
  asm volatile(
      "tensormap.cp_fenceproxy.global.shared::cta.tensormap::generic.release.gpu.sync.aligned [%0], [%1], 128;" ::"l"(
          to),
      "r"(at)
      : "memory");
}

template <class T>
T* managed(size_t n) {
  T* made = nullptr;
  CHECK(cudaMallocManaged(&made, n * sizeof(T)));
  return made;
}

struct Tensor {
  int rank;
  cuuint64_t dims[5];
  cuuint32_t box[5], steps[5];
  CUtensorMapDataType type;
  int bytes;  // of an element
  CUtensorMapSwizzle swizzle = CU_TENSOR_MAP_SWIZZLE_NONE;
  CUtensorMapFloatOOBfill fill = CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE;
  cuuint64_t strides[4] = {};
  size_t size() {
    cuuint64_t all = (dims[0] * bytes + 15) / 16 * 16;
    for (int i = 1; i < rank; ++i) {
      strides[i - 1] = all;
      all *= dims[i];
    }
    return all;
  }
};

// Where 16 bytes lie after swizzling, by the pictures of the PTX ISA.
size_t swizzled(size_t at, CUtensorMapSwizzle swizzle) {
  const size_t row = at / 128, chunks[] = {1, 2, 4, 8};
  return at ^ (row % chunks[swizzle]) * 16;
}

// Whether it stands for what lies outside of the tensor: 0, or any NaN of a half, which is what asks for NaNs here.
bool is_fill(const Tensor& t, uint64_t got) {
  return t.fill == CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE ? got == 0 : (got & 0x7fff) > 0x7c00;
}

bool is_outside(const Tensor& t, const int64_t* at) {
  for (int i = 0; i < t.rank; ++i) {
    if (at[i] < 0 || at[i] >= int64_t(t.dims[i])) return true;
  }
  return false;
}

uint64_t element_at(const Tensor& t, const uint8_t* data, const int64_t* at) {
  size_t where = at[0] * t.bytes;
  for (int i = 0; i < t.rank; ++i) {
    if (i) where += at[i] * t.strides[i - 1];
  }
  uint64_t value = 0;
  std::memcpy(&value, data + where, t.bytes);
  return value;
}

void expect_element(const Tensor& t, const uint8_t* data, const int64_t* at, uint64_t got) {
  if (is_outside(t, at)) {
    EXPECT(is_fill(t, got));
  } else {
    EXPECT_EQ(got, element_at(t, data, at));
  }
}

void check_tile(Tensor t, Place place) {
  const size_t size = t.size();
  auto* data = managed<uint8_t>(size);
  for (size_t i = 0; i < size; ++i) data[i] = uint8_t(i * 7 + i / 251);
  alignas(64) CUtensorMap map;
  CHECK_DRIVER(cuTensorMapEncodeTiled(&map, t.type, t.rank, data, t.dims, t.strides, t.box, t.steps,
                                      CU_TENSOR_MAP_INTERLEAVE_NONE, t.swizzle, CU_TENSOR_MAP_L2_PROMOTION_NONE,
                                      t.fill));
  int count[5] = {1, 1, 1, 1, 1};
  size_t elements = 1;
  for (int i = 0; i < t.rank; ++i) elements *= count[i] = i ? (t.box[i] + t.steps[i] - 1) / t.steps[i] : t.box[0];
  const auto bytes = static_cast<unsigned>(elements * t.bytes);
  auto* out = managed<uint8_t>(bytes);
  fetch<<<1, 64, kShared - 1024>>>(map, place, t.rank, false, bytes, out);
  CHECK(cudaDeviceSynchronize());
  for (size_t n = 0; n < elements; ++n) {
    int64_t at[5];
    size_t rest = n;
    for (int i = 0; i < t.rank; ++i) {
      at[i] = place.at[i] + int64_t(rest % count[i]) * (i ? t.steps[i] : 1);
      rest /= count[i];
    }
    uint64_t got = 0;
    const size_t where = n * t.bytes;
    std::memcpy(&got, out + swizzled(where / 16 * 16, t.swizzle) + where % 16, t.bytes);
    expect_element(t, data, at, got);
  }
  CHECK(cudaFree(data));
  CHECK(cudaFree(out));
}

void check_tiles() {
  check_tile({1, {1000}, {64}, {1}, CU_TENSOR_MAP_DATA_TYPE_UINT8, 1}, {{48}});
  check_tile({1, {1000}, {256}, {1}, CU_TENSOR_MAP_DATA_TYPE_FLOAT32, 4}, {{900}});
  const struct {
    CUtensorMapSwizzle swizzle;
    cuuint32_t columns;
  } swizzles[] = {{CU_TENSOR_MAP_SWIZZLE_NONE, 40},
                  {CU_TENSOR_MAP_SWIZZLE_32B, 16},
                  {CU_TENSOR_MAP_SWIZZLE_64B, 32},
                  {CU_TENSOR_MAP_SWIZZLE_128B, 64}};
  for (const auto& s : swizzles) {
    for (const Place& place : {Place{{0, 0}}, Place{{-8, 90}}, Place{{104, -3}}, Place{{200, 200}}})
      check_tile({2,
                  {136, 100},
                  {s.columns, 24},
                  {1, 1},
                  CU_TENSOR_MAP_DATA_TYPE_FLOAT16,
                  2,
                  s.swizzle,
                  CU_TENSOR_MAP_FLOAT_OOB_FILL_NAN_REQUEST_ZERO_FMA},
                 place);
    check_tile({3, {64, 20, 9}, {s.columns / 2, 7, 3}, {1, 2, 3}, CU_TENSOR_MAP_DATA_TYPE_INT32, 4, s.swizzle},
               {{4, 15, 4}});
  }
  check_tile({4, {10, 9, 8, 7}, {4, 3, 2, 3}, {1, 1, 1, 1}, CU_TENSOR_MAP_DATA_TYPE_FLOAT64, 8}, {{-2, 8, 3, 5}});
  check_tile({5, {16, 5, 4, 3, 6}, {8, 4, 3, 2, 3}, {1, 1, 2, 1, 2}, CU_TENSOR_MAP_DATA_TYPE_UINT16, 2},
             {{8, 2, -1, 1, 2}});
}

// A box of numbers goes out; what lies outside of the tensor is dropped.
void check_stores() {
  for (const bool adds : {false, true})
    for (const int rank : {2, 3}) {
      Tensor t{rank, {28, 11, 5}, {8, 4, 3}, {1, 1, 1}, CU_TENSOR_MAP_DATA_TYPE_INT32, 4, CU_TENSOR_MAP_SWIZZLE_32B};
      const size_t size = t.size();
      auto* data = managed<int>(size / 4);
      for (size_t i = 0; i < size / 4; ++i) data[i] = int(i % 64) - 20;
      std::vector<int> want(data, data + size / 4);
      alignas(64) CUtensorMap map;
      CHECK_DRIVER(cuTensorMapEncodeTiled(&map, t.type, rank, data, t.dims, t.strides, t.box, t.steps,
                                          CU_TENSOR_MAP_INTERLEAVE_NONE, t.swizzle, CU_TENSOR_MAP_L2_PROMOTION_NONE,
                                          t.fill));
      // GPUs end the program at stores below 0, and store whole chunks of 16 bytes at the end of a row.
      const Place place{{24, 9, 3}};
      const unsigned words = rank == 2 ? 32 : 96;
      send<<<1, 32, 4096>>>(map, place, rank, adds, words);
      CHECK(cudaDeviceSynchronize());
      for (unsigned n = 0; n < words; ++n) {
        const int x = place.at[0] + int(n % 8), y = place.at[1] + int(n / 8 % 4),
                  z = rank == 3 ? place.at[2] + int(n / 32) : 0;
        if (x >= 28 || y >= 11 || z >= 5) continue;
        const int value = int(swizzled(n / 4 * 16, t.swizzle) / 4 + n % 4 + 1);
        int& cell = want[x + y * t.strides[0] / 4 + (rank == 3 ? z * t.strides[1] / 4 : 0)];
        cell = !adds ? value : rank == 2 ? cell + value : std::max(cell, value);
      }
      for (size_t i = 0; i < want.size(); ++i) EXPECT_EQ(data[i], want[i]);
      CHECK(cudaFree(data));
    }
}

// Pixels of a bounding box one after another, for one element of a filter: rank 3 to 5.
void check_im2col() {
  for (const int rank : {3, 4, 5}) {
    Tensor t{rank, {24, 7, 6, 5, 3},         {}, {1, 1, 1, 1, 1}, CU_TENSOR_MAP_DATA_TYPE_FLOAT16,
             2,    CU_TENSOR_MAP_SWIZZLE_32B};
    t.dims[rank - 1] = 3;
    if (rank > 3) t.steps[1] = t.steps[2] = 2;
    const size_t size = t.size();
    auto* data = managed<uint8_t>(size);
    for (size_t i = 0; i < size; ++i) data[i] = uint8_t(i * 5 + i / 241);
    const int lower[3] = {-1, -1, -1}, upper[3] = {-1, -1, -1};
    constexpr unsigned kChannels = 16, kPixels = 50;
    alignas(64) CUtensorMap map;
    CHECK_DRIVER(cuTensorMapEncodeIm2col(&map, t.type, rank, data, t.dims, t.strides, lower, upper, kChannels, kPixels,
                                         t.steps, CU_TENSOR_MAP_INTERLEAVE_NONE, t.swizzle,
                                         CU_TENSOR_MAP_L2_PROMOTION_NONE, t.fill));
    Place place{{8, -1, -1, -1, 0}, {2, 1, 2}};
    place.at[rank - 1] = 1;
    auto* out = managed<uint8_t>(kChannels * kPixels * 2);
    fetch<<<1, 64, kShared - 1024>>>(map, place, rank, true, kChannels * kPixels * 2, out);
    CHECK(cudaDeviceSynchronize());
    int64_t pixel[5];
    std::copy_n(place.at, 5, pixel);
    for (unsigned n = 0; n < kPixels; ++n) {
      for (unsigned c = 0; c < kChannels; ++c) {
        int64_t at[5] = {place.at[0] + int(c), pixel[1], pixel[2], pixel[3], pixel[4]};
        for (int i = 0; i + 2 < rank; ++i) at[i + 1] += place.offset[i];
        uint64_t got = 0;
        const size_t where = (n * kChannels + c) * 2;
        std::memcpy(&got, out + swizzled(where / 16 * 16, t.swizzle) + where % 16, 2);
        expect_element(t, data, at, got);
      }
      int axis = 1;
      for (; axis < rank - 1; ++axis) {
        pixel[axis] += t.steps[axis];
        if (pixel[axis] < int64_t(t.dims[axis]) + upper[axis - 1]) break;
        pixel[axis] = lower[axis - 1];
      }
      if (axis == rank - 1) ++pixel[axis];
    }
    CHECK(cudaFree(data));
    CHECK(cudaFree(out));
  }
}

void check_remade() {
  auto* data = managed<float>(64 * 32);
  for (int i = 0; i < 64 * 32; ++i) data[i] = float(i);
  Tensor t{2, {64, 16}, {16, 4}, {1, 1}, CU_TENSOR_MAP_DATA_TYPE_INT32, 4};
  t.size();
  alignas(64) CUtensorMap map;
  CHECK_DRIVER(cuTensorMapEncodeTiled(&map, t.type, 2, data, t.dims, t.strides, t.box, t.steps,
                                      CU_TENSOR_MAP_INTERLEAVE_NONE, t.swizzle, CU_TENSOR_MAP_L2_PROMOTION_NONE,
                                      t.fill));
  CUtensorMap* made = nullptr;
  CHECK(cudaMalloc(&made, sizeof map));
  remake<<<1, 32>>>(map, made, data + 64 * 16, 40);
  CUtensorMap back;
  CHECK(cudaMemcpy(&back, made, sizeof back, cudaMemcpyDeviceToHost));
  auto* out = managed<float>(64);
  fetch<<<1, 64, 4096>>>(back, Place{{32, 2}}, 2, false, 256, reinterpret_cast<uint8_t*>(out));
  CHECK(cudaDeviceSynchronize());
  for (int n = 0; n < 64; ++n) {
    const int x = 32 + n % 16, y = 2 + n / 16;
    EXPECT((x < 40 ? out[n] == data[64 * 16 + y * 64 + x] : out[n] != out[n]));
  }
  CHECK_DRIVER(cuTensorMapReplaceAddress(&map, data + 64));
  fetch<<<1, 64, 4096>>>(map, Place{{0, 0}}, 2, false, 256, reinterpret_cast<uint8_t*>(out));
  CHECK(cudaDeviceSynchronize());
  EXPECT_EQ(out[0], data[64]);
  for (void* p : {(void*)data, (void*)made, (void*)out}) CHECK(cudaFree(p));
}

void check_refusals() {
  auto* data = managed<uint8_t>(1 << 16);
  alignas(64) CUtensorMap map;
  const auto encode = [&](Tensor t, const void* address, int rank) {
    t.size();
    return cuTensorMapEncodeTiled(&map, t.type, rank, const_cast<void*>(address), t.dims, t.strides, t.box, t.steps,
                                  CU_TENSOR_MAP_INTERLEAVE_NONE, t.swizzle, CU_TENSOR_MAP_L2_PROMOTION_NONE, t.fill);
  };
  const Tensor good{2, {64, 16}, {16, 4}, {1, 1}, CU_TENSOR_MAP_DATA_TYPE_INT32, 4};
  CHECK_DRIVER(encode(good, data, 2));
  EXPECT_CODE(CUDA_ERROR_INVALID_VALUE, encode(good, data + 8, 2));
  EXPECT_CODE(CUDA_ERROR_INVALID_VALUE, encode(good, data, 0));
  EXPECT_CODE(CUDA_ERROR_INVALID_VALUE, encode(good, data, 6));
  Tensor bad = good;
  bad.box[1] = 257;
  EXPECT_CODE(CUDA_ERROR_INVALID_VALUE, encode(bad, data, 2));
  bad = good;
  bad.box[0] = 3;  // 12 bytes
  EXPECT_CODE(CUDA_ERROR_INVALID_VALUE, encode(bad, data, 2));
  bad = good;
  bad.swizzle = CU_TENSOR_MAP_SWIZZLE_32B;  // 64 bytes
  EXPECT_CODE(CUDA_ERROR_INVALID_VALUE, encode(bad, data, 2));
  bad = good;
  bad.steps[1] = 9;
  EXPECT_CODE(CUDA_ERROR_INVALID_VALUE, encode(bad, data, 2));
  bad = good;
  bad.fill = CU_TENSOR_MAP_FLOAT_OOB_FILL_NAN_REQUEST_ZERO_FMA;  // of integers
  EXPECT_CODE(CUDA_ERROR_INVALID_VALUE, encode(bad, data, 2));
  CHECK(cudaFree(data));
}

}  // namespace

int main() {
  CHECK(cudaFree(nullptr));
  check_tiles();
  check_stores();
  check_im2col();
  check_remade();
  check_refusals();
  return passed();
}
