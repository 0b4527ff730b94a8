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

using Handle = struct NvJitLink*;

// For programs that are linked with nvJitLink; others find them by dlsym().
extern "C" {
#define EXPORTED __attribute__((visibility("default")))
EXPORTED int nvJitLinkCreate(Handle* handle, uint32_t count, const char** options);
EXPORTED int nvJitLinkDestroy(Handle* handle);
EXPORTED int nvJitLinkAddData(Handle handle, int type, const void* data, size_t bytes, const char* name);
EXPORTED int nvJitLinkAddFile(Handle handle, int type, const char* name);
EXPORTED int nvJitLinkComplete(Handle handle);
EXPORTED int nvJitLinkGetLinkedCubinSize(Handle handle, size_t* bytes);
EXPORTED int nvJitLinkGetLinkedCubin(Handle handle, void* code);
}

namespace bandsaw::ptx_preload {
namespace {

using Create = int(Handle*, uint32_t, const char**);
using Destroy = int(Handle*);
using AddData = int(Handle, int, const void*, size_t, const char*);
using AddFile = int(Handle, int, const char*);
using Complete = int(Handle);
using GetSize = int(Handle, size_t*);
using GetBytes = int(Handle, void*);

constexpr int kSuccess = 0, kNoLibrary = 6;  // NVJITLINK_ERROR_INTERNAL
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

enum { kCreate, kDestroy, kAddData, kAddFile, kComplete, kCubinSize, kCubin };

Hook hooks[] = {
    {"libnvJitLink.so", "nvJitLinkCreate", reinterpret_cast<void*>(nvJitLinkCreate)},
    {"libnvJitLink.so", "nvJitLinkDestroy", reinterpret_cast<void*>(nvJitLinkDestroy)},
    {"libnvJitLink.so", "nvJitLinkAddData", reinterpret_cast<void*>(nvJitLinkAddData)},
    {"libnvJitLink.so", "nvJitLinkAddFile", reinterpret_cast<void*>(nvJitLinkAddFile)},
    {"libnvJitLink.so", "nvJitLinkComplete", reinterpret_cast<void*>(nvJitLinkComplete)},
    {"libnvJitLink.so", "nvJitLinkGetLinkedCubinSize", reinterpret_cast<void*>(nvJitLinkGetLinkedCubinSize)},
    {"libnvJitLink.so", "nvJitLinkGetLinkedCubin", reinterpret_cast<void*>(nvJitLinkGetLinkedCubin)},
};

// nvJitLink's own function.
template <typename Function, typename... Arguments>
int call(size_t which, Arguments... arguments) {
  auto* const function = hooks[which].as<Function>();
  return function ? function(arguments...) : kNoLibrary;
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

}  // namespace

std::span<Hook> nvjitlink_hooks() { return hooks; }

}  // namespace bandsaw::ptx_preload

using namespace bandsaw::ptx_preload;

int nvJitLinkCreate(Handle* handle, uint32_t count, const char** options) {
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
  if (gives_ptx || !link->architecture) return call<Create>(kCreate, handle, count, options);
  if (link->optimises) changed.push_back("-ptx");
  const int result = call<Create>(kCreate, handle, static_cast<uint32_t>(changed.size()), changed.data());
  if (result != kSuccess) return result;
  std::lock_guard lock(links().mutex);
  links().all[*handle] = std::move(link);
  return result;
}

int nvJitLinkDestroy(Handle* handle) {
  if (handle) {
    std::lock_guard lock(links().mutex);
    links().all.erase(*handle);
  }
  return call<Destroy>(kDestroy, handle);
}

int nvJitLinkAddData(Handle handle, int type, const void* data, size_t bytes, const char* name) {
  const auto link = find(handle);
  if (link && data && keep_input(link.get(), {static_cast<const char*>(data), bytes}, &type)) return kSuccess;
  return call<AddData>(kAddData, handle, type, data, bytes, name);
}

int nvJitLinkAddFile(Handle handle, int type, const char* name) {
  const auto link = find(handle);
  if (link && name) {
    std::string text;
    if (const std::unique_ptr<FILE, int (*)(FILE*)> file(std::fopen(name, "rbe"), std::fclose); file) {
      char piece[65536];
      for (size_t got; (got = std::fread(piece, 1, sizeof(piece), file.get())) > 0;) text.append(piece, got);
    }
    if (!text.empty() && keep_input(link.get(), text, &type)) return kSuccess;
  }
  return call<AddFile>(kAddFile, handle, type, name);
}

int nvJitLinkComplete(Handle handle) {
  const auto link = find(handle);
  const bool for_nvjitlink = !link || !link->optimises || link->has_code || !link->only_ptx;
  const int result = for_nvjitlink ? call<Complete>(kComplete, handle) : kSuccess;
  if (result != kSuccess || !link || !link->only_ptx) return result;
  if (link->has_code) link->units.push_back(linked_ptx(handle));
  if (link->units.size() == 1) {
    link->linked = link->units[0] + '\0';
  } else if (!link->units.empty()) {
    link->linked = fatbin_of(link->units, link->architecture);
  }
  return result;
}

int nvJitLinkGetLinkedCubinSize(Handle handle, size_t* bytes) {
  const auto link = find(handle);
  if (!link || link->linked.empty() || !bytes) return call<GetSize>(kCubinSize, handle, bytes);
  *bytes = link->linked.size();
  return kSuccess;
}

int nvJitLinkGetLinkedCubin(Handle handle, void* code) {
  const auto link = find(handle);
  if (!link || link->linked.empty() || !code) return call<GetBytes>(kCubin, handle, code);
  std::memcpy(code, link->linked.data(), link->linked.size());
  return kSuccess;
}

// The header gives each function the name of its version; all versions are alike.
extern "C" {
#define NAMED(function, version) EXPORTED __attribute__((alias(#function))) decltype(function) __##function##_##version
#define OF_MAJOR(function, major) \
  NAMED(function, major##_0);     \
  NAMED(function, major##_1);     \
  NAMED(function, major##_2);     \
  NAMED(function, major##_3);     \
  NAMED(function, major##_4);     \
  NAMED(function, major##_5);     \
  NAMED(function, major##_6);     \
  NAMED(function, major##_7);     \
  NAMED(function, major##_8);     \
  NAMED(function, major##_9)
#define OF_ALL(function)  \
  OF_MAJOR(function, 12); \
  OF_MAJOR(function, 13)
OF_ALL(nvJitLinkCreate);
OF_ALL(nvJitLinkDestroy);
OF_ALL(nvJitLinkAddData);
OF_ALL(nvJitLinkAddFile);
OF_ALL(nvJitLinkComplete);
OF_ALL(nvJitLinkGetLinkedCubinSize);
OF_ALL(nvJitLinkGetLinkedCubin);
}
