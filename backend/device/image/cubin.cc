#include "backend/device/image/cubin.h"

#include <elf.h>

#include <map>
#include <set>
#include <string_view>

#include "backend/device/image/bytes.h"

namespace bandsaw::image {
namespace {

constexpr uint16_t kMachineCuda = 190;
constexpr unsigned char kEntryPoint = 0x10;  // in a symbol's st_other
constexpr uint32_t kMaxParameters = 8192;    // 32764 bytes of them at most

enum InfoAttribute : uint8_t { kParameterInfo = 0x17, kParameterBytes = 0x19, kLargeParameterInfo = 0x45 };
constexpr uint8_t kSized = 4;  // a record's format: its value is a length, a payload follows

std::optional<Elf64_Ehdr> header_of(Bytes elf) {
  auto header = elf.at<Elf64_Ehdr>(0);
  if (!header || std::string_view(reinterpret_cast<const char*>(header->e_ident), 4) != ELFMAG) return std::nullopt;
  if (header->e_ident[EI_CLASS] != ELFCLASS64 || header->e_ident[EI_DATA] != ELFDATA2LSB) return std::nullopt;
  if (header->e_machine != kMachineCuda) return std::nullopt;
  return header;
}

std::optional<std::vector<Elf64_Shdr>> sections_of(Bytes elf, const Elf64_Ehdr& header) {
  std::vector<Elf64_Shdr> sections;
  if (header.e_shoff == 0) return sections;
  auto first = elf.at<Elf64_Shdr>(header.e_shoff);
  if (!first || header.e_shentsize != sizeof(Elf64_Shdr)) return std::nullopt;
  // ELF: a count beyond 16 bits is in the first section's size.
  uint64_t count = header.e_shnum ? header.e_shnum : first->sh_size;
  if (count > (elf.size() - header.e_shoff) / sizeof(Elf64_Shdr)) return std::nullopt;
  for (uint64_t i = 0; i < count; ++i) {
    auto section = elf.at<Elf64_Shdr>(header.e_shoff + i * sizeof(Elf64_Shdr));
    if (!section) return std::nullopt;
    sections.push_back(*section);
  }
  return sections;
}

bool read_parameter(Bytes payload, uint8_t attribute, std::map<uint32_t, CubinKernel::Parameter>* found) {
  auto ordinal = payload.at<uint16_t>(4), offset = payload.at<uint16_t>(6);
  auto size = payload.at<uint32_t>(8);
  if (!ordinal || !offset || !size || *ordinal >= kMaxParameters) return false;
  (*found)[*ordinal] = {*offset, attribute == kParameterInfo ? *size >> 18 : *size};
  return true;
}

// Records {u8 format, u8 attribute, u16 length or value}, a payload if the format is kSized.
bool read_info(Bytes info, CubinKernel* kernel) {
  std::map<uint32_t, CubinKernel::Parameter> found;
  for (uint64_t position = 0; position + 4 <= info.size();) {
    uint8_t format = *info.at<uint8_t>(position), attribute = *info.at<uint8_t>(position + 1);
    uint16_t value = *info.at<uint16_t>(position + 2);
    position += 4;
    if (attribute == kParameterBytes) kernel->parameter_bytes = value;  // its format has no payload
    if (format != kSized) continue;
    auto payload = info.slice(position, value);
    if (!payload) return false;
    position += value;
    if (attribute == kParameterInfo || attribute == kLargeParameterInfo)
      if (!read_parameter(*payload, attribute, &found)) return false;
  }
  uint32_t expected = 0;
  for (const auto& [ordinal, parameter] : found) {
    if (ordinal != expected++) return false;  // a gap
    uint64_t end = uint64_t{parameter.offset} + parameter.bytes;
    if (end > 1 << 16) return false;
    kernel->parameters.push_back(parameter);
    if (kernel->parameter_bytes < end) kernel->parameter_bytes = end;
  }
  return true;
}

// One pass over an ELF. Names and sections may overlap in a forged file, so what is read of them is limited to the
// file's size in all: work stays linear.
class Reader {
 public:
  Reader(Bytes elf, std::string* log) : elf_(elf), log_(log), budget_(2 * elf.size()) {}

