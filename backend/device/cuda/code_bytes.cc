#include "backend/device/cuda/code_bytes.h"

#include <elf.h>

#include <algorithm>
#include <optional>
#include <string>
#include <string_view>
#include <variant>

#include "backend/device/cuda/code_choice.h"
#include "backend/device/image/bytes.h"
#ifdef BANDSAW_HAVE_IMAGE
#include "backend/device/image/image.h"
#include "backend/device/image/units.h"
#endif

namespace bandsaw::cuda {
namespace {

constexpr uint64_t kMost = INT64_MAX;  // no share is larger

uint64_t sum(uint64_t a, uint64_t b) { return a > kMost - std::min(b, kMost) ? kMost : a + b; }

// Sections that the GPU has in its memory. Shared and local memory, which have sections too, lie elsewhere.
std::optional<uint64_t> elf_bytes(image::Bytes elf) {
  const auto header = elf.at<Elf64_Ehdr>(0);
  if (!header || std::string_view(reinterpret_cast<const char*>(header->e_ident), SELFMAG) != ELFMAG) return {};
  uint64_t total = 0;
  const auto names = elf.at<Elf64_Shdr>(header->e_shoff + uint64_t{header->e_shstrndx} * sizeof(Elf64_Shdr));
  for (uint64_t i = 0; i < header->e_shnum; ++i) {
    const auto section = elf.at<Elf64_Shdr>(header->e_shoff + i * sizeof(Elf64_Shdr));
    if (!section || !names) return {};
    if (!(section->sh_flags & SHF_ALLOC)) continue;
    const auto name = elf.string(names->sh_offset + section->sh_name, 4096);
    if (name && (name->starts_with(".nv.shared") || name->starts_with(".nv.local"))) continue;
    total = sum(total, section->sh_size);
  }
  return total;
}

#ifdef BANDSAW_HAVE_IMAGE
bool is_managed(const ptx::Variable& variable) {
  return std::any_of(variable.attributes.begin(), variable.attributes.end(),
                     [](const ptx::Directive& attribute) { return attribute.name == "managed"; });
}

uint64_t ptx_bytes(const std::string& text) {
  uint64_t total = text.size();
  ptx::Module module;
  std::string ignored;  // what is wrong with it, the driver says
  if (image::read_units({text}, &module, &ignored) != CUDA_SUCCESS) return total;
  for (const ptx::Item& item : module.items) {
    const auto* const variable = std::get_if<ptx::Variable>(&item);
    if (!variable || variable->linkage == ptx::Linkage::kExtern || is_managed(*variable)) continue;
    if (variable->space != ptx::Space::kGlobal && variable->space != ptx::Space::kConst) continue;
    total = sum(total, variable->bytes());
  }
  return total;
}

uint64_t entry_bytes(const image::ImageEntry& entry) {
  std::string bytes, ignored;
  if (image::unpack(entry, &bytes, &ignored) != CUDA_SUCCESS) return entry.bytes;
  if (entry.kind == image::ImageEntry::Kind::kPtx) return ptx_bytes(bytes.c_str());  // without what follows a NUL
  return elf_bytes(std::as_bytes(std::span(bytes))).value_or(bytes.size());
}

std::optional<uint64_t> listed_bytes(std::span<const std::byte> image, uint32_t capability) {
  std::vector<image::ImageEntry> entries;
  if (!choose_code(image, capability, &entries)) return {};
  uint64_t total = 0;
  for (const image::ImageEntry& entry : entries) total = sum(total, entry_bytes(entry));
  return total;
}
#else
std::optional<uint64_t> listed_bytes(std::span<const std::byte>, uint32_t) { return {}; }
#endif

}  // namespace

uint64_t code_bytes(std::span<const std::byte> image, uint32_t capability) {
  if (const auto bytes = elf_bytes(image)) return *bytes;
  return listed_bytes(image, capability).value_or(image.size());
}

}  // namespace bandsaw::cuda
