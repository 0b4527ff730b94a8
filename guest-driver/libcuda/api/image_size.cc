#include "guest-driver/libcuda/api/image_size.h"

#include <elf.h>

#include <algorithm>
#include <cctype>
#include <cstring>

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
  uint32_t magic;
  std::memcpy(&magic, image, sizeof(magic));
  return magic;
}

CUresult fatbin_image(const void* data, Image* found) {
  FatbinHeader header;
  std::memcpy(&header, data, sizeof(header));
  uint64_t bytes;
  if (header.header_bytes < sizeof(header) ||
      __builtin_add_overflow(header.payload_bytes, header.header_bytes, &bytes)) {
    return CUDA_ERROR_INVALID_IMAGE;
  }
  *found = {data, bytes};
  return CUDA_SUCCESS;
}

constexpr size_t kMaxPrelinked = 65536;

CUresult linked_image(const FatbinWrapper& wrapper, Image* found) {
  CUresult result = fatbin_image(wrapper.data, found);
  if (result != CUDA_SUCCESS || wrapper.version != 2 || !wrapper.prelinked) return result;
  const auto joined = std::make_shared<std::vector<char>>();
  const auto append = [&joined](const Image& part) {
    joined->resize((joined->size() + 7) / 8 * 8);
    const auto* bytes = static_cast<const char*>(part.data);
    joined->insert(joined->end(), bytes, bytes + part.bytes);
  };
  append(*found);
  for (size_t i = 0; i < kMaxPrelinked && wrapper.prelinked[i]; ++i) {
    Image part;
    if (magic_of(wrapper.prelinked[i]) != kFatbinMagic) return CUDA_ERROR_INVALID_IMAGE;
    result = fatbin_image(wrapper.prelinked[i], &part);
    if (result != CUDA_SUCCESS) return result;
    append(part);
  }
  *found = {joined->data(), joined->size(), joined};
  return CUDA_SUCCESS;
}

template <typename T>
T read_at(const void* image, uint64_t offset) {
  T value;
  std::memcpy(&value, static_cast<const char*>(image) + offset, sizeof(value));
  return value;
}

// An ELF ends where its last table, section or segment ends.
CUresult elf_image(const void* data, Image* found) {
  const auto header = read_at<Elf64_Ehdr>(data, 0);
  if (header.e_ident[EI_CLASS] != ELFCLASS64 || header.e_ident[EI_DATA] != ELFDATA2LSB) {
    return CUDA_ERROR_INVALID_IMAGE;
  }
  uint64_t bytes = sizeof(header);
  uint64_t end;
  const auto reach = [&](uint64_t offset, uint64_t length) {
    if (__builtin_add_overflow(offset, length, &end)) return false;
    bytes = std::max(bytes, end);
    return true;
  };
  if (header.e_shnum && header.e_shentsize < sizeof(Elf64_Shdr)) return CUDA_ERROR_INVALID_IMAGE;
  if (header.e_phnum && header.e_phentsize < sizeof(Elf64_Phdr)) return CUDA_ERROR_INVALID_IMAGE;
  if (!reach(header.e_shoff, uint64_t{header.e_shnum} * header.e_shentsize) ||
      !reach(header.e_phoff, uint64_t{header.e_phnum} * header.e_phentsize)) {
    return CUDA_ERROR_INVALID_IMAGE;
  }
  for (unsigned i = 0; i < header.e_shnum; ++i) {
    const auto section = read_at<Elf64_Shdr>(data, header.e_shoff + uint64_t{i} * header.e_shentsize);
    if (section.sh_type != SHT_NOBITS && section.sh_type != SHT_NULL && !reach(section.sh_offset, section.sh_size)) {
      return CUDA_ERROR_INVALID_IMAGE;
    }
  }
  for (unsigned i = 0; i < header.e_phnum; ++i) {
    const auto segment = read_at<Elf64_Phdr>(data, header.e_phoff + uint64_t{i} * header.e_phentsize);
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

}  // namespace

CUresult find_image(const void* image, Image* found) {
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
    std::memcpy(&wrapper, image, sizeof(wrapper));
    if ((wrapper.version != 1 && wrapper.version != 2) || !wrapper.data) return CUDA_ERROR_INVALID_IMAGE;
    return magic_of(wrapper.data) == kFatbinMagic ? linked_image(wrapper, found) : CUDA_ERROR_INVALID_IMAGE;
  }
  if (magic == kFatbinMagic) return fatbin_image(image, found);
  if (std::memcmp(image, ELFMAG, SELFMAG) == 0) return elf_image(image, found);
  return CUDA_ERROR_INVALID_IMAGE;
}

}  // namespace bandsaw::libcuda
