// nvcc: -lcuda
// native: no
// Damaged code: cubins, fatbins and PTX that are cut off, have bytes flipped, or lie about sizes. Loading gives an
// error, or code that is not run here. A driver that crashes of it takes the GPU away from the process that gave it
// such code, as on bare metal, and from nobody else; so does one that never comes back. The software device does
// neither.
#include <elf.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <cstring>
#include <fstream>
#include <iterator>
#include <string>
#include <thread>
#include <vector>

#include "bad_input.cuh"
#include "parts.cuh"

using Bytes = std::vector<unsigned char>;

__global__ void some_code(float* data, int count) {
  __shared__ float part[32];
  part[threadIdx.x % 32] = data[threadIdx.x];
  __syncthreads();
  for (int i = 0; i < count; ++i) data[i] += sinf(part[i % 32]);
}

static const char* kPtx = R"(
.version 8.0
.target sm_75
.address_size 64
.global .align 4 .u32 counter = 5;
.visible .entry scale(.param .u64 data, .param .u32 count)
{
  .reg .pred %p;
  .reg .b32 %r<4>;
  .reg .b64 %d<4>;
  ld.param.u64 %d1, [data];
  ld.param.u32 %r1, [count];
  mov.u32 %r2, %tid.x;
  setp.ge.u32 %p, %r2, %r1;
  @%p bra done;
  mul.wide.u32 %d2, %r2, 4;
  add.s64 %d3, %d1, %d2;
  ld.global.u32 %r3, [%d3];
  st.global.u32 [%d3], %r3;
done:
  ret;
}
)";

static Bytes fatbin, cubin, ptx;
static char device_name[256];

// The first fatbin and the first cubin in this program's file that hold its kernel.
static bool find_images() {
  std::ifstream self("/proc/self/exe", std::ios::binary);
  const std::string file((std::istreambuf_iterator<char>(self)), std::istreambuf_iterator<char>());
  const std::string magic("\x50\xed\x55\xba\x01\x00\x10\x00", 8);
  for (size_t at = 0; (at = file.find(magic, at)) != std::string::npos; ++at) {
    uint64_t bytes = 0;
    std::memcpy(&bytes, &file[at + 8], 8);
    if (bytes > file.size() - at - 16) continue;
    const std::string whole = file.substr(at, bytes + 16);
    const size_t elf = whole.find(ELFMAG);
    if (elf == std::string::npos || whole.find("some_code", elf) == std::string::npos) continue;
    Elf64_Ehdr header;
    std::memcpy(&header, &whole[elf], sizeof(header));
    const size_t length = header.e_phoff + size_t{header.e_phnum} * header.e_phentsize;
    fatbin.assign(whole.begin(), whole.end());
    cubin.assign(whole.begin() + static_cast<long>(elf), whole.begin() + static_cast<long>(elf + length));
    return true;
  }
  return false;
}

static std::atomic<unsigned> refused{0}, accepted{0};

// A driver that never comes back, too.
static void watch() {
  const bool ours = std::strstr(device_name, "software");
  for (unsigned seen = ~0u, now; seen != (now = refused + accepted); seen = now) {
    std::this_thread::sleep_for(std::chrono::seconds(ours ? 40 : 4));
  }
  std::printf("the driver does not come back from image %u\n", refused + accepted);
  std::fflush(stdout);
  _exit(ours ? 1 : 0);
}

// A driver that crashed ends a part; nothing of ours may.
static void expect_host(CUresult result) {
  if (result != CUDA_ERROR_DEVICE_UNAVAILABLE) return;
  std::printf("the driver crashed of image %u\n", refused + accepted);
  std::exit(std::strstr(device_name, "software") ? 1 : 0);
}