  CUresult kernels(std::vector<CubinKernel>* kernels) {
    auto header = header_of(elf_);
    if (!header) return fail("no CUDA ELF header");
    auto sections = sections_of(elf_, *header);
    if (!sections) return fail("its section table lies outside");
    if (sections->empty()) return CUDA_SUCCESS;
    sections_ = std::move(*sections);
    if (header->e_shstrndx >= sections_.size()) return fail("no section names");
    auto names = contents(sections_[header->e_shstrndx]);
    if (!names) return fail("its section names lie outside");
    for (const Elf64_Shdr& section : sections_) {
      CUresult result = read_section(*names, section);
      if (result != CUDA_SUCCESS) return result;
    }
    for (std::string_view entry : entries_) {
      CubinKernel kernel;
      kernel.name = entry;
      auto info = infos_.find(entry);
      if (info != infos_.end() && !read_info(info->second, &kernel))
        return fail("broken parameter information of " + kernel.name);
      kernels->push_back(std::move(kernel));
    }
    return CUDA_SUCCESS;
  }

 private:
  CUresult fail(const std::string& why) {
    *log_ = "not a valid CUDA ELF: " + why;
    return CUDA_ERROR_INVALID_IMAGE;
  }

  bool spend(uint64_t bytes) {
    if (bytes > budget_) return false;
    budget_ -= bytes;
    return true;
  }

  std::optional<Bytes> contents(const Elf64_Shdr& section) const {
    return elf_.slice(section.sh_offset, section.sh_size);
  }

  std::optional<std::string_view> name_at(Bytes names, uint64_t offset) {
    auto name = names.string(offset, budget_);
    if (!name || !spend(name->size() + 1)) return std::nullopt;
    return name;
  }

  CUresult read_section(Bytes names, const Elf64_Shdr& section) {
    constexpr std::string_view kPrefix = ".nv.info.";
    if (section.sh_type == SHT_SYMTAB) return read_symbols(section);
    if (section.sh_type == SHT_NULL) return CUDA_SUCCESS;
    auto name = name_at(names, section.sh_name);
    if (!name) return fail("a section without a name");
    if (!name->starts_with(kPrefix)) return CUDA_SUCCESS;
    auto info = contents(section);
    if (!info || !spend(info->size())) return fail("a section lies outside");
    infos_[name->substr(kPrefix.size())] = *info;
    return CUDA_SUCCESS;
  }

  CUresult read_symbols(const Elf64_Shdr& table) {
    if (table.sh_link >= sections_.size() || table.sh_entsize != sizeof(Elf64_Sym)) return fail("a bad symbol table");
    auto symbols = contents(table), names = contents(sections_[table.sh_link]);
    if (!symbols || !names || !spend(symbols->size())) return fail("its symbols lie outside");
    for (uint64_t i = 0; i + sizeof(Elf64_Sym) <= symbols->size(); i += sizeof(Elf64_Sym)) {
      auto symbol = *symbols->at<Elf64_Sym>(i);
      if (ELF64_ST_TYPE(symbol.st_info) != STT_FUNC || !(symbol.st_other & kEntryPoint)) continue;
      if (symbol.st_shndx == SHN_UNDEF) continue;
      auto name = name_at(*names, symbol.st_name);
      if (!name) return fail("a kernel without a name");
      entries_.insert(*name);
    }
    return CUDA_SUCCESS;
  }

  Bytes elf_;
  std::string* log_;
  uint64_t budget_;
  std::vector<Elf64_Shdr> sections_;
  std::map<std::string_view, Bytes> infos_;
  std::set<std::string_view> entries_;
};

}  // namespace

std::optional<uint32_t> cubin_architecture(std::span<const std::byte> elf) {
  auto header = header_of(elf);
  if (!header) return std::nullopt;
  // CUDA 13 (ABI version 8) moved the number one byte up.
  return header->e_ident[EI_ABIVERSION] >= 8 ? header->e_flags >> 8 & 0xff : header->e_flags & 0xff;
}

CUresult list_kernels(std::span<const std::byte> elf, std::vector<CubinKernel>* kernels, std::string* log) {
  kernels->clear();
  return Reader(elf, log).kernels(kernels);
}

}  // namespace bandsaw::image
