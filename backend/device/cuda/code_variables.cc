#include "backend/device/cuda/code_variables.h"

#include <elf.h>

#include <algorithm>
#include <string_view>
#include <variant>

#include "backend/device/cuda/code_choice.h"
#include "backend/device/image/bytes.h"
#ifdef BANDSAW_HAVE_IMAGE
#include "backend/device/image/units.h"
#endif

namespace bandsaw::cuda {

#ifdef BANDSAW_HAVE_IMAGE
namespace {

constexpr uint64_t kNameMost = 65536;
// Kinds of relocations in instructions, read from nvcc's output: NVIDIA does not document them.
constexpr uint32_t kLowHalf = 0x38, kHighHalf = 0x39;

// Constants of the compiler's, as texts of printf are: nothing writes them.
bool is_compilers(std::string_view name) { return name.empty() || name.front() == '$'; }

// Of a section with variables: what has an initial value, what has none, and constants of the program's.
bool has_variables(std::string_view section) {
  return section == ".nv.global" || section == ".nv.global.init" || section == ".nv.constant3";
}

class CubinVariables {
 public:
  explicit CubinVariables(std::span<const std::byte> elf) : elf_(elf) {}
  bool list(CodeVariables* variables) {
    const auto header = elf_.at<Elf64_Ehdr>(0);
    if (!header || std::string_view(reinterpret_cast<const char*>(header->e_ident), SELFMAG) != ELFMAG) return false;
    header_ = *header;
    const auto first = section(0);
    count_ = header_.e_shnum ? header_.e_shnum : first ? first->sh_size : 0;
    if (count_ > elf_.size() / sizeof(Elf64_Shdr)) return false;
    const auto names = section(header_.e_shstrndx == SHN_XINDEX && first ? first->sh_link : header_.e_shstrndx);
    if (!names) return false;
    names_ = names->sh_offset;
    for (uint64_t i = 0; i < count_; ++i) {
      const auto table = section(i);
      if (!table) return false;
      if (table->sh_type == SHT_SYMTAB && !list_table(*table, variables)) return false;
      if (table->sh_type == SHT_RELA && !look_through(*table, variables)) return false;
    }
    return true;
  }

 private:
  std::optional<Elf64_Shdr> section(uint64_t index) const {
    if (count_ != 0 && index >= count_) return std::nullopt;
    return elf_.at<Elf64_Shdr>(header_.e_shoff + index * sizeof(Elf64_Shdr));
  }
  bool list_table(const Elf64_Shdr& table, CodeVariables* variables) const {
    const auto strings = section(table.sh_link);
    if (!strings) return false;
    for (uint64_t at = 0; at + sizeof(Elf64_Sym) <= table.sh_size; at += sizeof(Elf64_Sym)) {
      const auto symbol = elf_.at<Elf64_Sym>(table.sh_offset + at);
      if (!symbol) return false;
      const auto name = elf_.string(strings->sh_offset + symbol->st_name, kNameMost);
      if (!name) return false;
      if (*name == "malloc") variables->allocates = true;
      if (ELF64_ST_TYPE(symbol->st_info) != STT_OBJECT || symbol->st_size == 0 || is_compilers(*name)) continue;
      const auto lies_in = symbol->st_shndx < SHN_LORESERVE ? section(symbol->st_shndx) : std::nullopt;
      const auto where = lies_in ? elf_.string(names_ + lies_in->sh_name, kNameMost) : std::nullopt;
      if (where && has_variables(*where)) variables->names.emplace_back(*name);
    }
    return true;
  }

  // For addresses of functions that kernels could keep. In the function itself they are where calls return to.
  bool look_through(const Elf64_Shdr& table, CodeVariables* variables) const {
    const auto changed = section(table.sh_info), symbols = section(table.sh_link);
    const auto name = changed ? elf_.string(names_ + changed->sh_name, kNameMost) : std::nullopt;
    if (!name || !symbols) return false;
    if (name->starts_with(".debug")) return true;
    for (uint64_t at = 0; at + sizeof(Elf64_Rela) <= table.sh_size; at += sizeof(Elf64_Rela)) {
      const auto place = elf_.at<Elf64_Rela>(table.sh_offset + at);
      if (!place) return false;
      const auto symbol = elf_.at<Elf64_Sym>(symbols->sh_offset + ELF64_R_SYM(place->r_info) * sizeof(Elf64_Sym));
      if (!symbol) return false;
      if (ELF64_ST_TYPE(symbol->st_info) != STT_FUNC || symbol->st_shndx == SHN_UNDEF) continue;
      const auto type = ELF64_R_TYPE(place->r_info);
      const bool in_code = name->starts_with(".text");
      const bool address = type == kLowHalf || type == kHighHalf;  // the others are of calls
      if (!in_code || (address && symbol->st_shndx != table.sh_info)) variables->keeps_functions = true;
    }
    return true;
  }

  const image::Bytes elf_;
  Elf64_Ehdr header_{};
  uint64_t count_ = 0, names_ = 0;
};

bool list_ptx(const std::string& text, CodeVariables* variables) {
  ptx::Module module;
  std::string ignored;
  if (image::read_units({text}, &module, &ignored) != CUDA_SUCCESS) return false;
  variables->allocates |= text.find("malloc") != text.npos;
  variables->keeps_functions |= text.find(".callprototype") != text.npos || text.find(".calltargets") != text.npos;
  for (const ptx::Item& item : module.items) {
    const auto* const variable = std::get_if<ptx::Variable>(&item);
    if (!variable || variable->linkage == ptx::Linkage::kExtern || is_compilers(variable->name)) continue;
    if (variable->space != ptx::Space::kGlobal && variable->space != ptx::Space::kConst) continue;
    if (!variable->count) variables->names.push_back(variable->name);
    for (uint32_t i = 0; i < variable->count.value_or(0); ++i) {
      variables->names.push_back(variable->name + std::to_string(i));
    }
  }
  return true;
}

}  // namespace

bool list_variables(std::span<const std::byte> image, uint32_t capability, CodeVariables* variables) {
  const auto finish = [variables] {
    std::sort(variables->names.begin(), variables->names.end());
    variables->names.erase(std::unique(variables->names.begin(), variables->names.end()), variables->names.end());
    return true;
  };
  variables->machine_code = true;
  if (CubinVariables(image).list(variables)) return finish();
  *variables = {.names = {}, .machine_code = true};
  std::vector<image::ImageEntry> entries;
  if (!choose_code(image, capability, &entries)) return false;
  for (const image::ImageEntry& entry : entries) {
    std::string bytes, ignored;
    if (image::unpack(entry, &bytes, &ignored) != CUDA_SUCCESS) return false;
    const bool ptx = entry.kind == image::ImageEntry::Kind::kPtx;
    variables->machine_code = variables->machine_code && !ptx;
    const bool listed = ptx ? list_ptx(bytes.c_str(), variables)  // without what follows a NUL
                            : CubinVariables(std::as_bytes(std::span(bytes))).list(variables);
    if (!listed) return false;
  }
  return finish();
}
#else
// Nothing here reads fatbins: this build had no lz4 or zstd.
bool list_variables(std::span<const std::byte>, uint32_t, CodeVariables*) { return false; }
#endif

}  // namespace bandsaw::cuda