static void load(const Bytes& image) {
  Bytes padded = image;
  padded.resize(image.size() + 65536);  // what lies behind it is the program's too
  CUmodule module;
  const CUresult loaded = cuModuleLoadData(&module, padded.data());
  expect_host(loaded);
  ++(loaded == CUDA_SUCCESS ? accepted : refused);
  if (loaded == CUDA_SUCCESS) CHECK_DRIVER(cuModuleUnload(module));
  CUlibrary library;
  const CUresult kept = cuLibraryLoadData(&library, padded.data(), nullptr, nullptr, 0, nullptr, nullptr, 0);
  expect_host(kept);
  if (kept == CUDA_SUCCESS) CHECK_DRIVER(cuLibraryUnload(library));
}

static void cut_off(const Bytes& image) {
  for (size_t keep : {size_t{4}, size_t{8}, size_t{15}, size_t{16}, size_t{40}, size_t{63}, size_t{64}, size_t{100},
                      image.size() / 4, image.size() / 2, image.size() - 64, image.size() - 1}) {
    Bytes cut(image.begin(), image.begin() + static_cast<long>(std::min(keep, image.size())));
    load(cut);
    cut.resize(image.size());  // with zeros in place of the rest
    load(cut);
  }
}

static void flipped(const Bytes& image, unsigned count) {
  unsigned long long random = 12345;
  for (unsigned i = 0; i < count; ++i) {
    Bytes bad = image;
    for (unsigned flips = 0; flips <= i % 3; ++flips) {
      random = random * 6364136223846793005ull + 1442695040888963407ull;
      // Half of them where the tables are.
      const size_t range = i % 2 ? bad.size() : std::min<size_t>(bad.size(), 256);
      bad[(random >> 33) % range] ^= static_cast<unsigned char>(1u << (random >> 20 & 7));
    }
    load(bad);
  }
}

// Eight bytes of a header each say something huge, or nothing.
static void wrong_sizes(const Bytes& image, size_t header) {
  for (size_t at = 8; at + 8 <= std::min(header, image.size()); at += 8) {
    for (const unsigned long long value : {0ull, 1ull, 0x7fffffffull, 0xffffull << 32, ~0ull, ~0ull >> 1}) {
      Bytes bad = image;
      std::memcpy(&bad[at], &value, 8);
      load(bad);
    }
  }
}

static void begin() {
  CHECK(cudaFree(nullptr));
  CHECK_DRIVER(cuDeviceGetName(device_name, sizeof(device_name), 0));
  std::thread(watch).detach();
}

static void finish(const char* what) {
  std::printf("%s: %u images refused, %u loaded\n", what, refused.load(), accepted.load());
  real_work();
}

static void damaged_fatbins() {
  begin();
  cut_off(fatbin);
  flipped(fatbin, 60);
  finish("fatbins");
}

static void damaged_cubins() {
  begin();
  cut_off(cubin);
  flipped(cubin, 60);
  finish("cubins");
}

static void damaged_text() {
  begin();
  cut_off(ptx);
  flipped(ptx, 60);
  finish("PTX");
}

static void sizes() {
  begin();
  wrong_sizes(fatbin, 16 + 64);
  wrong_sizes(cubin, 64);
  finish("sizes");
}

static void no_images() {
  begin();
  CUmodule module;
  EXPECT_REFUSED(cuModuleLoadData(&module, ""));
  EXPECT_REFUSED(cuModuleLoadData(&module, "x"));
  EXPECT_REFUSED(cuModuleLoadData(&module, nullptr));
  EXPECT_REFUSED(cuModuleLoad(&module, "/nonexistent/file"));
  EXPECT_REFUSED(cuModuleLoad(&module, "/proc/self/cmdline"));
  CHECK_DRIVER(cuModuleLoadData(&module, fatbin.data()));  // the undamaged one
  CHECK_DRIVER(cuModuleUnload(module));
  real_work();
}

int main() {
  EXPECT(find_images());
  ptx.assign(kPtx, kPtx + std::strlen(kPtx) + 1);
  return run_parts({{"fatbins", damaged_fatbins},
                    {"cubins", damaged_cubins},
                    {"PTX", damaged_text},
                    {"sizes", sizes},
                    {"no images", no_images}});
}
