// nvJitLink: what it links is given to the program as PTX. Link-time optimisation can end in PTX by itself (-ptx).
// Units of PTX go into one fatbin: the driver links units that are equally good for a GPU. nvJitLink still does its own
// work on them, so that its errors and logs are what they always are. What else is linked (machine code) stays as it
// is.
#include <elf.h>

#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "guest-driver/ptx_preload/hooks.h"

namespace bandsaw::ptx_preload {
namespace {

using Handle = struct Opaque*;
using Create = int(Handle*, uint32_t, const char**);
using Destroy = int(Handle*);
using AddData = int(Handle, int, const void*, size_t, const char*);
using AddFile = int(Handle, int, const char*);
using Complete = int(Handle);
using GetSize = int(Handle, size_t*);
using GetBytes = int(Handle, void*);

constexpr int kSuccess = 0;
enum Input { kInputCubin = 1, kInputPtx = 2, kInputLtoIr = 3, kInputLibrary = 6, kInputAny = 10 };

struct Link {
  bool optimises = false;  // -lto: nvJitLink itself gives PTX, of intermediate code alone
  bool has_code = false;   // of the intermediate kind
  bool only_ptx = true;    // so far, besides
  uint32_t architecture = 0;
  std::vector<std::string> units;
  std::string linked;
};

struct Links {
  std::mutex mutex;
  std::map<Handle, std::shared_ptr<Link>> all;
};

// Leaked: programs call in while they end.
Links& links() {
  static auto* const created = new Links;
  return *created;
}

std::shared_ptr<Link> find(Handle handle) {
  std::lock_guard lock(links().mutex);
  const auto found = links().all.find(handle);
  return found == links().all.end() ? nullptr : found->second;
}

int create(Handle* handle, uint32_t count, const char** options);
int destroy(Handle* handle);
int add_data(Handle handle, int type, const void* data, size_t bytes, const char* name);
int add_file(Handle handle, int type, const char* name);
int complete(Handle handle);
int cubin_size(Handle handle, size_t* bytes);
int cubin(Handle handle, void* code);

enum { kCreate, kDestroy, kAddData, kAddFile, kComplete, kCubinSize, kCubin };

Hook hooks[] = {
    {"nvJitLinkCreate", reinterpret_cast<void*>(create)},
    {"nvJitLinkDestroy", reinterpret_cast<void*>(destroy)},
    {"nvJitLinkAddData", reinterpret_cast<void*>(add_data)},
    {"nvJitLinkAddFile", reinterpret_cast<void*>(add_file)},
    {"nvJitLinkComplete", reinterpret_cast<void*>(complete)},
    {"nvJitLinkGetLinkedCubinSize", reinterpret_cast<void*>(cubin_size)},
    {"nvJitLinkGetLinkedCubin", reinterpret_cast<void*>(cubin)},
};

int create(Handle* handle, uint32_t count, const char** options) {
  auto* const real = hooks[kCreate].as<Create>();
  auto link = std::make_shared<Link>();
  bool gives_ptx = false;
  std::vector<const char*> changed;
  for (uint32_t i = 0; options && i < count; i++) {
    const std::string_view option = options[i];
    link->optimises |= option == "-lto";
    gives_ptx |= option == "-ptx";
    if (option.starts_with("-arch=sm_")) std::sscanf(options[i], "-arch=sm_%u", &link->architecture);
    changed.push_back(options[i]);
  }
  if (gives_ptx || !link->architecture) return real(handle, count, options);
  if (link->optimises) changed.push_back("-ptx");
  const int result = real(handle, static_cast<uint32_t>(changed.size()), changed.data());
  if (result != kSuccess) return result;
  std::lock_guard lock(links().mutex);
  links().all[*handle] = std::move(link);
  return result;
}

int destroy(Handle* handle) {
  if (handle) {
    std::lock_guard lock(links().mutex);
    links().all.erase(*handle);
  }
  return hooks[kDestroy].as<Destroy>()(handle);
}

bool is_ptx_text(std::string_view data) {
  return !data.starts_with(ELFMAG) && data.substr(0, 4096).find(".version") != std::string_view::npos;
}

// Remembers a unit; `type` becomes PTX where it was to be machine code that NVRTC gave as PTX. True if nvJitLink shall
// not see it: with -lto and -ptx it takes intermediate code only.
bool keep_input(Link* link, std::string_view data, int* type) {
  if ((*type == kInputPtx || *type == kInputCubin || *type == kInputAny) && is_ptx_text(data)) {
    *type = kInputPtx;
    link->units.emplace_back(data.substr(0, data.find('\0')));
    return link->optimises;
  }
  if (*type == kInputLibrary) return link->optimises;
  link->has_code |= *type == kInputLtoIr;
  link->only_ptx &= *type == kInputLtoIr;
  return false;
}

int add_data(Handle handle, int type, const void* data, size_t bytes, const char* name) {
  const auto link = find(handle);
  if (link && data && keep_input(link.get(), {static_cast<const char*>(data), bytes}, &type)) return kSuccess;
  return hooks[kAddData].as<AddData>()(handle, type, data, bytes, name);
}

int add_file(Handle handle, int type, const char* name) {
  const auto link = find(handle);
  if (link && name) {
    std::string text;
    if (const std::unique_ptr<FILE, int (*)(FILE*)> file(std::fopen(name, "rbe"), std::fclose); file) {
      char piece[65536];
      for (size_t got; (got = std::fread(piece, 1, sizeof(piece), file.get())) > 0;) text.append(piece, got);
    }
    if (!text.empty() && keep_input(link.get(), text, &type)) return kSuccess;
  }
  return hooks[kAddFile].as<AddFile>()(handle, type, name);
}

template <typename T>
void append(std::string* bytes, T value) {
  bytes->append(reinterpret_cast<const char*>(&value), sizeof(value));
}

// A fatbin of PTX units for one architecture, none of them packed.
std::string fatbin_of(const std::vector<std::string>& units, uint32_t architecture) {
  std::string entries;
  for (const std::string& unit : units) {
    const size_t padded = (unit.size() + 8) / 8 * 8;  // ends in NUL
    append<uint16_t>(&entries, 1);                    // PTX
    append<uint16_t>(&entries, 0x101);
    append<uint32_t>(&entries, 64);
    append<uint64_t>(&entries, padded);
    entries.append(12, 0);
    append<uint32_t>(&entries, architecture);
    entries.append(8, 0);
    append<uint64_t>(&entries, 0x11);  // 64 bits, Linux
    entries.append(16, 0);
    entries.append(unit).append(padded - unit.size(), 0);
  }
  std::string fatbin;
  append<uint32_t>(&fatbin, 0xBA55ED50);
  append<uint16_t>(&fatbin, 1);
  append<uint16_t>(&fatbin, 16);
  append<uint64_t>(&fatbin, entries.size());
  return fatbin + entries;
}

std::string linked_ptx(Handle handle) {
  void* const library = hooks[kComplete].real;
  auto* const size = reinterpret_cast<GetSize*>(symbol_beside(library, "nvJitLinkGetLinkedPtxSize"));
  auto* const get = reinterpret_cast<GetBytes*>(symbol_beside(library, "nvJitLinkGetLinkedPtx"));
  size_t bytes = 0;
  if (!size || !get || size(handle, &bytes) != kSuccess) return {};
  std::string text(bytes, 0);
  if (get(handle, text.data()) != kSuccess) return {};
  text.resize(std::min(text.find('\0'), text.size()));
  return text;
}

int complete(Handle handle) {
  const auto link = find(handle);
  const bool for_nvjitlink = !link || !link->optimises || link->has_code || !link->only_ptx;
  const int result = for_nvjitlink ? hooks[kComplete].as<Complete>()(handle) : kSuccess;
  if (result != kSuccess || !link || !link->only_ptx) return result;
  if (link->has_code) link->units.push_back(linked_ptx(handle));
  if (link->units.size() == 1) {
    link->linked = link->units[0] + '\0';
  } else if (!link->units.empty()) {
    link->linked = fatbin_of(link->units, link->architecture);
  }
  return result;
}

int cubin_size(Handle handle, size_t* bytes) {
  const auto link = find(handle);
  if (!link || link->linked.empty() || !bytes) return hooks[kCubinSize].as<GetSize>()(handle, bytes);
  *bytes = link->linked.size();
  return kSuccess;
}

int cubin(Handle handle, void* code) {
  const auto link = find(handle);
  if (!link || link->linked.empty() || !code) return hooks[kCubin].as<GetBytes>()(handle, code);
  std::memcpy(code, link->linked.data(), link->linked.size());
  return kSuccess;
}

}  // namespace

std::span<Hook> nvjitlink_hooks() { return hooks; }

}  // namespace bandsaw::ptx_preload
