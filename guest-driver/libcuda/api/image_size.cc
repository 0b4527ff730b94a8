#include "guest-driver/libcuda/api/image_size.h"

#include <elf.h>

#include <algorithm>
#include <cctype>
#include <cstring>

#include "guest-driver/libcuda/core/careful_read.h"

namespace bandsaw::libcuda {
namespace {

constexpr uint32_t kWrapperMagic = 0x466243b1;
constexpr uint32_t kFatbinMagic = 0xBA55ED50;

struct FatbinWrapper {
  uint32_t magic, version;
  const void* data;
  const void* const* prelinked;  // version 2: fatbins that `data` was linked from, up to a null pointer
};

struct FatbinHeader {
  uint32_t magic;
  uint16_t version, header_bytes;
  uint64_t payload_bytes;
};

uint32_t magic_of(const void* image) {
  uint32_t magic = 0;
  return careful_read(&magic, image, sizeof(magic)) ? magic : 0;
}

CUresult fatbin_image(const void* data, Image* found) {
  FatbinHeader header;
  uint64_t bytes;
  if (!careful_read(&header, data, sizeof(header)) || header.header_bytes < sizeof(header) ||
      __builtin_add_overflow(header.payload_bytes, header.header_bytes, &bytes)) {
    return CUDA_ERROR_INVALID_IMAGE;
  }
  *found = {data, bytes};
  return CUDA_SUCCESS;
}

// Whether a size is plausible. Asked before memory of that size is allocated.
bool is_there(const Image& image) {
  const auto first = reinterpret_cast<uintptr_t>(image.data);
  uintptr_t end = 0;
  char last = 0;
  return image.bytes > 0 && !__builtin_add_overflow(first, image.bytes, &end) &&
         careful_read(&last, reinterpret_cast<const void*>(end - 1), 1);
}

constexpr size_t kMaxPrelinked = 65536;

CUresult linked_image(const FatbinWrapper& wrapper, Image* found) {
  CUresult result = fatbin_image(wrapper.data, found);
  if (result != CUDA_SUCCESS || wrapper.version != 2 || !wrapper.prelinked) return result;
  const auto joined = std::make_shared<std::vector<char>>();
  const auto append = [&joined](const Image& part) {
    if (!is_there(part)) return false;
    const size_t at = (joined->size() + 7) / 8 * 8;
    joined->resize(at + part.bytes);
    return careful_read(joined->data() + at, part.data, part.bytes);
  };
  if (!append(*found)) return CUDA_ERROR_INVALID_IMAGE;
  for (size_t i = 0; i < kMaxPrelinked; ++i) {
    const void* prelinked = nullptr;
    if (!careful_read(&prelinked, wrapper.prelinked + i, sizeof(prelinked))) return CUDA_ERROR_INVALID_IMAGE;
    if (!prelinked) break;
    Image part;
    if (magic_of(prelinked) != kFatbinMagic) return CUDA_ERROR_INVALID_IMAGE;
    result = fatbin_image(prelinked, &part);
    if (result != CUDA_SUCCESS) return result;
    if (!append(part)) return CUDA_ERROR_INVALID_IMAGE;
  }
  *found = {joined->data(), joined->size(), joined};
  return CUDA_SUCCESS;
}

// A table of an ELF; false if it is not there.
template <typename T>
bool read_table(const void* image, uint64_t offset, size_t entry_bytes, size_t count, std::vector<T>* table) {
  table->resize(count);
  if (count == 0) return true;
  return entry_bytes == sizeof(T) &&
         careful_read(table->data(), static_cast<const char*>(image) + offset, count * sizeof(T));
}

// An ELF ends where its last table, section or segment ends.
CUresult elf_image(const void* data, Image* found) {
  Elf64_Ehdr header;
  if (!careful_read(&header, data, sizeof(header)) || header.e_ident[EI_CLASS] != ELFCLASS64 ||
      header.e_ident[EI_DATA] != ELFDATA2LSB) {
    return CUDA_ERROR_INVALID_IMAGE;
  }
  uint64_t bytes = sizeof(header);
  const auto reach = [&](uint64_t offset, uint64_t length) {
    uint64_t end = 0;
    if (__builtin_add_overflow(offset, length, &end)) return false;
    bytes = std::max(bytes, end);
    return true;
  };
  std::vector<Elf64_Shdr> sections;
  std::vector<Elf64_Phdr> segments;
  if (!reach(header.e_shoff, uint64_t{header.e_shnum} * sizeof(Elf64_Shdr)) ||
      !reach(header.e_phoff, uint64_t{header.e_phnum} * sizeof(Elf64_Phdr)) ||
      !read_table(data, header.e_shoff, header.e_shentsize, header.e_shnum, &sections) ||
      !read_table(data, header.e_phoff, header.e_phentsize, header.e_phnum, &segments)) {
    return CUDA_ERROR_INVALID_IMAGE;
  }
  for (const Elf64_Shdr& section : sections) {
    if (section.sh_type != SHT_NOBITS && section.sh_type != SHT_NULL && !reach(section.sh_offset, section.sh_size)) {
      return CUDA_ERROR_INVALID_IMAGE;
    }
  }
  for (const Elf64_Phdr& segment : segments) {
    if (!reach(segment.p_offset, segment.p_filesz)) return CUDA_ERROR_INVALID_IMAGE;
  }
  *found = {data, bytes};
  return CUDA_SUCCESS;
}

bool looks_like_text(const char* text) {
  for (int i = 0; i < 8; ++i) {
    const auto c = static_cast<unsigned char>(text[i]);
    if (c == 0) return i > 0;
    if (!std::isprint(c) && !std::isspace(c)) return false;
  }
  return true;
}

CUresult measure(const void* image, Image* found) {
  if (!image) return CUDA_ERROR_INVALID_VALUE;
  const auto* bytes = static_cast<const unsigned char*>(image);
  if (looks_like_text(static_cast<const char*>(image))) {
    *found = {image, std::strlen(static_cast<const char*>(image))};
    return CUDA_SUCCESS;
  }
  // Four bytes can be read only once it is known that none of the first ones ends a shorter text.
  if (bytes[0] == 0 || bytes[1] == 0 || bytes[2] == 0) return CUDA_ERROR_INVALID_IMAGE;
  const uint32_t magic = magic_of(image);
  if (magic == kWrapperMagic) {
    FatbinWrapper wrapper;
    if (!careful_read(&wrapper, image, sizeof(wrapper))) return CUDA_ERROR_INVALID_IMAGE;
    if ((wrapper.version != 1 && wrapper.version != 2) || !wrapper.data) return CUDA_ERROR_INVALID_IMAGE;
    return magic_of(wrapper.data) == kFatbinMagic ? linked_image(wrapper, found) : CUDA_ERROR_INVALID_IMAGE;
  }
  if (magic == kFatbinMagic) return fatbin_image(image, found);
  if (std::memcmp(image, ELFMAG, SELFMAG) == 0) return elf_image(image, found);
  return CUDA_ERROR_INVALID_IMAGE;
}

}  // namespace

CUresult find_image(const void* image, Image* found) {
  const CUresult result = measure(image, found);
  return result != CUDA_SUCCESS || is_there(*found) ? result : CUDA_ERROR_INVALID_IMAGE;
}

}  // namespace bandsaw::libcuda
