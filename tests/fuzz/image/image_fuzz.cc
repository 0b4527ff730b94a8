// Code images of a guest: any bytes end in PTX units or an error. Seeds: tests/unit/image/samples/parameters.*.
// By hand: image_fuzz -max_len=20000 CORPUS tests/unit/image/samples
#include "backend/device/image/cubin.h"
#include "backend/device/image/image.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace bandsaw::image;
  std::span<const std::byte> image(reinterpret_cast<const std::byte*>(data), size);
  std::string log;
  PtxChoice choice;
  (void)find_ptx(image, &choice, &log);
  std::vector<CubinKernel> kernels;
  (void)list_kernels(image, &kernels, &log);
  std::vector<ImageEntry> entries;
  if (list_image(image, &entries, &log) != CUDA_SUCCESS) return 0;
  for (const ImageEntry& entry : entries) {
    std::string bytes;
    if (entry.bytes > 1 << 20 || unpack(entry, &bytes, &log) != CUDA_SUCCESS) continue;
    (void)list_kernels({reinterpret_cast<const std::byte*>(bytes.data()), bytes.size()}, &kernels, &log);
  }
  return 0;
}
