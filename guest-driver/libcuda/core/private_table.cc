#include "guest-driver/libcuda/core/private_table.h"

#include <dlfcn.h>

#include <cstdio>
#include <map>
#include <mutex>
#include <set>
#include <span>
#include <string>
#include <tuple>

#include "guest-driver/libcuda/core/log.h"
#include "memory/base/uuid_text.h"

namespace bandsaw::libcuda {
namespace {

struct Callers {
  std::mutex mutex;  // of both
  std::map<const void*, uint32_t> runtimes;
  std::set<std::tuple<std::string, size_t, const void*>> told;
};

// Leaked: used after static destructors.
Callers& callers() {
  static auto* const created = new Callers;
  return *created;
}

struct Library {
  const void* base = nullptr;
  const char* file = "unknown code";
};

Library library_of(const void* code) {
  Dl_info info;
  if (!dladdr(code, &info)) return {};
  return {info.dli_fbase, info.dli_fname ? info.dli_fname : "the program"};
}

// "/usr/lib/libcudart.so.13 (CUDA runtime 13.5)"; under the lock.
std::string describe(const Callers& all, const Library& library) {
  const auto known = all.runtimes.find(library.base);
  if (known == all.runtimes.end()) return std::string(library.file) + " (its CUDA version is not known yet)";
  char version[48];
  std::snprintf(version, sizeof(version), " (CUDA runtime %u.%u)", known->second / 1000, known->second % 1000 / 10);
  return library.file + std::string(version);
}

// Who called, the first time that this is asked of the three; else empty.
std::string first_call(const std::string& table, size_t slot, const void* caller) {
  Callers& all = callers();
  const Library library = library_of(caller);
  std::lock_guard lock(all.mutex);
  return all.told.insert({table, slot, library.base}).second ? describe(all, library) : std::string();
}

}  // namespace

void note_runtime(const void* caller, uint32_t version) {
  Callers& all = callers();
  const Library library = library_of(caller);
  std::lock_guard lock(all.mutex);
  all.runtimes[library.base] = version;
}

CUresult refuse_slot(const TableName& table, size_t slot, const void* caller) {
  const std::string name = uuid_text(table.uuid);
  if (const std::string who = first_call(name, slot, caller); !who.empty()) {
    log(Level::kWarn, "slot %zu of the private table %s (%s) is not supported; called by %s", slot, name.c_str(),
        table.title, who.c_str());
  }
  return CUDA_ERROR_NOT_SUPPORTED;
}

CUresult refuse_table(const uint8_t* uuid, const void* caller) {
  const std::string name = uuid_text(std::span<const uint8_t, 16>(uuid, 16));
  if (const std::string who = first_call(name, 0, caller); !who.empty()) {
    log(Level::kInfo, "the private table %s is not there; asked for by %s", name.c_str(), who.c_str());
  }
  return CUDA_ERROR_NOT_FOUND;
}

}  // namespace bandsaw::libcuda
