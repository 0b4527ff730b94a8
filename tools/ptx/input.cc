#include "tools/ptx/input.h"

#include <elf.h>
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <map>
#include <optional>
#include <set>
#include <span>
#include <stdexcept>
#include <string_view>

#include "backend/device/image/bytes.h"
#include "backend/device/image/image.h"
#include "backend/device/image/units.h"

namespace bandsaw::tools {
namespace {

using image::Bytes;

constexpr uint16_t kMachineCuda = 190;

class MappedFile {
 public:
  explicit MappedFile(const std::string& path) {
    const int fd = open(path.c_str(), O_RDONLY | O_CLOEXEC);
    if (fd < 0) throw std::runtime_error("cannot open " + path + ": " + std::strerror(errno));
    struct stat status{};
    const bool regular = fstat(fd, &status) == 0 && S_ISREG(status.st_mode);
    if (regular && status.st_size > 0) {
      bytes_ = static_cast<size_t>(status.st_size);
      data_ = mmap(nullptr, bytes_, PROT_READ, MAP_PRIVATE, fd, 0);
    }
    close(fd);
    if (!regular) throw std::runtime_error(path + " is not a file");
    if (bytes_ == 0) throw std::runtime_error(path + " is empty");
    if (data_ == MAP_FAILED) throw std::runtime_error("cannot map " + path + ": " + std::strerror(errno));
  }
  ~MappedFile() {
    if (data_ != MAP_FAILED) munmap(data_, bytes_);
  }
  MappedFile(const MappedFile&) = delete;
  MappedFile& operator=(const MappedFile&) = delete;
  std::span<const std::byte> bytes() const { return {static_cast<const std::byte*>(data_), bytes_}; }

 private:
  void* data_ = MAP_FAILED;
  size_t bytes_ = 0;
};

// The section of an ELF file by its name.
std::optional<Bytes> section(Bytes file, std::string_view wanted) {
  const auto header = file.at<Elf64_Ehdr>(0);
  if (!header || header->e_shentsize != sizeof(Elf64_Shdr)) return std::nullopt;
  const auto names = file.at<Elf64_Shdr>(header->e_shoff + uint64_t{header->e_shstrndx} * sizeof(Elf64_Shdr));
  for (uint64_t i = 0; names && i < header->e_shnum; ++i) {
    const auto entry = file.at<Elf64_Shdr>(header->e_shoff + i * sizeof(Elf64_Shdr));
    if (!entry) return std::nullopt;
    const auto name = file.string(names->sh_offset + entry->sh_name, 64);
    if (name && *name == wanted && entry->sh_type != SHT_NOBITS) return file.slice(entry->sh_offset, entry->sh_size);
  }
  return std::nullopt;
}

bool is_host_elf(Bytes file) {
  const auto header = file.at<Elf64_Ehdr>(0);
  return header && std::memcmp(header->e_ident, ELFMAG, SELFMAG) == 0 && header->e_machine != kMachineCuda;
}

class Reader {
 public:
  explicit Reader(const std::function<void(FoundModule)>& each) : each_(each) {}

  std::vector<std::string> run(Bytes file, const std::string& path) {
    if (!is_host_elf(file)) {
      add(file, "");
    } else {
      const auto fatbins = section(file, ".nv_fatbin"), relocatable = section(file, "__nv_relfatbin");
      if (!fatbins && !relocatable) throw std::runtime_error(path + " holds no GPU code (no .nv_fatbin section)");
      if (relocatable) add(*relocatable, "relocatable ");
      if (fatbins) add(*fatbins, "");
    }
    return std::move(notes_);
  }

 private:
  // Each fatbin is a module, or several with the same PTX for several GPUs; the relocatable ones are units of one.
  void add(Bytes image, const std::string& what) {
    std::vector<image::ImageEntry> entries;
    std::string log;
    if (image::list_image(image.span(), &entries, &log) != CUDA_SUCCESS) throw std::runtime_error(log);
    std::map<uint32_t, std::vector<const image::ImageEntry*>> fatbins;
    for (const image::ImageEntry& entry : entries) fatbins[what.empty() ? entry.fatbin : 0].push_back(&entry);
    for (const auto& [number, list] : fatbins) fatbin(list, what + "fatbin " + std::to_string(number));
  }

  void fatbin(const std::vector<const image::ImageEntry*>& entries, const std::string& from) {
    uint32_t best = 0;
    std::set<uint32_t> machine_code;
    for (const image::ImageEntry* entry : entries) {
      if (entry->kind == image::ImageEntry::Kind::kPtx) best = std::max(best, entry->sm + 1);
      if (entry->kind == image::ImageEntry::Kind::kElf) machine_code.insert(entry->sm);
    }
    if (best == 0) {
      std::string list;
      for (const uint32_t sm : machine_code) list += (list.empty() ? "sm_" : ", sm_") + std::to_string(sm);
      if (!list.empty()) notes_.push_back(from + ": machine code only (" + list + ")");
      return;
    }
    std::vector<std::string> units;
    std::string log;
    for (const image::ImageEntry* entry : entries) {
      if (entry->kind != image::ImageEntry::Kind::kPtx || entry->sm + 1 != best) continue;
      if (image::unpack(*entry, &units.emplace_back(), &log) != CUDA_SUCCESS) {
        notes_.push_back(from + ": " + log);
        units.pop_back();
      }
    }
    FoundModule found;
    found.from = from + " (sm_" + std::to_string(best - 1) + ")";
    if (!units.empty() && image::read_units(units, &found.module, &log) != CUDA_SUCCESS)
      notes_.push_back(found.from + ": " + log);
    else if (!units.empty())
      each_(std::move(found));
  }

  const std::function<void(FoundModule)>& each_;
  std::vector<std::string> notes_;
};

}  // namespace

std::vector<std::string> read_input(const std::string& path, const std::function<void(FoundModule)>& each) {
  const MappedFile file(path);
  return Reader(each).run(Bytes(file.bytes()), path);
}

}  // namespace bandsaw::tools
