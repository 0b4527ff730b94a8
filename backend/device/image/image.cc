#include "backend/device/image/image.h"

#include <lz4.h>
#include <zstd.h>

#include <algorithm>
#include <cstring>
#include <set>
#include <string_view>

#include "backend/device/image/bytes.h"
#include "backend/device/image/cubin.h"

namespace bandsaw::image {
namespace {

constexpr uint32_t kFatbinMagic = 0xBA55ED50;
constexpr uint64_t kLz4Flag = 0x2000, kZstdFlag = 0x8000;

struct FatbinHeader {
  uint32_t magic;
  uint16_t version, header_bytes;
  uint64_t entries_bytes;
};
static_assert(sizeof(FatbinHeader) == 16);

struct EntryHeader {
  uint16_t kind;  // 1 PTX, 2 ELF
  uint16_t version;
  uint32_t header_bytes;
  uint64_t payload_bytes;  // padded to 8
  uint32_t packed_bytes;   // without the padding
  uint32_t reserved0[2];
  uint32_t sm;
  uint32_t reserved1[2];
  uint64_t flags;
  uint64_t reserved2;
  uint64_t unpacked_bytes;  // 0 if not packed
};
static_assert(sizeof(EntryHeader) == 0x40 && offsetof(EntryHeader, flags) == 0x28);

CUresult invalid(std::string* log, const std::string& why) {
  *log = "not a valid code image: " + why;
  return CUDA_ERROR_INVALID_IMAGE;
}

CUresult read_entry(const EntryHeader& header, Bytes payload, uint32_t fatbin, ImageEntry* entry, std::string* log) {
  if (header.kind == 1) entry->kind = ImageEntry::Kind::kPtx;
  if (header.kind == 2) entry->kind = ImageEntry::Kind::kElf;
  entry->sm = header.sm;
  entry->flags = header.flags;
  entry->fatbin = fatbin;
  entry->payload = payload.span();
  entry->bytes = payload.size();
  if (!(header.flags & (kLz4Flag | kZstdFlag))) return CUDA_SUCCESS;
  entry->packing = header.flags & kZstdFlag ? ImageEntry::Packing::kZstd : ImageEntry::Packing::kLz4;
  auto packed = payload.slice(0, header.packed_bytes ? header.packed_bytes : payload.size());
  if (!packed) return invalid(log, "a fatbin entry's packed size exceeds its payload");
  entry->payload = packed->span();
  entry->bytes = header.unpacked_bytes;
  return CUDA_SUCCESS;
}

// The entries of the fatbin at the beginning of `rest`; `taken` is its size.
CUresult read_fatbin(Bytes rest, uint32_t fatbin, std::vector<ImageEntry>* entries, uint64_t* taken, std::string* log) {
  auto header = rest.at<FatbinHeader>(0);
  if (!header || header->magic != kFatbinMagic) return invalid(log, "no fatbin header");
  if (header->header_bytes < sizeof(FatbinHeader)) return invalid(log, "the fatbin's header is too short");
  auto body = rest.slice(header->header_bytes, header->entries_bytes);
  if (!body) return invalid(log, "the fatbin is longer than the image");
  *taken = header->header_bytes + header->entries_bytes;
  uint64_t position = 0;
  while (position < body->size()) {
    auto entry_header = body->at<EntryHeader>(position);
    if (!entry_header) return invalid(log, "a fatbin entry is cut off");
    if (entry_header->header_bytes < sizeof(EntryHeader)) return invalid(log, "a fatbin entry's header is too short");
    auto payload = body->slice(position + entry_header->header_bytes, entry_header->payload_bytes);
    if (!payload) return invalid(log, "a fatbin entry is longer than the fatbin");
    if (entries->size() >= kMaxImageEntries) return invalid(log, "too many fatbin entries");
    ImageEntry entry;
    CUresult result = read_entry(*entry_header, *payload, fatbin, &entry, log);
    if (result != CUDA_SUCCESS) return result;
    entries->push_back(entry);
    position += entry_header->header_bytes + entry_header->payload_bytes;
  }
  return CUDA_SUCCESS;
}

CUresult read_fatbins(Bytes image, std::vector<ImageEntry>* entries, std::string* log) {
  uint64_t position = 0;
  for (uint32_t fatbin = 0;; ++fatbin) {
    uint64_t taken = 0;
    CUresult result = read_fatbin(*image.slice(position, image.size() - position), fatbin, entries, &taken, log);
    if (result != CUDA_SUCCESS) return result;
    position += taken;
    while (position % 8 && image.at<uint8_t>(position) == 0) ++position;
    if (image.at<uint32_t>(position) != kFatbinMagic) return CUDA_SUCCESS;  // what follows the last is not ours
  }
}

// The text up to a NUL; empty if this does not look like PTX.
std::string_view text_of(Bytes image) {
  std::string_view text(reinterpret_cast<const char*>(image.span().data()), image.size());
  text = text.substr(0, text.find('\0'));
  return text.find(".version") == std::string_view::npos ? std::string_view() : text;
}

// The number of the first `.target sm_90`, 0 if there is none.
uint32_t target_of(std::string_view text) {
  size_t target = text.find(".target");
  if (target == std::string_view::npos) return 0;
  size_t sm = text.find("sm_", target);
  if (sm == std::string_view::npos || sm > target + 64) return 0;
  uint32_t number = 0;
  for (size_t i = sm + 3; i < text.size() && i < sm + 7 && text[i] >= '0' && text[i] <= '9'; ++i)
    number = number * 10 + (text[i] - '0');
  return number;
}

std::string architectures(const std::vector<ImageEntry>& entries, ImageEntry::Kind kind) {
  std::set<uint32_t> numbers;
  for (const ImageEntry& entry : entries)
    if (entry.kind == kind) numbers.insert(entry.sm);
  std::string names;
  for (uint32_t sm : numbers) names += (names.empty() ? "sm_" : ", sm_") + std::to_string(sm);
  return names;
}

std::string no_ptx(const std::vector<ImageEntry>& entries) {
  const std::string ptx = architectures(entries, ImageEntry::Kind::kPtx);
  if (!ptx.empty()) return "this image holds PTX for " + ptx + " only";
  const std::string code = architectures(entries, ImageEntry::Kind::kElf);
  if (code.empty()) return "this image holds no code";
  return "this image holds machine code for " + code + " only; PTX is needed";
}

// Portable before family-specific before architecture-specific.
int rank(const ImageEntry& entry) { return entry.architecture_specific() ? 0 : entry.family_specific() ? 1 : 2; }

// PTX for sm_90a is for 90 alone, that for sm_100f for its family (100, 103), other PTX for all from its number on.
bool runs_on(const ImageEntry& entry, uint32_t gpu) {
  if (gpu == 0 || entry.sm == gpu) return true;
  if (entry.sm > gpu || entry.architecture_specific()) return false;
  return !entry.family_specific() || entry.sm / 10 == gpu / 10;
}

// For a device that takes all, code for later GPUs comes last: it may use what the software device has not.
bool better(const ImageEntry& a, const ImageEntry& b, uint32_t gpu) {
  const bool a_late = gpu == 0 && !runs_on(a, kSoftwareDeviceSm), b_late = gpu == 0 && !runs_on(b, kSoftwareDeviceSm);
  if (a_late != b_late) return b_late;
  return a.sm != b.sm ? a.sm > b.sm : rank(a) > rank(b);
}

std::vector<const ImageEntry*> choose(const std::vector<ImageEntry>& entries, uint32_t gpu) {
  std::vector<const ImageEntry*> chosen;
  size_t fatbin_begin = 0;  // of the chosen ones
  for (const ImageEntry& entry : entries) {
    if (entry.kind != ImageEntry::Kind::kPtx || !runs_on(entry, gpu)) continue;
    if (chosen.empty() || chosen.back()->fatbin != entry.fatbin) fatbin_begin = chosen.size();
    if (fatbin_begin < chosen.size()) {
      if (better(*chosen.back(), entry, gpu)) continue;
      if (better(entry, *chosen.back(), gpu)) chosen.resize(fatbin_begin);
    }
    chosen.push_back(&entry);
  }
  return chosen;
}

}  // namespace

CUresult list_image(std::span<const std::byte> bytes, std::vector<ImageEntry>* entries, std::string* log) {
  entries->clear();
  Bytes image(bytes);
  if (image.at<uint32_t>(0) == kFatbinMagic) return read_fatbins(image, entries, log);
  ImageEntry entry;
  entry.payload = bytes;
  if (auto sm = cubin_architecture(bytes)) {
    entry.kind = ImageEntry::Kind::kElf;
    entry.sm = *sm;
  } else {
    std::string_view text = text_of(image);
    if (text.empty()) return invalid(log, "neither a fatbin nor a CUDA ELF nor PTX");
    entry.kind = ImageEntry::Kind::kPtx;
    entry.sm = target_of(text);
    entry.payload = bytes.first(text.size());
  }
  entry.bytes = entry.payload.size();
  entries->push_back(entry);
  return CUDA_SUCCESS;
}

CUresult unpack(const ImageEntry& entry, std::string* bytes, std::string* log) {
  if (entry.bytes > kMaxUnpackedImage) return invalid(log, "a fatbin entry is too large");
  const char* from = reinterpret_cast<const char*>(entry.payload.data());
  if (entry.packing == ImageEntry::Packing::kNone) {
    bytes->assign(from, entry.payload.size());
    return CUDA_SUCCESS;
  }
  // LZ4 packs 255 to 1 at best, so a bigger claim is a lie; it shall not cost memory.
  const uint64_t packed = entry.payload.size();
  if (packed > LZ4_MAX_INPUT_SIZE || (entry.packing == ImageEntry::Packing::kLz4 && entry.bytes / 256 > packed))
    return invalid(log, "a fatbin entry's sizes contradict each other");
  bytes->resize(entry.bytes);
  bool good;
  if (entry.packing == ImageEntry::Packing::kLz4) {
    int got = LZ4_decompress_safe(from, bytes->data(), static_cast<int>(packed), static_cast<int>(entry.bytes));
    good = got >= 0 && static_cast<uint64_t>(got) == entry.bytes;
  } else {
    good = ZSTD_decompress(bytes->data(), bytes->size(), from, packed) == entry.bytes;  // an error is a huge number
  }
  return good ? CUDA_SUCCESS : invalid(log, "a fatbin entry cannot be unpacked");
}

CUresult choose_ptx(std::span<const std::byte> image, std::vector<ImageEntry>* chosen, std::string* log, uint32_t gpu) {
  chosen->clear();
  std::vector<ImageEntry> entries;
  CUresult result = list_image(image, &entries, log);
  if (result != CUDA_SUCCESS) return result;
  for (const ImageEntry* entry : choose(entries, gpu)) chosen->push_back(*entry);
  if (chosen->empty()) {
    *log = no_ptx(entries);
    return CUDA_ERROR_NO_BINARY_FOR_GPU;
  }
  uint64_t total = 0;
  for (const ImageEntry& entry : *chosen) {
    if (entry.bytes > kMaxUnpackedImage - total) return invalid(log, "its PTX is too large");
    total += entry.bytes;
  }
  return CUDA_SUCCESS;
}

namespace {

bool is_for(const ImageEntry& code, uint32_t gpu) {
  return code.kind == ImageEntry::Kind::kElf && code.sm / 10 == gpu / 10 && code.sm <= gpu;
}

// Of one fatbin.
bool same_target(const ImageEntry& code, const ImageEntry& ptx) {
  return code.fatbin == ptx.fatbin && code.sm == ptx.sm &&
         code.architecture_specific() == ptx.architecture_specific() && code.family_specific() == ptx.family_specific();
}

}  // namespace

bool runs_its_ptx(std::span<const std::byte> image, uint32_t gpu) {
  std::vector<ImageEntry> entries, chosen;
  std::string log;
  if (choose_ptx(image, &chosen, &log, gpu) != CUDA_SUCCESS || list_image(image, &entries, &log) != CUDA_SUCCESS) {
    return false;
  }
  if (gpu == 0) return true;
  return std::all_of(entries.begin(), entries.end(), [&](const ImageEntry& entry) {
    if (entry.kind == ImageEntry::Kind::kOther) return false;
    return !is_for(entry, gpu) ||
           std::any_of(chosen.begin(), chosen.end(), [&](const ImageEntry& ptx) { return same_target(entry, ptx); });
  });
}

namespace {

// libcudadevrt: its functions call the driver's own, which no device but NVIDIA's has; whoever runs PTX brings these
// functions itself.
bool is_device_runtime(std::string_view unit) {
  constexpr std::string_view kMark = "cudaCGGetIntrinsicHandle";
  for (size_t at = unit.find(kMark); at != unit.npos; at = unit.find(kMark, at + 1)) {
    const size_t begin = unit.find_last_of(";}", at);
    const size_t from = begin == unit.npos ? 0 : begin;
    if (unit.substr(from, at - from).find(".visible") != unit.npos) return true;
  }
  return false;
}

CUresult unpack_unit(const ImageEntry& entry, std::vector<std::string>* units, std::string* log) {
  std::string unit;
  if (const CUresult result = unpack(entry, &unit, log)) return result;
  unit.resize(std::min(unit.find('\0'), unit.size()));
  if (!is_device_runtime(unit)) units->push_back(std::move(unit));
  return CUDA_SUCCESS;
}

}  // namespace

CUresult unpack_ptx(const std::vector<ImageEntry>& chosen, std::vector<std::string>* units, std::string* log) {
  for (const ImageEntry& entry : chosen) {
    if (const CUresult result = unpack_unit(entry, units, log)) return result;
  }
  return CUDA_SUCCESS;
}

CUresult find_ptx(std::span<const std::byte> image, PtxChoice* choice, std::string* log, uint32_t gpu) {
  *choice = {};
  std::vector<ImageEntry> chosen;
  if (const CUresult result = choose_ptx(image, &chosen, log, gpu)) return result;
  for (const ImageEntry& entry : chosen) {
    const size_t before = choice->units.size();
    if (const CUresult result = unpack_unit(entry, &choice->units, log)) return result;
    if (choice->units.size() > before) choice->sm = std::max(choice->sm, entry.sm);
  }
  return CUDA_SUCCESS;
}

}  // namespace bandsaw::image
