// Code images as programs hand them to cuLibraryLoadData and cuModuleLoadData: which PTX is to run? Pure functions of
// untrusted bytes: sizes are checked, what is unpacked is bounded, any thread may call them.
//
// Layouts: fatbins are not documented by NVIDIA; they were read from nvcc 13.0's output and from cuBLAS, cuFFT.
#pragma once

#include <cuda.h>

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

namespace bandsaw::image {

inline constexpr uint64_t kMaxUnpackedImage = uint64_t{256} << 20;  // bytes, all of one image's PTX together
inline constexpr uint32_t kMaxImageEntries = 65536;

struct ImageEntry {
  enum class Kind : uint8_t { kPtx, kElf, kOther };
  enum class Packing : uint8_t { kNone, kLz4, kZstd };
  Kind kind = Kind::kOther;
  Packing packing = Packing::kNone;
  uint32_t sm = 0;                     // 90 for sm_90; 0 if unknown
  uint64_t flags = 0;                  // of the fatbin's entry; 0 elsewhere
  uint32_t fatbin = 0;                 // which one, where an image is several fatbins in a row
  uint64_t bytes = 0;                  // unpacked
  std::span<const std::byte> payload;  // as stored; views the image

  bool architecture_specific() const { return flags & 0x100000; }  // sm_90a
  bool family_specific() const { return flags & 0x200000; }        // sm_100f
};

// `image`: one fatbin or several in a row (as a guest sends the fatbins that an -rdc program was linked from), an ELF,
// or PTX text that may end in NUL. CUDA_ERROR_INVALID_IMAGE with the reason in `log` for anything else.
CUresult list_image(std::span<const std::byte> image, std::vector<ImageEntry>* entries, std::string* log);

// At most kMaxUnpackedImage bytes. CUDA_ERROR_INVALID_IMAGE if packed badly.
CUresult unpack(const ImageEntry& entry, std::string* bytes, std::string* log);

constexpr uint32_t kSoftwareDeviceSm = 90;  // 10 times the compute capability that it says it has

struct PtxChoice {
  uint32_t sm = 0;                 // the highest among the units
  std::vector<std::string> units;  // texts without trailing NUL; more than one are to be linked together
};

// Takes from each fatbin its PTX of the highest sm; of several for that sm the portable ones before the
// family-specific (f) before the architecture-specific (a). Several equal ones are compilation units of one program.
// `gpu`: 90 for a GPU of compute capability 9.0, which takes no PTX for later ones nor for the features of others; 0:
// the software device, which takes that too where a fatbin has no other. CUDA_ERROR_NO_BINARY_FOR_GPU: there is machine
// code only, or PTX for other GPUs; `log` says what.
CUresult find_ptx(std::span<const std::byte> image, PtxChoice* choice, std::string* log, uint32_t gpu = 0);

// Of both, a unit that is libcudadevrt (what kernels that launch kernels or meet across the grid are linked with) is
// left out: the device defines its functions. The two halves of it, for who keeps PTX as it came and may read it later:
// entries, which view the image, and texts.
CUresult choose_ptx(std::span<const std::byte> image, std::vector<ImageEntry>* chosen, std::string* log, uint32_t gpu);
CUresult unpack_ptx(const std::vector<ImageEntry>& chosen, std::vector<std::string>* units, std::string* log);

// Whether a GPU of that compute capability runs what choose_ptx() takes: itself, or machine code that was made for the
// same target beside it. Machine code for another one may be of other source text. 0: the software device does.
bool runs_its_ptx(std::span<const std::byte> image, uint32_t gpu);

}  // namespace bandsaw::image
